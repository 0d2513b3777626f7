"""Daft: an embedder as an expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

try:
    import daft
    import pyarrow as pa
    from daft import DataType, Expression, Series
except ImportError as error:
    raise ImportError("foveate.daft needs Daft; pip install 'foveate[daft]'") from error

import numpy as np

from . import _embedder
from ._options import EmbedderOptions, within
from ._tables import embed_column, embed_list

if TYPE_CHECKING:
    from typing_extensions import Unpack


def embed(
    images: Expression | str,
    model: str = _embedder.MODEL,
    *,
    dim: int | None = None,
    cpus: float | None = None,
    gpus: float = 0,
    max_concurrency: int | None = None,
    batch_size: int = 256,
    **options: Unpack[EmbedderOptions],
) -> Expression:
    """Embed a column: structs of ``embedding`` (Embedding[Float32; dim]) and ``error`` (string).

    ``daft.col("v").get("embedding")`` or ``.unnest()`` takes them apart.

    Args:
        images: the column or its name: encoded images, paths, addresses, or Daft's images.
        model: as of :class:`foveate.Embedder`.
        dim: number of components of a vector; by default, the model is opened here to find it.
        cpus: CPUs of each instance: Daft reserves them, and the embedder uses as many threads; by default, all.
        gpus: GPUs of each instance; with any, the forward runs on ``cuda:0``.
        max_concurrency: number of instances.
        batch_size: rows of a call.
        options: those of :class:`foveate.Embedder`.

    Raises:
        ValueError: an option is unknown, or its value is.
    """
    return _expression(images, _embed, model, dim, cpus, gpus, max_concurrency, batch_size, options)


def embed_text(
    texts: Expression | str,
    model: str,
    *,
    dim: int | None = None,
    cpus: float | None = None,
    max_concurrency: int | None = None,
    batch_size: int = 256,
    **options: Unpack[EmbedderOptions],
) -> Expression:
    """Embed a column of texts, as :func:`embed` embeds images, with a model of two towers (CLIP, SigLIP, PE-Core,
    TIPSv2)."""
    return _expression(texts, _embed_text, model, dim, cpus, 0, max_concurrency, batch_size, options)


def _expression(
    column: Expression | str,
    act: Callable[[_embedder.Embedder, Series], pa.RecordBatch],
    model: str,
    dim: int | None,
    cpus: float | None,
    gpus: float,
    max_concurrency: int | None,
    batch_size: int,
    options: EmbedderOptions,
) -> Expression:
    shared: Any = options
    if gpus:
        shared = {"device": "cuda:0", **options}
    elif cpus is not None:
        shared = within(cpus, options)
    embedder = _embedder.Embedder(model, **shared)
    vector = DataType.embedding(DataType.float32(), embedder.dim if dim is None else dim)
    outcome = DataType.struct({"embedding": vector, "error": DataType.string()})

    # The embedder works without the interpreter's lock, so a process of its own gains nothing, except a GPU of its own.
    process = None if gpus else False

    @daft.cls(cpus=cpus, gpus=gpus, max_concurrency=max_concurrency, use_process=process, name_override="foveate")
    class Embed:
        @daft.method.batch(return_dtype=outcome, batch_size=batch_size)
        def __call__(self, given: Series) -> pa.Array:
            return act(embedder, given).to_struct_array()

    expression: Expression = Embed()(daft.col(column) if isinstance(column, str) else column)
    return expression


def _embed_text(embedder: _embedder.Embedder, texts: Series) -> pa.RecordBatch:
    vectors, errors = embedder.embed_text(texts.to_pylist())
    is_missing = pa.array(np.isnan(vectors).all(axis=1))
    lists = pa.FixedSizeListArray.from_arrays(vectors.ravel(), vectors.shape[1], mask=is_missing)
    reasons = [None if error is None else f"{error.stage}: {error.reason}" for error in errors]
    return pa.record_batch({"embedding": lists, "error": pa.array(reasons, pa.string())})


def _embed(embedder: _embedder.Embedder, images: Series) -> pa.RecordBatch:
    if images.datatype().is_image():
        pixels: list[Any] = images.to_pylist()
        return embed_list(embedder, pixels)
    return embed_column(embedder, images.to_arrow())
