"""Tables with vectors beside their other columns, as the engines that hand out pyarrow pass them on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import pyarrow as pa

from ._embedder import Embedder, _count

#: The columns that are added.
ADDED = ("embedding", "error")

Table = TypeVar("Table", pa.Table, pa.RecordBatch)


def with_vectors(embedder: Embedder, table: Table, image: str, keep_image: bool) -> Table:
    """Add ``embedding`` and ``error``. Column ``image`` is left out unless it is kept or holds text."""
    names = table.schema.names
    if image not in names:
        raise KeyError(f"there is no column '{image}'; columns: {', '.join(names)}; pass image=NAME")
    for name in ADDED:
        if name in names:
            raise ValueError(f"there is a column '{name}' already; rename it before embedding")
    column = table.column(image)
    embedded = embed_column(embedder, column)
    if not keep_image and not _is_text(column.type):
        table = table.drop_columns([image])
    for name in ADDED:
        table = table.append_column(name, embedded.column(name))
    return table


def embed_column(embedder: Embedder, column: pa.Array | pa.ChunkedArray) -> pa.RecordBatch:
    """Embed a column of encoded images, paths or tensors of pixels: ``embedding`` and ``error``."""
    if not isinstance(column.type, pa.BaseExtensionType):
        return pa.record_batch(embedder.embed_arrow(column))
    return embed_list(embedder, _tensors(column))


def embed_list(embedder: Embedder, images: Iterable[Any]) -> pa.RecordBatch:
    """Embed a list of images: ``embedding`` and ``error``."""
    return pa.record_batch(embedder._batch(images, _count(images)))


class Column(list[Any]):
    """An Arrow array as a list that keeps its type. ``datasets`` would take it from the first batch's values."""

    def __init__(self, array: pa.Array) -> None:
        super().__init__(array.to_pylist())
        self._array = array

    def __arrow_array__(self, type: pa.DataType | None = None) -> pa.Array:
        return self._array if type is None else self._array.cast(type)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _tensors(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The arrays of a tensor column, without a copy where the type permits."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return [tensor for chunk in chunks for tensor in _of_chunk(chunk)]


def _of_chunk(chunk: pa.Array) -> Any:
    if isinstance(chunk.type, pa.FixedShapeTensorType):
        return chunk.to_numpy_ndarray()
    return chunk.to_numpy(zero_copy_only=False)
