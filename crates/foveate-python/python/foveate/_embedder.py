from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union

import numpy as np

from ._foveate import Batch, Engine, FoveateError
from ._options import EmbedderOptions, checked
from ._said import Progress, called

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

#: A path or an address, an encoded image, an open file, a PIL image, or an array of uint8: ``[h, w]``, ``[h, w, 1]``,
#: ``[h, w, 3]`` or ``[h, w, 4]``. None, NaN and pandas' NA are rows without an image.
Image = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, "NDArray[np.uint8]", Any, None]
OnError = Literal["null", "raise"]

#: The model unless another is named.
MODEL = "facebook/dinov2-small"

_EXIF_ORIENTATION = 0x0112


class ItemError(FoveateError):
    """One image has no vector."""

    def __init__(self, item: str, stage: str, reason: str) -> None:
        super().__init__(item, stage, reason)
        #: The image: its path, or its place in the call.
        self.item = item
        #: The stage that failed: ``list``, ``read``, ``decode``, ``resize`` or ``encode``.
        self.stage = stage
        #: The cause, on one line.
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot {self.stage} {self.item}: {self.reason}"


class Embedded(NamedTuple):
    """What :meth:`Embedder.embed` returns: two plain objects, so that neither is lost when the other is copied."""

    #: ``[n, dim]`` float32, C order. A row is NaN if its image has no vector.
    vectors: NDArray[np.float32]
    #: For each image its error, or None.
    errors: list[ItemError | None]


