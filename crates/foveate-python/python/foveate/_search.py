"""What vectors are for: neighbours, duplicates, clusters, and how well they tell labels apart."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from . import _foveate
from ._embedder import Embedder

#: Rows that are handed over together.
_PIECE = 1 << 14

_Rows = tuple[Iterator[bytes], int, int]


#: The prompt of a label, as in the zero-shot pipeline of transformers.
TEMPLATE = "This is a photo of {}."


class Labels(NamedTuple):
    """Labels of each row, ``[n, k]``, best first, with their probabilities and cosines; −1 and NaN where there are no
    more."""

    labels: NDArray[np.int64]
    scores: NDArray[np.float32]
    cosines: NDArray[np.float32]


class Neighbors(NamedTuple):
    """Rows and scores, ``[n, k]``, best first; −1 and NaN where there are no more."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]


class Duplicates(NamedTuple):
    """Pairs of rows ``[n, 2]`` whose score reaches the threshold, their scores, and groups of rows."""

    pairs: NDArray[np.int64]
    scores: NDArray[np.float32]
    groups: list[list[int]]


class Clusters(NamedTuple):
    """The cluster of each row (−1 for one that is not finite), the cosine to its centre, and the centres."""

    labels: NDArray[np.int64]
    scores: NDArray[np.float32]
    centres: NDArray[np.float32]


def neighbors(
    vectors: Any,
    k: int = 10,
    *,
    queries: Any = None,
    metric: str = "cosine",
    threads: int | None = None,
    progress: bool = False,
) -> Neighbors:
    """Find the ``k`` nearest other rows of each row, or the nearest rows of each query, exactly.

    Args:
        vectors: ``[n, dim]``: a numpy array, an Arrow column of lists, or a ``Batch``.
        k: neighbours of each row.
        queries: ``[m, dim]``: find the nearest of ``vectors`` for each of these.
        metric: ``"cosine"``, or ``"dot"`` for the inner product.
        threads: all cores by default.
        progress: show a bar of tqdm.
    """
    given, count, _ = _rows(vectors)
    asked, of_asked = (None, count) if queries is None else _rows(queries)[:2]
    k = _positive("k", k)
    rows, scores = _foveate.neighbors(given, asked, k, metric, threads, _bar(progress))
    return Neighbors(_numbers(rows, np.int64, of_asked, k), _numbers(scores, np.float32, of_asked, k))


def similar(vectors: Any, query: Any, k: int = 10, *, metric: str = "cosine", threads: int | None = None) -> Neighbors:
    """Find the ``k`` rows that are most like one vector ``[dim]``, as ``[k]``, or like each of several, as ``[m, k]``.

    ``similar(vectors, embedder.encode(["photo.jpg"])[0])`` searches by image, if the embedder has the model and the
    options with which the vectors were made.
    """
    query = np.asarray(query)
    found = neighbors(vectors, k, queries=np.atleast_2d(query), metric=metric, threads=threads)
    return Neighbors(found.rows[0], found.scores[0]) if query.ndim == 1 else found


def duplicates(
    vectors: Any,
    threshold: float = 0.97,
    *,
    against: Any = None,
    linkage: str = "single",
    metric: str = "cosine",
    threads: int | None = None,
    progress: bool = False,
) -> Duplicates:
    """Find all pairs of rows whose score is at least ``threshold``, exactly, and the groups that they make.

    Args:
        vectors: ``[n, dim]``, as in ``neighbors``.
        threshold: least score of a pair.
        against: ``[m, dim]``: compare ``vectors`` with these alone; then the second row of a pair is theirs, and there
            are no groups.
        linkage: ``"single"``: a group is a chain of pairs; ``"complete"``: every two rows of a group are a pair.
        metric: ``"cosine"``, or ``"dot"`` for the inner product.
        threads: all cores by default.
        progress: show a bar of tqdm.
    """
    if linkage not in ("single", "complete"):
        raise ValueError(f"linkage={linkage!r}; it is 'single' or 'complete'")
    others = None if against is None else _rows(against)[0]
    pairs, scores, groups = _foveate.duplicates(
        _rows(vectors)[0], others, threshold, metric, linkage == "complete", threads, _bar(progress)
    )
    return Duplicates(_numbers(pairs, np.int64, -1, 2), _numbers(scores, np.float32), groups)


def clusters(vectors: Any, k: int, *, threads: int | None = None, progress: bool = False) -> Clusters:
    """Divide rows into at most ``k`` clusters by cosine: spherical k-means, the same for the same vectors."""
    given, _, dim = _rows(vectors)
    labels, scores, centres = _foveate.clusters(given, _positive("k", k), threads, _bar(progress))
    return Clusters(_numbers(labels, np.int64), _numbers(scores, np.float32), _numbers(centres, np.float32, -1, dim))


