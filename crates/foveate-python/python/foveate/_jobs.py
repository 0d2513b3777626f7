from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from . import _foveate
from ._foveate import Batches, FoveateError
from ._options import JobOptions, StreamOptions, checked
from ._said import Progress, called

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: A file, a folder, a pattern, a container (tar, zip, Parquet) or an address, or several.
Inputs = Union[str, "os.PathLike[str]", "Sequence[str | os.PathLike[str]]"]


def embed(
    inputs: Inputs,
    *,
    output: str | os.PathLike[str],
    progress: bool | Progress = False,
    **options: Unpack[JobOptions],
) -> dict[str, Any]:
    """Run a whole job, as ``foveate embed`` does. The same call continues an interrupted job.

    Args:
        inputs: files, folders, patterns, containers (tar, zip, Parquet) or addresses (``s3://bucket/prefix/``).
        output: ``x.parquet``, ``x.npy``, or a folder for part files.
        progress: True shows a bar of tqdm; a function is called with ``(settled, inputs, failures)``, where inputs are
            None if their number is not known.
        options: the options of ``foveate embed --help``, with underscores, except those of the command alone
            (``update``, ``dry_run``, ``trace`` and the like).

    Returns:
        The report of ``foveate embed --json``: counts, files, the time of each stage, and ``status``: ``complete``, or
        ``already complete`` if an earlier call has finished.

    Raises:
        ValueError: an option is unknown, its value is, or it has no effect here.
        FoveateError: the job cannot start, or stopped (finished work is kept), or no input gave a vector.
        KeyboardInterrupt: after Ctrl-C, with finished work kept.
    """
    given = [f"--output={os.fspath(output)}", *checked(options, JobOptions)]
    result: dict[str, Any] = json.loads(_foveate.embed([*given, *_named(inputs, options)], called(progress)))
    if result["failures"] and not result["vectors"]:
        count, output = result["failures"], result["output"]
        raise FoveateError(f"none of {count} inputs gave a vector; the reasons are beside {output}")
    return result


def embed_files(
    inputs: Inputs, *, progress: bool | Progress = False, **options: Unpack[StreamOptions]
) -> Batches:
    """Stream the vectors of a job, in the order of its inputs.

    Args:
        inputs: files, folders, patterns, containers (tar, zip, Parquet) or addresses (``s3://bucket/prefix/``).
        progress: as of :func:`embed`.
        options: the options of ``foveate embed --help`` that do not concern an output, with underscores:
            ``model``, ``shard="0/8"``, ``limit``.

    Returns:
        An iterator of record batches: ``id``, string; ``embedding``, FixedSizeList<float32>[dim]; ``error``, string.
        It is an Arrow stream too: ``pyarrow.table(stream)``. Closing it stops the job.

    Raises:
        ValueError: an option is unknown, its value is, or it has no effect here.
        FoveateError: the job cannot start, or stopped.
    """
    return Batches([*checked(options, StreamOptions), *_named(inputs, options)], called(progress))


def paths(inputs: Inputs) -> list[str]:
    """The inputs as the command line's arguments."""
    return [os.fspath(path) for path in ([inputs] if isinstance(inputs, (str, os.PathLike)) else inputs)]


def _named(inputs: Inputs, options: Mapping[str, Any]) -> list[str]:
    named = paths(inputs)
    if not named and not options.get("from_list"):
        raise ValueError("no inputs; pass at least one file, folder, pattern or address")
    return ["--", *named]