class Embedder:
    """A model that turns images into vectors.

    It is its options: it pickles as them, and opens the model in its first call, once in each process. Embedders of
    one process with the same options share the model. Those on the CPU take turns, so that they never use more threads
    than one. Calls release the interpreter's lock; Ctrl-C ends one within a batch.

    Args:
        model: a card's name, a Hugging Face repository ``org/name[@revision]``, a folder, or ``seeded:<card>``.
        on_error: what becomes of an image without a vector: a ``null`` row with its error, or ``raise`` ItemError.
        options: those of ``foveate embed --help`` that decide an image's vector, with underscores. Among them are
            ``device`` (``cpu``, ``cuda:0``, or several: ``cuda:0,cuda:1``), ``dtype`` (precision of the forward:
            ``f32``, ``f16``, ``bf16`` or ``i8``), ``threads`` (of the forward on the CPU; default: all cores),
            ``batch`` (images per batch; default: 32), ``preprocess`` (``hf``, the model's own recipe, or ``squash``),
            ``pooling`` (default: the model's own) and ``decoder`` (default: the build's first). An address is
            given up after ``timeout`` seconds, with all attempts; requests are repeated for ``retry_for`` seconds.

    Raises:
        ValueError: an option is unknown, its value is, or it concerns jobs alone.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = MODEL,
        *,
        on_error: OnError = "null",
        **options: Unpack[EmbedderOptions],
    ) -> None:
        if on_error not in ("null", "raise"):
            raise ValueError(f"on_error is {on_error!r}; possible values: null, raise")
        given = [f"--model={os.fspath(model)}", *checked(options, EmbedderOptions)]
        self._options = {"model": model, **{name: value for name, value in options.items() if value is not None}}
        self._on_error = on_error
        self._upright = self._options.get("orientation", "apply") == "apply"
        self._engine = Engine(given, options.get("timeout"))

    def __reduce__(self) -> tuple[Any, ...]:
        return _embedder, ({**self._options, "on_error": self._on_error},)

    def __repr__(self) -> str:
        # Headers may hold secrets.
        shown = {name: value for name, value in self._options.items() if name != "http_header"}
        options = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"foveate.Embedder({options}, on_error={self._on_error!r})"

    @property
    def dim(self) -> int:
        """Number of components of a vector. Opens the model."""
        return self._engine.dim()

    def embed(self, images: Iterable[Image] | Image, *, progress: bool | Progress = False) -> Embedded:
        """Embed images, or one image. An iterator is read while the pipeline works, a few images ahead.

        Args:
            images: paths, addresses, encoded images (bytes), open binary files, PIL images, arrays of uint8 in RGB
                order (``[h, w]``, ``[h, w, 1]``, ``[h, w, 3]``, ``[h, w, 4]`` with alpha dropped), dictionaries with
                ``bytes`` or ``path`` as of Hugging Face's datasets, or None for a row without an error, as are NaN and
                pandas' NA. Anything else is a row with an error. An array ``[n, h, w, 3]`` or ``[n, h, w, 4]`` is n
                images. One image that is not in a list gives one row.
            progress: as of :func:`foveate.embed`.

        Returns:
            ``vectors, errors``: ``[n, dim]`` float32, a row for each image, and the error of each image or None.

        Raises:
            TypeError: the argument is neither an image nor images, or could be either.
            ItemError: an image has no vector, with ``on_error="raise"``.
            FoveateError: the model cannot be opened, or the device failed.
        """
        listed = _listed(images)
        data, dim, failures = self._engine.embed(map(self._taken, listed), _count(listed), called(progress))
        vectors = np.frombuffer(data, dtype=np.float32).reshape(len(failures), dim)
        return Embedded(vectors, self._judged(failures))

    def embed_text(self, texts: Iterable[str | None] | str) -> Embedded:
        """Embed texts, or one text, in the space of the images of a two-tower model: CLIP, SigLIP, PE-Core, TIPSv2.

        A text that is longer than the model's context is cut as its library cuts it.

        Args:
            texts: strings, or None for a row without an error, as are NaN and pandas' NA.

        Returns:
            As of :meth:`embed`. An empty text is a row with an error.

        Raises:
            TypeError: something is no string.
            ItemError: a text has no vector, with ``on_error="raise"``.
            FoveateError: the model cannot be opened, or has no text tower or no tokenizer.
        """
        listed = [texts] if isinstance(texts, str) else [None if _is_missing(text) else text for text in texts]
        data, dim, failures = self._engine.embed_text(listed)
        vectors = np.frombuffer(data, dtype=np.float32).reshape(len(failures), dim)
        return Embedded(vectors, self._judged(failures))

    @property
    def logits(self) -> tuple[float, float | None] | None:
        """``(scale, bias)`` of the model's logits, ``scale * cosine + bias``, if its weights have them.

        The bias is None for models that were trained with a softmax over the texts. Opens the text tower.
        """
        return self._engine.logits()

    def embed_iter(self, images: Iterable[Image], rows: int = 256) -> Iterator[Batch]:
        """Embed an iterator of images, and give a record batch after every ``rows`` of them; see :meth:`embed_arrow`.

        Raises:
            ItemError: an image has no vector, with ``on_error="raise"``; images are counted from the batch's first.
            FoveateError: the model cannot be opened, or the device failed.
        """
        images = iter(_listed(images))
        while len(batch := self._batch(itertools.islice(images, rows), None)):
            yield batch

    def _batch(self, images: Iterable[Image], count: int | None) -> Batch:
        batch, failures = self._engine.embed_batch(map(self._taken, images), count)
        self._judged(failures)
        return batch

    def encode(self, images: Iterable[Image] | Image) -> NDArray[np.float32]:
        """Embed images and return the vectors alone, as ``sentence_transformers`` does."""
        return self.embed(images).vectors

    def embed_arrow(self, images: Any, image: str = "image") -> Batch:
        """Embed an Arrow column without copying it.

        Args:
            images: an array, a chunked array, a record batch or a table of any library with Arrow's PyCapsule
                interface. Images are binary, text (paths or addresses), or structs of ``bytes`` and ``path``.
            image: the column with the images, in a record batch or a table.

        Returns:
            A record batch with a row for each image: ``embedding``, FixedSizeList<float32>[dim], and ``error``, string.
            Nulls have neither.

        Raises:
            ItemError: an image has no vector, with ``on_error="raise"``.
            FoveateError: the model cannot be opened, or the device failed.
        """
        batch, failures = self._engine.embed_arrow(images, image)
        self._judged(failures)
        return batch

    def __call__(self, images: Any, image: str = "image") -> Any:
        """Embed a batch of Hugging Face ``datasets``: the column of images to ``embedding`` and ``error``.

        A dictionary becomes one with the new columns, a pyarrow table one that has them too. Another column's name
        comes from ``map(embedder, batched=True, fn_kwargs={"image": "photo"})``.
        """
        from ._tables import Column, embed_list, with_vectors

        if hasattr(images, "__arrow_c_stream__"):
            return with_vectors(self, images, image, keep_image=True)
        if image not in images:
            known = ", ".join(images)
            raise KeyError(f"there is no column '{image}'; columns: {known}; pass fn_kwargs={{'image': NAME}}")
        column = images[image]
        if column is None or _is_one(column) or isinstance(column, Mapping):
            raise TypeError("one image in place of a column; call map with batched=True")
        embedded = embed_list(self, column)
        return {name: Column(embedded.column(name)) for name in embedded.schema.names}

    def _taken(self, image: Any) -> Any:
        """Make of an image what the engine takes, or return the error of an image that it does not take."""
        try:
            return _given(image, self._upright)
        except MemoryError:
            raise
        # Pillow raises anything for a damaged file, whose pixels it reads no sooner than here.
        except Exception as error:
            return error

    def _judged(self, failures: Sequence[tuple[str, str, str] | None]) -> list[ItemError | None]:
        errors = [None if failure is None else ItemError(*failure) for failure in failures]
        first = next((error for error in errors if error is not None), None)
        if first is not None and self._on_error == "raise":
            raise first
        return errors


def _embedder(options: dict[str, Any]) -> Embedder:
    return Embedder(**options)


def _listed(images: Any) -> Iterable[Any]:
    """Make a list of one image. What could be one image or several, or holds no images, is a TypeError."""
    expected = "pass a list of images, one image, or an array of uint8 [h, w, 3] or [n, h, w, 3]"
    if _is_one(images) or (isinstance(images, memoryview) and images.ndim == 1):
        return [images]
    if isinstance(images, Mapping):
        if not {"bytes", "path"} & set(images):
            raise TypeError(f"a dictionary without 'bytes' and 'path'; {expected}")
        return [images]
    if hasattr(images, "columns") or hasattr(images, "column_names"):
        raise TypeError(f"a table, {type(images).__name__}; pass a column, or call embed_arrow")
    shape = getattr(images, "shape", None)
    if isinstance(shape, tuple) and len(shape) != 1:
        if len(shape) == 2 or (len(shape) == 3 and shape[-1] in (1, 3, 4)):
            return [images]
        if len(shape) == 4 and shape[-1] in (3, 4):
            return images
        raise TypeError(f"an array of shape {list(shape)}; {expected}")
    if not isinstance(images, Iterable):
        raise TypeError(f"{type(images).__name__} is neither an image nor a list; {expected}")
    return images


def _count(images: Any) -> int | None:
    return len(images) if isinstance(images, Sized) else None


def _is_one(image: Any) -> bool:
    """Whether this is one image as a file has it, or as Pillow does."""
    return isinstance(image, (str, bytes, bytearray, os.PathLike)) or hasattr(image, "read") or _is_pil(image)


def _is_pil(image: Any) -> bool:
    return hasattr(image, "getexif") and hasattr(image, "convert")


def _given(image: Image, upright: bool) -> Any:
    """Make of an image what the engine takes: None, bytes, a path, or (width, height, RGB bytes)."""
    if _is_missing(image):
        return None
    if isinstance(image, (bytes, str, os.PathLike)):
        return image
    if hasattr(image, "read"):
        return _read(image)
    if isinstance(image, (bytearray, memoryview)):
        return bytes(image)
    if isinstance(image, Mapping):
        return image.get("bytes") or image.get("path")
    if _is_pil(image):
        return _pixels(_of_pil(image, upright))
    if hasattr(image, "__array__") or hasattr(image, "__array_interface__"):
        return _pixels(np.asarray(image))
    if hasattr(image, "__dlpack__"):
        return _pixels(np.from_dlpack(image))
    raise TypeError(f"{type(image).__name__} is no image; pass a path, bytes, a PIL image or an array of uint8")


def _read(file: Any) -> bytes:
    """Read an open file from its start, as Pillow does."""
    if not hasattr(file, "seekable") or file.seekable():
        file.seek(0)
    content = file.read()
    if not isinstance(content, bytes):
        raise TypeError("a file that is open as text; open it in binary mode")
    return content


def _is_missing(image: Any) -> bool:
    """Whether this is None, or what pandas has in its place: NaN, NA or NaT."""
    is_nan = isinstance(image, float) and image != image
    return image is None or is_nan or type(image).__name__ in ("NAType", "NaTType")


def _of_pil(image: Any, upright: bool) -> NDArray[np.uint8]:
    """Read the pixels of a PIL image, upright as those of a file would be."""
    if upright and image.getexif().get(_EXIF_ORIENTATION, 1) != 1:
        from PIL import ImageOps

        image = ImageOps.exif_transpose(image)
    return np.asarray(image.convert("RGB"))


def _pixels(array: NDArray[Any]) -> tuple[int, int, bytes]:
    if array.dtype != np.uint8:
        raise TypeError(f"an array of {array.dtype}; pass uint8, RGB, [h, w, 3]")
    if array.ndim == 2:
        array = array[:, :, None]
    if array.shape[2:] == (1,):
        array = np.repeat(array, 3, axis=2)
    if array.ndim != 3 or array.shape[2] not in (3, 4):
        raise ValueError(f"an array of shape {array.shape}; pass uint8, RGB, [h, w, 3]")
    height, width, _ = array.shape
    return width, height, array[:, :, :3].tobytes()
