"""LanceDB: an embedding function, under the name ``foveate``."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Literal

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
    """Embeds images in tables and queries; ``options`` are those of :class:`foveate.Embedder`.

    With ``source="text"``, a table's column has texts, and with ``query="text"``, strings in queries are texts; the
    model has two towers then (CLIP, SigLIP, PE-Core, TIPSv2).
    """

    model: str = MODEL
    options: dict[str, Any] = {}
    source: Literal["image", "text"] = "image"
    query: Literal["image", "text"] = "image"
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

    def compute_source_embeddings(self, items: Any, *_: Any, **__: Any) -> list[np.ndarray[Any, Any] | None]:
        """Embed a column or a list of images, which are paths, addresses, encoded images or PIL images, or of texts."""
        if isinstance(items, (pa.Array, pa.ChunkedArray)):
            items = items.to_pylist()
        elif isinstance(items, (str, bytes)) or not isinstance(items, Iterable):
            items = [items]
        return self._embed(items, self.source == "text")

    def _embed(self, items: Any, are_texts: bool) -> list[np.ndarray[Any, Any] | None]:
        embedder = self._embedder()
        vectors, errors = embedder.embed_text(items) if are_texts else embedder.embed(items)
        for error in filter(None, errors):
            _log.warning("%s; its vector is null, and on_bad_vectors='drop' leaves its row out", error)
        return [None if np.isnan(vector).all() else vector for vector in vectors]

    def compute_query_embeddings(self, query: Any, *_: Any, **__: Any) -> list[np.ndarray[Any, Any] | None]:
        """Embed the image or the text of a query."""
        return self._embed([query], self.query == "text" and isinstance(query, str))

    def _embedder(self) -> Embedder:
        if self._opened is None:
            self._opened = Embedder(self.model, **self.options)
        return self._opened