def sample(vectors: Any, n: int, *, threads: int | None = None, progress: bool = False) -> NDArray[np.int64]:
    """Choose ``n`` rows that represent all: each is the one that is least like those before it (greedy k-center)."""
    return np.array(_foveate.spread_out(_rows(vectors)[0], _positive("n", n), threads, _bar(progress)), np.int64)


def evaluate(
    vectors: Any, labels: Sequence[Any], *, threads: int | None = None, progress: bool = False
) -> dict[str, tuple[float, float, float]]:
    """Measure how well vectors tell labels apart: recall@1, @5, @10, mAP@R, k-NN accuracy and that of a linear probe.

    Args:
        vectors: ``[n, dim]``, as in ``neighbors``.
        labels: one for each row, of any type; rows with ``None`` are left out.
        threads: all cores by default.
        progress: show a bar of tqdm.

    Returns:
        By name: the figure, and the ends of its 95 % interval. All are of the rows whose label is there twice or more.
    """
    given, count, _ = _rows(vectors)
    if len(labels) != count:
        raise ValueError(f"{len(labels)} labels for {count} vectors")
    numbers: dict[Any, int] = {}
    of_rows = [None if label is None else numbers.setdefault(label, len(numbers)) for label in labels]
    found = _foveate.evaluate(given, of_rows, threads, _bar(progress))
    return {name: (mean, low, high) for name, mean, low, high in found}


def label(
    vectors: Any,
    labels: Sequence[str] | Mapping[str, Sequence[str]],
    embedder: Embedder | str,
    *,
    templates: Sequence[str] = (TEMPLATE,),
    k: int = 1,
    threshold: float = 0.0,
    threads: int | None = None,
    progress: bool = False,
) -> Labels:
    """Give images the labels that their model finds likeliest, as the command ``foveate label`` does.

    Args:
        vectors: ``[n, dim]`` of images, as in ``neighbors``.
        labels: the labels; or a dictionary with the texts of each, which make one vector.
        embedder: that of the images' model, or the model's name.
        templates: texts with ``{}`` for the label; several make one vector. A dictionary's texts are taken as they are.
        k: most labels of an image.
        threshold: least probability: of the softmax over all labels for CLIP, of each label alone for SigLIP.
        threads: all cores by default.
        progress: show a bar of tqdm.

    Returns:
        Indices into ``labels`` (or ``list(labels)``), probabilities and cosines.

    Raises:
        ItemError, FoveateError: as of :meth:`Embedder.embed_text`.
        ValueError: the weights have no scale of logits, or there are no labels.
    """
    if not isinstance(embedder, Embedder):
        embedder = Embedder(embedder)
    prompts: list[Sequence[str]] = (
        list(labels.values())
        if isinstance(labels, Mapping)
        else [[template.replace("{}", name) for template in templates] for name in labels]
    )
    if not prompts or not all(prompts):
        raise ValueError("there are no labels, or one has no text")
    logits = embedder.logits
    if logits is None:
        raise ValueError("the model's weights have no logit_scale; name a whole checkpoint")
    embedded, errors = embedder.embed_text([text for texts in prompts for text in texts])
    for error in filter(None, errors):
        raise error
    unit = embedded / np.linalg.norm(embedded, axis=1, keepdims=True)
    ends = np.cumsum([len(texts) for texts in prompts])
    classes = np.stack([part.mean(axis=0) for part in np.split(unit, ends[:-1])])
    given, count, _ = _rows(vectors)
    k = min(_positive("k", k), len(prompts))
    found = _foveate.classify(given, _rows(classes)[0], logits, k, threshold, threads, _bar(progress))
    return Labels(
        _numbers(found[0], np.int64, count, k),
        _numbers(found[1], np.float32, count, k),
        _numbers(found[2], np.float32, count, k),
    )


