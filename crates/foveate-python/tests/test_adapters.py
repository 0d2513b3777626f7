"""Adapters of engines that are not installed, and what all adapters share."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import foveate
from conftest import MODEL
from foveate._tables import with_vectors


ADAPTERS = {"ray": "ray", "spark": "pyspark", "daft": "daft", "lancedb": "lancedb"}


@pytest.mark.parametrize("adapter, library", ADAPTERS.items())
def test_an_adapter_without_its_engine_names_what_to_install(adapter, library):
    program = f"import sys, foveate; sys.modules[{library!r}] = None; foveate.{adapter}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: ") and last.endswith(f"; pip install 'foveate[{adapter}]'")


def test_other_names_are_no_adapters():
    assert set(ADAPTERS) < set(dir(foveate))
    with pytest.raises(AttributeError, match="no attribute 'dask'"):
        foveate.dask


@pytest.mark.parametrize("kind", [pa.Table, pa.RecordBatch])
def test_a_tables_other_columns_stay(kind, photos, contents, expected):
    columns = {"n": [0, 1, 2], "image": [contents[0], None, b"no image"], "file": [str(photos[0]), None, "missing.jpg"]}
    table, embedder = kind.from_pydict(columns), foveate.Embedder(MODEL)
    for image, kept in [("image", ["n", "file"]), ("file", ["n", "image", "file"])]:
        result = with_vectors(embedder, table, image, keep_image=False)
        assert isinstance(result, kind) and result.schema.names == [*kept, "embedding", "error"]
        first, *others = result.column("embedding").to_pylist()
        assert np.array(first, np.float32).tobytes() == expected[0] and others == [None, None]
        assert [reason is None for reason in result.column("error").to_pylist()] == [True, True, False]
    names = with_vectors(embedder, table, "image", keep_image=True).schema.names
    assert names == ["n", "image", "file", "embedding", "error"]
    assert with_vectors(embedder, table.slice(0, 0), "image", keep_image=False).num_rows == 0
    with pytest.raises(KeyError, match="there is no column 'jpg'; columns: n, image, file; pass image=NAME"):
        with_vectors(embedder, table, "jpg", keep_image=False)
    with pytest.raises(ValueError, match="there is a column 'error' already"):
        with_vectors(embedder, table.rename_columns(["n", "image", "error"]), "image", keep_image=False)


def test_columns_of_tensors():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 40, 50, 3), dtype=np.uint8)
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(pixels)
    embedder = foveate.Embedder(MODEL)
    result = with_vectors(embedder, pa.table({"image": pa.chunked_array([tensors[:1], tensors[1:]])}), "image", False)
    vectors = [np.array(row, np.float32) for row in result["embedding"].to_pylist()]
    assert np.array_equal(vectors, embedder.encode(list(pixels))) and result["error"].null_count == 3
