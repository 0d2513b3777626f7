"""LanceDB: an embedding function, under the name ``foveate``."""

from __future__ import annotations

import logging
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

_log = logging.getLogger("foveate")


@register("foveate")
class FoveateEmbeddings(EmbeddingFunction):  # type: ignore[misc]
    """Embeds images in tables and queries; ``options`` are those of :class:`foveate.Embedder`."""

    model: str = MODEL
    options: dict[str, Any] = {}
    _opened: Embedder | None = PrivateAttr(None)

    @classmethod
    def create(cls, **arguments: Any) -> FoveateEmbeddings:
        """Make the function; the options are checked here.

        Raises:
            ValueError: an option is unknown, its value is, or it stands beside ``options``.
        """
        for name in arguments.keys() - cls.model_fields.keys():
            raise ValueError(f"create does not take '{name}'; pass options={{'{name}': {arguments[name]!r}}}")
        function: FoveateEmbeddings = super().create(**arguments)
        function._opened = Embedder(function.model, **function.options)
        return function

    def ndims(self) -> int:
        """Return the number of components of a vector. Opens the model."""
        return self._embedder().dim

    def compute_source_embeddings(self, images: Any, *_: Any, **__: Any) -> list[np.ndarray[Any, Any] | None]:
        """Embed a column or a list of images: paths, addresses, encoded images, PIL images."""
        if isinstance(images, (pa.Array, pa.ChunkedArray)):
            images = images.to_pylist()
        elif isinstance(images, (str, bytes)) or not isinstance(images, Iterable):
            images = [images]
        vectors, errors = self._embedder().embed(images)
        for error in filter(None, errors):
            _log.warning("%s; its vector is null, and on_bad_vectors='drop' leaves its row out", error)
        return [None if np.isnan(vector).all() else vector for vector in vectors]

    def compute_query_embeddings(self, query: Any, *_: Any, **__: Any) -> list[np.ndarray[Any, Any] | None]:
        """Embed the image of a query."""
        return self.compute_source_embeddings([query])

    def _embedder(self) -> Embedder:
        if self._opened is None:
            self._opened = Embedder(self.model, **self.options)
        return self._opened