def export_index(
    vectors: Any, path: str | os.PathLike[str], kind: str = "faiss", *, sample: int = 1000, k: int = 10
) -> float:
    """Write an approximate index for many more vectors, or queries, than an exact search can take.

    The library builds it, and must be installed: ``"faiss"`` (an HNSW graph, read by ``faiss.read_index``),
    ``"usearch"`` (read by ``Index.restore``) or ``"lance"`` (a table of LanceDB with the columns ``row`` and
    ``vector``, and an IVF-PQ index). Scores are cosines. Rows with NaN or infinities are refused.

    Args:
        vectors: ``[n, dim]``, as in ``neighbors``.
        path: the file, or the folder of a table.
        kind: the library.
        sample: rows whose neighbours are searched in the index and exactly.
        k: neighbours that are compared.

    Returns:
        The recall: the share of the sample's exact neighbours that the index finds.
    """
    unit = _array(vectors)
    if not np.isfinite(unit).all():
        raise ValueError("vectors have NaN or infinities; leave these rows out")
    unit = unit / np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    chosen = np.linspace(0, len(unit) - 1, min(sample, len(unit))).astype(np.int64)
    makers = {"faiss": _faiss, "usearch": _usearch, "lance": _lance}
    if kind not in makers:
        raise ValueError(f"kind={kind!r}; it is {', '.join(makers)}")
    found = makers[kind](unit, os.fspath(path), unit[chosen], k)
    exact = neighbors(unit, k, queries=unit[chosen]).rows
    hits = [len(np.intersect1d(own, other)) for own, other in zip(exact, found)]
    return float(np.sum(hits) / max(1, np.sum(exact >= 0)))


def _faiss(unit: NDArray[np.float32], path: str, queries: NDArray[np.float32], k: int) -> Any:
    import faiss

    index = faiss.IndexHNSWFlat(unit.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = 200
    index.add(unit)
    index.hnsw.efSearch = max(64, 4 * k)
    faiss.write_index(index, path)
    return index.search(queries, k)[1]


def _usearch(unit: NDArray[np.float32], path: str, queries: NDArray[np.float32], k: int) -> Any:
    from usearch.index import Index

    index = Index(ndim=unit.shape[1], metric="cos", dtype="f32")
    index.add(np.arange(len(unit)), unit)
    index.save(path)
    return np.asarray(index.search(queries, k).keys, np.int64).reshape(len(queries), -1)


def _lance(unit: NDArray[np.float32], path: str, queries: NDArray[np.float32], k: int) -> Any:
    import lancedb
    import pyarrow as pa
    from lancedb.index import IvfPq

    folder, name = os.path.split(os.path.abspath(path))
    lists = pa.FixedSizeListArray.from_arrays(unit.ravel(), unit.shape[1])
    table = lancedb.connect(folder).create_table(
        name.removesuffix(".lance"), pa.table({"row": np.arange(len(unit)), "vector": lists}), mode="overwrite"
    )
    if len(unit) >= 256:
        table.create_index("vector", config=IvfPq(distance_type="cosine"))
    # The vectors themselves decide among ten times as many rows.
    search: list[Any] = [table.search(query).refine_factor(10).limit(k) for query in queries]
    return [found.distance_type("cosine").to_arrow()["row"].to_numpy() for found in search]


def _rows(vectors: Any) -> tuple[_Rows, int, int]:
    """What the compiled half takes, the number of rows, and their width."""
    array = _array(vectors)
    pieces = (array[first : first + _PIECE].tobytes() for first in range(0, len(array), _PIECE))
    return (pieces, *array.shape), *array.shape


def _array(vectors: Any) -> NDArray[np.float32]:
    """Vectors as ``[n, dim]`` f32."""
    if hasattr(vectors, "combine_chunks"):  # pyarrow's columns in tables
        vectors = vectors.combine_chunks()
    if hasattr(vectors, "flatten") and hasattr(vectors, "null_count"):  # pyarrow's arrays of lists
        if vectors.null_count:
            raise ValueError(f"{vectors.null_count} rows have no vector; leave them out")
        vectors = vectors.flatten().to_numpy(zero_copy_only=False).reshape(len(vectors), -1)
    array = np.asarray(vectors, np.float32)
    if array.ndim != 2:
        raise ValueError(f"vectors of shape {array.shape}; [n, dim] is expected")
    return array


def _numbers(given: bytearray, kind: Any, *shape: int) -> NDArray[Any]:
    numbers = np.frombuffer(given, kind)
    return numbers.reshape(shape) if shape else numbers


def _positive(name: str, number: int) -> int:
    if number < 1:
        raise ValueError(f"{name}={number}; it is 1 or more")
    return number


def _bar(progress: bool) -> Callable[[float], None] | None:
    """What shows the share that is done."""
    if not progress:
        return None
    bar = tqdm(total=100, unit="%", dynamic_ncols=True, bar_format="{l_bar}{bar}| {elapsed}<{remaining}")

    def show(share: float) -> None:
        bar.update(round(100 * share, 1) - bar.n)
        if share >= 1:
            bar.close()

    return show
