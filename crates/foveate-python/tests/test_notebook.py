"""A notebook, as ``jupyter nbconvert --execute`` runs it."""

from __future__ import annotations

import subprocess
import sys

from conftest import MODEL, PHOTOS, needs

needs("nbconvert", "ipykernel")

import nbformat

CELLS = [
    "import pathlib, foveate",
    f"photos = sorted(pathlib.Path({str(PHOTOS)!r}).iterdir())",
    f"embedder = foveate.Embedder({MODEL!r})",
    "vectors, errors = embedder.embed([*photos, b'no image'], progress=True)",
    "errors[-1]",
    f"next(foveate.embed_files(photos, model={MODEL!r})).to_pandas().head(2)",
]


def test_a_notebook_runs_and_shows_progress(photos, tmp_path):
    notebook, output = tmp_path / "photos.ipynb", tmp_path / "done.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS]), notebook)
    command = ["-m", "nbconvert", "--execute", "--to", "notebook", "--output", str(output), str(notebook)]
    subprocess.run([sys.executable, *command], check=True)
    *_, shown, error, frame = nbformat.read(output, as_version=4).cells
    assert f"{len(photos) + 1}/{len(photos) + 1}" in str(shown.outputs), "a bar"
    assert "'decode'" in str(error.outputs) and "embedding" in str(frame.outputs)
