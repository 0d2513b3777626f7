"""Texts beside images, with a small SigLIP whose goldens its own library made."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import foveate
from conftest import MODEL, PROGRAM, ROOT, needs

FAMILY: Path = ROOT.parent / "shared/data/families/siglip"
pytestmark = pytest.mark.skipif(not FAMILY.is_dir(), reason=f"{FAMILY} is missing")


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    return dict(np.load(FAMILY / "golden.npz"))


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return json.loads((FAMILY / "golden.json").read_text())["texts"]


@pytest.fixture(scope="module")
def embedder() -> foveate.Embedder:
    return foveate.Embedder(FAMILY)


def test_texts_are_the_librarys(embedder, golden, texts):
    vectors, errors = embedder.embed_text(texts)
    assert errors == [None] * len(texts)
    np.testing.assert_allclose(vectors, golden["text_vector"], atol=1e-4)
    assert (embedder.embed_text(texts[2]).vectors == vectors[2]).all()


def test_bad_texts_are_rows_with_errors(embedder):
    vectors, errors = embedder.embed_text(["a cat", None, "  ", float("nan")])
    assert np.isnan(vectors).all(axis=1).tolist() == [False, True, True, True]
    assert [str(error) for error in errors if error] == ["cannot read 2: empty text"]
    with pytest.raises(TypeError):
        embedder.embed_text([3])
    with pytest.raises(foveate.FoveateError, match="no text tower"):
        foveate.Embedder(MODEL).embed_text("a cat")
    with pytest.raises(foveate.FoveateError, match="leave pooling out"):
        foveate.Embedder(FAMILY, pooling="mean").embed_text("a cat")


def test_labels_have_the_probabilities_of_the_library(embedder, golden, texts):
    probabilities = 1 / (1 + np.exp(-golden["logits_per_image"].astype(np.float64)))
    found = foveate.label(golden["vector"], texts, embedder, templates=["{}"], k=3)
    expected = np.argsort(-probabilities, axis=1, kind="stable")[:, :3]
    np.testing.assert_allclose(found.scores, np.take_along_axis(probabilities, expected, 1), atol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(probabilities, found.labels, 1), found.scores, atol=1e-4)
    ensemble = foveate.label(golden["vector"], {"cat": ["a cat", "a kitten"], "snow": [texts[2]]}, embedder)
    assert ensemble.labels.shape == (12, 1)
    assert (foveate.label(golden["vector"], ["a"], str(FAMILY), threshold=1.0).labels == -1).all()
    with pytest.raises(ValueError, match="no labels"):
        foveate.label(golden["vector"], [], embedder)


def test_vectors_are_the_commands(embedder, texts, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(texts[:6]))
    command = [PROGRAM, "embed-text", "texts.txt", "-o", "t.parquet", "--model", FAMILY, "--quiet"]
    subprocess.run(command, check=True, cwd=tmp_path)
    vectors = pq.read_table(tmp_path / "t.parquet")["embedding"].to_pylist()
    assert (embedder.embed_text(texts[:6]).vectors == np.array(vectors, np.float32)).all()


def test_a_table_of_lancedb_is_searched_by_text(golden, texts, tmp_path):
    needs("lancedb")
    import lancedb
    from lancedb.embeddings import get_registry
    from lancedb.pydantic import LanceModel, Vector

    function = get_registry().get("foveate").create(model=str(FAMILY), source="text", query="text")

    class Text(LanceModel):
        text: str = function.SourceField()
        vector: Vector(function.ndims()) = function.VectorField()

    table = lancedb.connect(tmp_path).create_table("texts", schema=Text)
    table.add([{"text": text} for text in texts[2:6]])
    (nearest,) = table.search(texts[4]).limit(1).to_list()
    assert nearest["text"] == texts[4]


def test_a_column_of_daft(embedder, texts):
    needs("daft")
    import daft

    import foveate.daft

    frame = daft.from_pydict({"text": [texts[0], "", None]})
    rows = frame.with_column("v", foveate.daft.embed_text("text", str(FAMILY))).to_pydict()["v"]
    assert (np.array(rows[0]["embedding"], np.float32) == embedder.embed_text(texts[0]).vectors[0]).all()
    assert (rows[1]["embedding"], rows[1]["error"]) == (None, "read: empty text")
    assert (rows[2]["embedding"], rows[2]["error"]) == (None, None)
