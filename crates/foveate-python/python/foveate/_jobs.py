from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Union

from . import _foveate
from ._foveate import Batches
from ._options import Option, arguments

#: A file, a folder, a pattern, a container (tar, zip, Parquet) or an address, or several.
Inputs = Union[str, "os.PathLike[str]", "Sequence[str | os.PathLike[str]]"]
#: Called with the inputs settled, their number (None while it is not known), and the failures so far.
Progress = Callable[[int, Union[int, None], int], object]


def embed(
    inputs: Inputs, *, output: str | os.PathLike[str], progress: bool | Progress = False, **options: Option
) -> dict[str, Any]:
    """Run a whole job, as ``foveate embed`` does. The same call continues an interrupted job.

    Args:
        inputs: files, folders, patterns, containers (tar, zip, Parquet) or addresses (``s3://bucket/prefix/``).
        output: ``x.parquet``, ``x.npy``, or a folder for part files.
        progress: True prints a line on standard error; a function is called with ``(settled, inputs, failures)``.
        options: the options of ``foveate embed --help``, with underscores.

    Returns:
        The report of ``foveate embed --json``: status, counts, files, and the time of each stage.

    Raises:
        ValueError: an option is unknown, or its value is.
        FoveateError: the job cannot start, or stopped; finished work is kept.
        KeyboardInterrupt: after Ctrl-C, with finished work kept.
    """
    tell = _print if progress is True else progress or None
    report = _foveate.embed(_arguments(inputs, {"output": output, **options}), tell)
    if progress is True:
        print(file=sys.stderr)
    result: dict[str, Any] = json.loads(report)
    return result


def embed_files(inputs: Inputs, **options: Option) -> Batches:
    """Stream the vectors of a job, in the order of its inputs.

    Args:
        inputs: files, folders, patterns, containers (tar, zip, Parquet) or addresses (``s3://bucket/prefix/``).
        options: the options of ``foveate embed --help`` that do not concern an output, with underscores:
            ``model``, ``shard="0/8"``, ``limit``.

    Returns:
        An iterator of record batches: ``id``, string; ``embedding``, FixedSizeList<float32>[dim]; ``error``, string.
        It is an Arrow stream too: ``pyarrow.table(stream)``. Closing it stops the job.

    Raises:
        ValueError: an option is unknown, or its value is.
        FoveateError: the job cannot start, or stopped.
    """
    return Batches(_arguments(inputs, options))


def paths(inputs: Inputs) -> list[str]:
    """The inputs as the command line's arguments."""
    return [os.fspath(path) for path in ([inputs] if isinstance(inputs, (str, os.PathLike)) else inputs)]


def _arguments(inputs: Inputs, options: dict[str, Option]) -> list[str]:
    return [*arguments(options), "--", *paths(inputs)]


def _print(settled: int, inputs: int | None, failures: int) -> None:
    total = "" if inputs is None else f" of {inputs}"
    print(f"\r{settled}{total} images, {failures} failures", end="", file=sys.stderr, flush=True)
