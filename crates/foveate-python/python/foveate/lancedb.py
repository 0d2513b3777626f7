"""LanceDB: an embedding function, under the name ``foveate``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

try:
    import pyarrow as pa
    from lancedb.embeddings import EmbeddingFunction, register
    from pydantic import PrivateAttr
except ImportError as error:
    raise ImportError("foveate.lancedb needs LanceDB; pip install 'foveate[lancedb]'") from error

import numpy as np

from ._embedder import MODEL, Embedder


@register("foveate")
class FoveateEmbeddings(EmbeddingFunction):  # type: ignore[misc]
    """Embeds images in tables and queries; ``options`` are those of :class:`foveate.Embedder`."""

    model: str = MODEL
    options: dict[str, Any] = {}
    _opened: Embedder | None = PrivateAttr(None)

    def ndims(self) -> int:
        """Return the number of components of a vector. Opens the model."""
        return self._embedder().dim

    def compute_source_embeddings(self, images: Any, *_: Any, **__: Any) -> list[np.ndarray[Any, Any] | None]:
        """Embed a column or a list of images: paths, addresses, encoded images, PIL images."""
        if isinstance(images, (pa.Array, pa.ChunkedArray)):
            images = images.to_pylist()
        elif isinstance(images, (str, bytes)) or not isinstance(images, Iterable):
            images = [images]
        images = list(images)
        vectors = self._embedder().embed(images)
        found = zip(images, vectors.errors, np.asarray(vectors))
        return [None if image is None or error else vector for image, error, vector in found]

    def compute_query_embeddings(self, query: Any, *_: Any, **__: Any) -> list[np.ndarray[Any, Any] | None]:
        """Embed the image of a query."""
        return self.compute_source_embeddings([query])

    def _embedder(self) -> Embedder:
        if self._opened is None:
            self._opened = Embedder(self.model, **self.options)
        return self._opened
