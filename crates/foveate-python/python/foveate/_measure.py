"""What the commands measure and predict, as dictionaries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from ._foveate import FoveateError
from ._jobs import Inputs, paths
from ._options import arguments


def profile(inputs: Inputs, *, out: str | os.PathLike[str] | None = None, **options: Any) -> dict[str, Any]:
    """Measure where a job's time goes, as ``foveate profile`` does. It takes about a minute for each pair.

    Args:
        inputs: files, folders, patterns, containers (tar, zip, Parquet) or addresses (``s3://bucket/prefix/``).
        out: a folder for the CSV files, which ``foveate report`` reads; by default, none are kept.
        options: the options of ``foveate profile --help``, with underscores.

    Returns:
        What ``foveate profile --json`` prints: the rows of ``profile.csv`` under ``profile``, of ``storage.csv`` under
        ``storage``.

    Raises:
        FoveateError: the command failed; the message is the command's.
    """
    with tempfile.TemporaryDirectory() as unkept:
        given = arguments({"out": out or unkept, "quiet": True, **options})
        return _result("profile", [*given, "--", *paths(inputs)])


def plan(*, out: str | os.PathLike[str] | None = None, **options: Any) -> dict[str, Any]:
    """Predict workers, batch, time and cost of a job, as ``foveate plan`` does.

    Args:
        out: a folder for ``batch_plan.csv``; by default, none is written.
        options: the options of ``foveate plan --help``, with underscores. ``from_`` is ``--from``, a folder that
            ``foveate profile`` and ``foveate bench batch-sweep`` wrote.

    Returns:
        What ``foveate plan --json`` prints: the costs, the ``state`` with the given batch and workers, a sweep of both.

    Raises:
        FoveateError: the command failed; the message is the command's.
    """
    return _result("plan", arguments({"out": out, **options}))


def _result(command: str, given: list[str]) -> dict[str, Any]:
    """Run a command in a process of its own, so that it measures nothing of this one's threads and memory."""
    call = [sys.executable, "-m", "foveate", command, "--json", *given]
    done = subprocess.run(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
    if done.returncode:
        raise FoveateError(done.stderr.strip() or f"foveate {command} ended with exit code {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result
