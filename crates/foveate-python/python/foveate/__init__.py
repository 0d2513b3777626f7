"""Images in, DINOv2 vectors out.

``Embedder`` embeds lists and Arrow columns, ``embed_files`` streams a job's vectors, and ``embed`` runs a whole job
into files. Their options are those of ``foveate embed --help``, with underscores: ``max_pixels="200M"``. Vectors are
the command line's, bit for bit.
"""

from ._embedder import Embedder, ItemError, Vectors
from ._foveate import Batch, Batches, FoveateError, __version__
from ._jobs import embed, embed_files

__all__ = [
    "Batch",
    "Batches",
    "Embedder",
    "FoveateError",
    "ItemError",
    "Vectors",
    "__version__",
    "embed",
    "embed_files",
]
