"""Searches of numpy arrays and Arrow columns find what numpy finds, and indexes of other libraries can be read."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import numpy as np
import pyarrow as pa
import pytest

import foveate


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    random = np.random.default_rng(1)
    centres = random.standard_normal((12, 48))
    rows = centres[np.arange(600) % 12] + 0.4 * random.standard_normal((600, 48))
    rows[7] = rows[3]
    return rows.astype(np.float32)


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = (x.astype(np.float64) / np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True) for x in (a, b))
    return a @ b.T


def test_neighbors_are_numpys(vectors):
    scores = cosines(vectors, vectors)
    np.fill_diagonal(scores, -2)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    rows, found = foveate.neighbors(vectors, 5, progress=True)
    assert (rows == expected).all() and rows.dtype == np.int64
    np.testing.assert_allclose(found, np.take_along_axis(scores, expected, 1), atol=1e-6)
    lists = pa.FixedSizeListArray.from_arrays(vectors.ravel(), 48)
    for given in (lists, pa.chunked_array([lists[:100], lists[100:]]), vectors.tolist(), pa.array(vectors.tolist())):
        assert (foveate.neighbors(given, 5).rows == expected).all()
    asked = foveate.neighbors(vectors, 3, queries=vectors[:4] + 0.01)
    assert (asked.rows[:3, 0] == [0, 1, 2]).all() and asked.rows.shape == (4, 3)
    row, score = foveate.similar(vectors, vectors[3], 2)
    assert row.tolist() == [3, 7] and score.shape == (2,)
    few = foveate.neighbors(vectors[:2], 3)
    assert few.rows.tolist() == [[1, -1, -1], [0, -1, -1]] and np.isnan(few.scores[:, 1:]).all()


def test_duplicates_are_all_pairs(vectors):
    scores = cosines(vectors, vectors)
    expected = np.argwhere(np.triu(scores >= 0.9, 1))
    found = foveate.duplicates(vectors, 0.9)
    assert found.pairs.tolist() == expected.tolist() and len(found.scores) == len(expected)
    assert [3, 7] in found.pairs.tolist() and all(len(group) > 1 for group in found.groups)
    complete = foveate.duplicates(vectors, 0.9, linkage="complete").groups
    assert all((scores[np.ix_(group, group)] >= 0.9).all() for group in complete)
    against = foveate.duplicates(vectors[:5], 0.999, against=vectors)
    assert against.pairs.tolist() == [[0, 0], [1, 1], [2, 2], [3, 3], [3, 7], [4, 4]] and against.groups == []


def test_clusters_samples_and_labels(vectors):
    labels, scores, centres = foveate.clusters(vectors, 12)
    assert (labels == np.argmax(cosines(vectors, centres), axis=1)).all() and scores.min() > 0.5
    assert len(set(foveate.sample(vectors, 12) % 12)) >= 10, "each kind is among the rows that are spread out"
    figures = foveate.evaluate(vectors, [None, *(f"kind {row % 12}" for row in range(1, 600))])
    assert set(figures) == {"recall@1", "recall@5", "recall@10", "mAP@R", "k-NN accuracy", "linear probe"}
    mean, low, high = figures["recall@1"]
    assert low < mean <= high <= 1 and mean > 0.95


def test_what_cannot_be_searched_is_said(vectors):
    for call, why in [
        (lambda: foveate.neighbors(vectors[0]), r"shape \(48,\); \[n, dim\]"),
        (lambda: foveate.neighbors(vectors, 0), "k=0; it is 1 or more"),
        (lambda: foveate.neighbors(vectors, metric="l2"), "it is 'cosine' or 'dot'"),
        (lambda: foveate.neighbors(vectors, queries=vectors[:, :3]), "queries of 3 dimensions"),
        (lambda: foveate.duplicates(vectors, linkage="ward"), "linkage='ward'"),
        (lambda: foveate.evaluate(vectors, ["a"]), "1 labels for 600 vectors"),
        (lambda: foveate.export_index(vectors, "x", "annoy"), "faiss, usearch, lance"),
    ]:
        with pytest.raises(ValueError, match=why):
            call()


def test_ctrl_c_ends_a_search():
    script = (
        "import numpy as np, foveate; print('go', flush=True);"
        "foveate.neighbors(np.random.default_rng(0).standard_normal((200_000, 64), np.float32), 50, threads=1)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "go\n"
    threading.Event().wait(2)
    process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in process.communicate(timeout=60)[1]


@pytest.mark.parametrize("kind", ["faiss", "usearch", "lance"])
def test_indexes_of_other_libraries(vectors, kind, tmp_path):
    pytest.importorskip({"lance": "lancedb"}.get(kind, kind))
    path = tmp_path / f"index.{kind}"
    assert foveate.export_index(vectors, path, kind, sample=200) > 0.9
    if kind == "faiss":
        import faiss

        assert faiss.read_index(str(path)).ntotal == 600
    elif kind == "usearch":
        from usearch.index import Index

        assert len(Index.restore(str(path))) == 600
    else:
        import lancedb

        assert lancedb.connect(tmp_path).open_table("index").count_rows() == 600
