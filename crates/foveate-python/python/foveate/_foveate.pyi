from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._said import Progress

__version__: str

class FoveateError(Exception):
    """A job, a model or a device failed; the message says why."""

class Engine:
    def __new__(cls, args: Sequence[str], timeout: float | None = None) -> Engine: ...
    def dim(self) -> int: ...
    def embed(
        self, images: Iterator[Any], count: int | None, progress: Progress | None = None
    ) -> tuple[bytearray, int, list[tuple[str, str, str] | None]]: ...
    def embed_batch(
        self, images: Iterator[Any], count: int | None
    ) -> tuple[Batch, list[tuple[str, str, str] | None]]: ...
    def embed_text(self, texts: Sequence[str | None]) -> tuple[bytearray, int, list[tuple[str, str, str] | None]]: ...
    def logits(self) -> tuple[float, float | None] | None: ...
    def embed_arrow(self, images: Any, image: str) -> tuple[Batch, list[tuple[str, str, str] | None]]: ...

class Batch:
    """Vectors and errors as an Arrow record batch, for every library with Arrow's PyCapsule interface.

    Columns: ``embedding`` (FixedSizeList<float32>[dim], null where there is no vector) and ``error`` (string, null
    where nothing failed); in a stream of files, ``id`` (string) comes first.
    """

    @property
    def num_rows(self) -> int:
        """Number of rows."""

    @property
    def schema(self) -> dict[str, str]:
        """The type of each column by its name."""

    def __getitem__(self, name: str) -> Any:
        """A column: vectors as numpy ``[n, dim]`` with NaN where there is none, texts as a list."""

    def to_numpy(self) -> NDArray[np.float32]:
        """The vectors, ``[n, dim]``."""

    def to_pandas(self) -> Any:
        """A data frame of pandas; vectors are arrays, or None where there is none."""

    def __len__(self) -> int: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class Batches(Iterator[Batch]):
    """A job's outcomes as record batches, in the order of its inputs. It stops when it is closed or dropped."""

    def __new__(cls, args: Sequence[str], progress: Progress | None = None) -> Batches: ...
    def __iter__(self) -> Batches: ...
    def __next__(self) -> Batch: ...
    def close(self) -> None:
        """Stop the job, also from another thread. Its remaining batches are lost."""

    def __enter__(self) -> Batches: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

def embed(args: Sequence[str], progress: Progress | None = None) -> str: ...
def command_line(args: Sequence[str]) -> int: ...

_Rows = tuple[Iterator[bytes], int, int]
_Share = Callable[[float], None] | None

def neighbors(
    vectors: _Rows, queries: _Rows | None, k: int, metric_name: str, threads: int | None, progress: _Share
) -> tuple[bytearray, bytearray]: ...
def duplicates(
    vectors: _Rows,
    against: _Rows | None,
    threshold: float,
    metric_name: str,
    complete: bool,
    threads: int | None,
    progress: _Share,
) -> tuple[bytearray, bytearray, list[list[int]]]: ...
def clusters(
    vectors: _Rows, k: int, threads: int | None, progress: _Share
) -> tuple[bytearray, bytearray, bytearray]: ...
def classify(
    vectors: _Rows,
    classes: _Rows,
    logits: tuple[float, float | None],
    k: int,
    threshold: float,
    threads: int | None,
    progress: _Share,
) -> tuple[bytearray, bytearray, bytearray]: ...
def spread_out(vectors: _Rows, n: int, threads: int | None, progress: _Share) -> list[int]: ...
def evaluate(
    vectors: _Rows, labels: Sequence[int | None], threads: int | None, progress: _Share
) -> list[tuple[str, float, float, float]]: ...
