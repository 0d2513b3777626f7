"""Ray Data: an embedder for ``Dataset.map_batches``, one for each actor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    import pyarrow as pa
    import ray
    from ray.data import ActorPoolStrategy, Dataset
except ImportError as error:
    raise ImportError("foveate.ray needs Ray Data; pip install 'foveate[ray]'") from error

from . import _embedder
from ._options import EmbedderOptions, within
from ._tables import with_vectors

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Embedder:
    """Adds ``embedding`` and ``error`` to batches of pyarrow: a callable class for ``Dataset.map_batches``.

    It opens the model when its actor starts. It uses what Ray assigned to the actor: as many threads as CPUs, and the
    GPU if there is one. ``threads``, ``workers`` and ``device`` say otherwise.

    Args:
        model: as of :class:`foveate.Embedder`.
        image: the column with the images: encoded images, paths, addresses, or tensors as of ``read_images``.
        keep_image: whether the output has that column too. A column of text is always kept.
        options: those of :class:`foveate.Embedder`.
    """

    def __init__(
        self, model: str = _embedder.MODEL, *, image: str = "image", keep_image: bool = False, **options: Any
    ) -> None:
        assigned = ray.get_runtime_context().get_assigned_resources() if ray.is_initialized() else {}
        if assigned.get("GPU"):
            options = {"device": "cuda:0", **options}
        elif assigned.get("CPU"):
            options = within(assigned["CPU"], options)
        self._embedder = _embedder.Embedder(model, **options)
        self._image, self._keep_image = image, keep_image
        # Opens the model: an actor whose model is missing fails at its start.
        self._embedder.dim

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Add the columns to a batch."""
        return with_vectors(self._embedder, batch, self._image, self._keep_image)


def embed(
    dataset: Dataset,
    model: str = _embedder.MODEL,
    *,
    image: str = "image",
    keep_image: bool = False,
    concurrency: int | tuple[int, int] = 1,
    num_cpus: float = 1,
    num_gpus: float = 0,
    batch_size: int = 256,
    **options: Unpack[EmbedderOptions],
) -> Dataset:
    """Add ``embedding`` and ``error`` to a dataset.

    Args:
        dataset: of ``read_binary_files``, ``read_parquet``, ``read_webdataset``, ``read_images`` and the like.
        model: as of :class:`foveate.Embedder`.
        image: the column with the images.
        keep_image: whether the result has that column too. A column of text is always kept.
        concurrency: the number of actors, or its bounds.
        num_cpus: CPUs of each actor: Ray reserves them, and the embedder uses as many threads.
        num_gpus: GPUs of each actor; with any, the forward runs on ``cuda:0`` of those that Ray shows the actor.
        batch_size: rows of a call.
        options: those of :class:`foveate.Embedder`.

    Returns:
        The dataset, not yet executed.

    Raises:
        ValueError: an option or a model is unknown, or its value is.
    """
    _embedder.Embedder(model, **options)  # The driver checks the options.
    least, most = (concurrency, concurrency) if isinstance(concurrency, int) else concurrency
    return dataset.map_batches(
        Embedder,
        batch_format="pyarrow",
        batch_size=batch_size,
        compute=ActorPoolStrategy(min_size=least, max_size=most),
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        fn_constructor_args=(model,),
        fn_constructor_kwargs={"image": image, "keep_image": keep_image, **options},
    )
