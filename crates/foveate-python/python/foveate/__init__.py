"""Images and texts in, vectors out.

``Embedder`` embeds lists and Arrow columns, and texts with a model of two towers, ``embed_files`` streams a job's vectors, and ``embed`` runs a whole job
into files. Their options are those of ``foveate embed --help``, with underscores: ``max_pixels="200M"``. Vectors are
the command line's, bit for bit. ``neighbors``, ``similar``, ``duplicates``, ``clusters``, ``sample``, ``label`` and
``evaluate`` search vectors. The logger ``foveate`` has the warnings.

``foveate.ray``, ``foveate.spark``, ``foveate.daft`` and ``foveate.lancedb`` adapt the embedder to these engines. Each
needs its engine, which an extra of the wheel installs: ``foveate[ray]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._embedder import Embedded, Embedder, ItemError
from ._foveate import Batch, Batches, FoveateError, __version__
from ._jobs import embed, embed_files
from ._measure import plan, profile
from ._search import (
    Clusters,
    Duplicates,
    Labels,
    Neighbors,
    clusters,
    duplicates,
    evaluate,
    export_index,
    label,
    neighbors,
    sample,
    similar,
)

if TYPE_CHECKING:
    from . import daft as daft, lancedb as lancedb, ray as ray, spark as spark
else:

    def __getattr__(name):
        """Import the adapter of an engine when it is first named."""
        if name not in ("daft", "lancedb", "ray", "spark"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        return importlib.import_module(f"{__name__}.{name}")

    def __dir__():
        """Name the adapters, too."""
        return sorted({*globals(), "daft", "lancedb", "ray", "spark"})


__all__ = [
    "Batch",
    "Batches",
    "Clusters",
    "Duplicates",
    "Embedded",
    "Embedder",
    "FoveateError",
    "ItemError",
    "Labels",
    "Neighbors",
    "__version__",
    "clusters",
    "duplicates",
    "embed",
    "embed_files",
    "evaluate",
    "export_index",
    "label",
    "neighbors",
    "plan",
    "profile",
    "sample",
    "similar",
]
