"""Apache Spark: an embedder for ``DataFrame.mapInArrow``."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

try:
    import pyarrow as pa
    from pyspark import SparkFiles, TaskContext
    from pyspark.sql import DataFrame
    from pyspark.sql.types import ArrayType, FloatType, StringType, StructField, StructType
except ImportError as error:
    raise ImportError("foveate.spark needs PySpark and pyarrow; pip install 'foveate[spark]'") from error

from . import _embedder
from ._options import EmbedderOptions, within
from ._tables import with_vectors

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class File:
    """A model that Spark brings to the executors: ``SparkContext.addArchive("model.zip#name")``, ``--archives``."""

    name: str


def embedder(
    model: str | File = _embedder.MODEL,
    *,
    image: str = "content",
    keep_image: bool = False,
    **options: Unpack[EmbedderOptions],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make a function for ``DataFrame.mapInArrow`` that adds ``embedding`` and ``error``, as :func:`schema` does.

    Each Python worker opens the model once and uses as many threads as ``spark.task.cpus``, unless ``threads`` and
    ``workers`` say otherwise.

    Args:
        model: as of :class:`foveate.Embedder`, on the executors; or a :class:`File`.
        image: the column with the images: encoded images, paths or addresses.
        keep_image: whether the output has that column too. A column of text is always kept.
        options: those of :class:`foveate.Embedder`.

    Raises:
        ValueError: an option is unknown, or its value is.
    """
    _embedder.Embedder(**options)  # The driver checks the options.

    def embed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        opened = _opened(pickle.dumps(_on_executor(model, options)))
        for batch in batches:
            yield _with_lists(with_vectors(opened, batch, image, keep_image))

    return embed


def schema(given: StructType, *, image: str = "content", keep_image: bool = False) -> StructType:
    """Return the schema that :func:`embedder` makes of ``given``."""
    is_kept = keep_image or isinstance(given[image].dataType, StringType)
    kept = [field for field in given if is_kept or field.name != image]
    added = [StructField("embedding", ArrayType(FloatType(), False)), StructField("error", StringType())]
    return StructType([*kept, *added])


def embed(
    frame: DataFrame,
    model: str | File = _embedder.MODEL,
    *,
    image: str = "content",
    keep_image: bool = False,
    **options: Unpack[EmbedderOptions],
) -> DataFrame:
    """Add ``embedding`` and ``error`` to a data frame: ``mapInArrow`` with :func:`embedder` and :func:`schema`."""
    function = embedder(model, image=image, keep_image=keep_image, **options)
    return frame.mapInArrow(function, schema(frame.schema, image=image, keep_image=keep_image))


def _on_executor(model: str | File, options: EmbedderOptions) -> _embedder.Embedder:
    name = SparkFiles.get(model.name) if isinstance(model, File) else model
    task = TaskContext.get()
    shared: Any = within(task.cpus(), options) if task else options
    return _embedder.Embedder(name, **shared)


@lru_cache(maxsize=1)
def _opened(pickled: bytes) -> _embedder.Embedder:
    """Keep the embedder from task to task: Spark reuses its Python workers."""
    embedder: _embedder.Embedder = pickle.loads(pickled)
    return embedder


def _with_lists(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Spark has no lists of fixed size."""
    at = batch.schema.get_field_index("embedding")
    kind = pa.list_(pa.field("element", pa.float32(), nullable=False))
    return batch.set_column(at, "embedding", batch.column(at).cast(kind))
