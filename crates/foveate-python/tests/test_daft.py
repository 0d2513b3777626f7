"""Daft: vectors are the command line's, and bad images end as null with a reason."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pyarrow as pa
import pytest

from conftest import MODEL, needs

needs("daft")

import daft
from daft import col

import foveate


def as_bytes(vectors: list) -> list[bytes | None]:
    return [None if vector is None else np.array(vector, np.float32).tobytes() for vector in vectors]


def test_bytes_become_structs_of_vector_and_error(contents, expected):
    frame = daft.from_pydict({"n": list(range(len(contents) + 2)), "image": [*contents, b"no image", None]})
    embedded = frame.with_column("v", foveate.daft.embed(col("image"), MODEL, batch_size=10))
    kind = embedded.schema()["v"].dtype
    dim = len(expected[0]) // 4
    vector = daft.DataType.embedding(daft.DataType.float32(), dim)
    assert kind == daft.DataType.struct({"embedding": vector, "error": daft.DataType.string()})
    result = embedded.select("n", col("v").get("embedding"), col("v").get("error")).sort("n").to_pydict()
    assert as_bytes(result["embedding"]) == [*expected, None, None]
    *good, bad, null = result["error"]
    assert good == [None] * len(contents) and bad.startswith("decode: ") and null is None


def test_paths_of_parquet_files(photos, expected, tmp_path):
    pq.write_table(pa.table({"file": list(map(str, photos))}), tmp_path / "files.parquet")
    frame = daft.read_parquet(str(tmp_path / "files.parquet"))
    v = foveate.daft.embed(col("file"), MODEL, cpus=1, max_concurrency=2)
    result = frame.with_column("v", v).to_pydict()
    vectors = dict(zip(result["file"], as_bytes([row["embedding"] for row in result["v"]])))
    assert vectors == dict(zip(map(str, photos), expected))


def test_images_that_daft_decoded(contents):
    decoded = col("image").decode_image(mode="RGB")
    frame = daft.from_pydict({"image": [*contents[:3], None]}).with_column("pixels", decoded)
    result = frame.with_column("v", foveate.daft.embed(col("pixels"), MODEL)).to_pydict()
    direct = foveate.Embedder(MODEL).encode(result["pixels"])
    assert as_bytes([row["embedding"] for row in result["v"]]) == [*(row.tobytes() for row in direct[:3]), None]


def test_downloaded_files(photos, expected):
    frame = daft.from_pydict({"url": [photo.as_uri() for photo in photos]})
    result = frame.with_column("v", foveate.daft.embed(col("url").download(), MODEL)).to_pydict()
    assert as_bytes([row["embedding"] for row in result["v"]]) == expected


def test_given_dimensions_open_no_model_while_planning(tmp_path):
    images = daft.from_pydict({"image": [b"x"]})
    with pytest.raises(foveate.FoveateError, match=str(tmp_path)):
        foveate.daft.embed(col("image"), str(tmp_path))
    planned = images.with_column("v", foveate.daft.embed(col("image"), str(tmp_path), dim=8))
    with pytest.raises(Exception, match=str(tmp_path)):
        planned.collect()
    with pytest.raises(ValueError, match="colour"):
        foveate.daft.embed(col("image"), MODEL, colour="red")
