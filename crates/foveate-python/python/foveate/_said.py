"""What the compiled half has to say while a call works."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Union

from tqdm.auto import tqdm

#: Called with the inputs settled, their number (None if it is not known), and the failures so far.
Progress = Callable[[int, Union[int, None], int], object]

_log = logging.getLogger("foveate")
#: Of the files that are being downloaded.
_bars: dict[str, Any] = {}


def called(progress: bool | Progress) -> Progress | None:
    """The function that is called with the progress, if any."""
    return Bar() if progress is True else progress or None


class Bar:
    """A bar of tqdm for images. What an earlier call has done does not count for its rate."""

    def __init__(self) -> None:
        self._bar: Any = None

    def __call__(self, settled: int, inputs: int | None, failures: int) -> None:
        """Show these counts."""
        if self._bar is None:
            self._bar = tqdm(total=inputs, initial=settled, unit=" images", dynamic_ncols=True)
        bar = self._bar
        if failures:
            bar.set_postfix(failures=failures, refresh=False)
        bar.update(settled - bar.n)
        if settled == inputs:
            bar.close()


def download(file: str, done: int, total: int | None) -> None:
    """Show a file's download as a bar."""
    if file not in _bars:
        _bars[file] = tqdm(desc=file, total=total, unit="B", unit_scale=True, dynamic_ncols=True)
    _bars[file].update(done - _bars[file].n)
    if done == total:
        _bars.pop(file).close()


def notice(message: str) -> None:
    """Log what the command line prints as a note."""
    _log.warning(message)
