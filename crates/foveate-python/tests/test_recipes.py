"""The recipes of docs/search.md, run from top to bottom on labelled photos, find what was hidden among these."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import MODEL, PHOTOS, PROGRAM, ROOT

BLOCK = re.compile(r"```(sh|sql|python)\n(.*?)```", re.DOTALL)


def collection(folder: Path) -> None:
    """Labelled photos, one of which is there again under a wrong label, and test photos, one of which is known."""
    (folder / "photos").mkdir()
    (folder / "test").mkdir()
    with open(ROOT / "examples/photos.csv", newline="") as lines, open(folder / "labels.csv", "w", newline="") as out:
        labels = csv.writer(out)
        labels.writerow(["file", "label"])
        for row in csv.DictReader(lines):
            kinds = {"Grocery": "grocery", "clothing": "clothing"}
            label = next((kind for sign, kind in kinds.items() if sign in row["source"]), "science")
            if row["file"] in ("coffee_progressive.jpg", "mango.jpg"):
                shutil.copy(PHOTOS / row["file"], folder / "test" / row["file"])
                continue
            shutil.copy(PHOTOS / row["file"], folder / "photos" / row["file"])
            labels.writerow([row["file"], label])
        for number in range(6):
            # The end of a JPEG is not read: other files with the same picture.
            more = folder / "photos" / f"shirt {number}.jpg"
            more.write_bytes((PHOTOS / "shirt.jpg").read_bytes() + b"." * (number + 1))
            labels.writerow([more.name, "hat" if number == 0 else "clothing"])
    shutil.copy(PHOTOS / "dress.jpg", folder / "test" / "a dress.jpg")


def run(folder: Path, kind: str, block: str, database: duckdb.DuckDBPyConnection) -> None:
    if kind == "sql":
        database.execute(block)
    elif kind == "python":
        exec(block, {})
    else:
        for line in block.splitlines():
            words = [PROGRAM, *line.split()[1:]]
            if words[1] == "embed":
                words += ["--model", MODEL]
            subprocess.run(words, cwd=folder, check=True)


def test_recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collection(tmp_path)
    monkeypatch.chdir(tmp_path)
    database = duckdb.connect()
    text = (ROOT / "docs/search.md").read_text()
    section = text[text.index("## From finding to acting") : text.index("## What is compared")]
    blocks = BLOCK.findall(section)
    assert len(blocks) == 8
    for kind, block in blocks:
        # The long form has umap-learn.
        if kind != "python" or os.environ.get("FOVEATE_TESTS") == "full":
            run(tmp_path, kind, block, database)

    def names(table: str) -> list[str]:
        return [Path(id).name for (id,) in database.execute(f"select id from {table}").fetchall()]

    assert "shirt 0.jpg" in names("suspects") and "shirt 1.jpg" not in names("suspects")
    label = "select label, others from suspects where ends_with(id, 'shirt 0.jpg')"
    assert database.execute(label).fetchall() == [("hat", "clothing")]
    assert not any(name.startswith("shirt") for name in names("outliers"))
    assert database.execute("select parse_filename(id), parse_filename(neighbor) from leaks limit 1").fetchall() == [
        ("a dress.jpg", "dress.jpg")
    ]
    chosen = names("'chosen.parquet'")
    assert "shirt 3.jpg" in chosen and not set(chosen) & set(names("suspects") + names("outliers"))
    assert sorted(chosen) == sorted(names("'clusters.parquet'"))
    check_neighbours(tmp_path)


def check_neighbours(folder: Path) -> None:
    """Compares the neighbours with NumPy's, and in the long form with faiss'."""
    rows = pq.read_table(folder / "labelled.parquet")
    vectors = np.stack(rows["embedding"].to_numpy()).astype(np.float64)
    units = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    scores = units.astype(np.float64) @ units.astype(np.float64).T
    np.fill_diagonal(scores, -2)
    expected = -np.sort(-scores, axis=1)[:, :5]
    found = pq.read_table(folder / "knn.parquet")["score"].to_numpy().reshape(-1, 5)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    if os.environ.get("FOVEATE_TESTS") == "full":
        import faiss

        index = faiss.IndexFlatIP(units.shape[1])
        index.add(units)
        theirs, _ = index.search(units, 6)
        np.testing.assert_allclose(found, theirs[:, 1:], atol=1e-5)
