"""Arrow in and out, with every library that speaks the PyCapsule interface."""

from __future__ import annotations

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import foveate
from conftest import MODEL


@pytest.fixture(scope="module")
def embedder() -> foveate.Embedder:
    return foveate.Embedder(MODEL)


def rows(batch: foveate.Batch) -> list[bytes | None]:
    column = pa.record_batch(batch).column("embedding")
    return [None if row is None else np.array(row, np.float32).tobytes() for row in column.to_pylist()]


def errors(batch: foveate.Batch) -> list[str | None]:
    return pa.record_batch(batch).column("error").to_pylist()


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
def test_binary_columns(embedder, contents, expected, kind):
    array = pa.array(contents, kind)
    assert rows(embedder.embed_arrow(array)) == expected
    assert rows(embedder.embed_arrow(array[3:7])) == expected[3:7]
    chunks = pa.chunked_array([array[:5], array[5:5], array[5:]])
    assert rows(embedder.embed_arrow(chunks)) == expected


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_path_columns(embedder, photos, expected, kind):
    table = pa.table({"file": pa.array([str(photo) for photo in photos], kind)})
    assert rows(embedder.embed_arrow(table, image="file")) == expected


def test_structs_of_bytes_and_path(embedder, photos, contents, expected):
    given = [{"bytes": contents[0], "path": "a"}, {"bytes": None, "path": str(photos[1])}, None, {"bytes": b"x", "path": "b"}]
    array = pa.array(given, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    batch = embedder.embed_arrow(pa.record_batch({"image": array, "n": [1, 2, 3, 4]}))
    assert rows(batch) == [*expected[:2], None, None]
    assert errors(batch)[:3] == [None] * 3 and errors(batch)[3].startswith("decode: ")
    assert rows(embedder.embed_arrow(array)) == rows(batch), "the column alone"
    with pytest.raises(foveate.ItemError) as raised:
        foveate.Embedder(MODEL, on_error="raise").embed_arrow(array)
    assert raised.value.item == "b"


def test_nulls_in_are_nulls_out(embedder, contents, expected):
    batch = embedder.embed_arrow(pa.array([None, contents[0], b"", None], pa.binary()))
    assert rows(batch) == [None, expected[0], None, None]
    assert [error is None for error in errors(batch)] == [True, True, False, True]
    assert pa.record_batch(batch).column("embedding").type == pa.list_(pa.field("item", pa.float32(), False), embedder.dim)
    assert len(embedder.embed_arrow(pa.array([], pa.binary()))) == 0
    assert rows(embedder.embed_arrow(pa.nulls(2))) == [None, None]


def test_other_columns_are_refused(embedder):
    with pytest.raises(TypeError, match="Int64"):
        embedder.embed_arrow(pa.array([1]))
    with pytest.raises(KeyError, match="picture"):
        embedder.embed_arrow(pa.table({"picture": [b"x"]}))
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        embedder.embed_arrow([b"x"])


def test_polars(embedder, contents, expected):
    frame = pl.DataFrame({"image": [*contents, None]})
    assert rows(embedder.embed_arrow(frame)) == [*expected, None]
    series = embedder.embed_arrow(frame["image"])
    result = frame.hstack(pl.DataFrame(series))
    assert result["embedding"].dtype == pl.Array(pl.Float32, embedder.dim)
    assert result["embedding"].null_count() == 1 and result["error"].null_count() == result.height


def test_polars_expressions(embedder, contents, expected):
    def embedded(images: pl.Series) -> pl.Series:
        return pl.DataFrame(embedder.embed_arrow(images)).to_struct()

    outcome = pl.Struct({"embedding": pl.Array(pl.Float32, embedder.dim), "error": pl.String})
    frame = pl.LazyFrame({"image": [*contents, b"no image"]})
    vectors = frame.select(pl.col("image").map_batches(embedded, return_dtype=outcome)).unnest("image").collect()
    assert rows(vectors.rechunk().to_arrow().to_batches()[0]) == [*expected, None]
    assert vectors["error"][-1].startswith("decode: ")


def test_duckdb(embedder, contents, expected):
    images = pa.table({"n": range(len(contents)), "image": contents})
    relation = duckdb.sql("from images order by n desc")
    vectors = pa.table(embedder.embed_arrow(relation))
    assert rows(vectors.to_batches()[0]) == expected[::-1]
    (length, bad), = duckdb.sql("select len(embedding), count(error) from vectors group by 1").fetchall()
    assert (length, bad) == (embedder.dim, 0)


def test_duckdb_functions(embedder, contents, expected):
    def embedded(images: pa.ChunkedArray) -> pa.Array:
        return pa.record_batch(embedder.embed_arrow(images)).column("embedding")

    database, images = duckdb.connect(), pa.table({"n": range(len(contents)), "image": contents})
    kind = f"FLOAT[{embedder.dim}]"
    database.create_function("embed", embedded, ["BLOB"], kind, type="arrow", null_handling="special")
    database.register("images", images)
    table = database.sql("select n, embed(image) as v from images order by n").to_arrow_table()
    assert [np.array(row, np.float32).tobytes() for row in table["v"].to_pylist()] == expected


def test_vectors_come_without_a_copy(embedder, contents, expected):
    batch = embedder.embed_arrow(pa.array(contents, pa.binary()))
    flat = [pa.record_batch(batch).column("embedding").flatten().to_numpy(zero_copy_only=True) for _ in range(2)]
    assert flat[0].ctypes.data == flat[1].ctypes.data
    del batch
    assert flat[0].reshape(len(contents), -1)[2].tobytes() == expected[2], "the memory outlives the batch"


def test_batches_without_pyarrow(embedder, photos, contents, expected, tmp_path):
    batch = embedder.embed_arrow(pa.array([*contents[:2], b"no image"], pa.binary()))
    vectors = batch["embedding"]
    assert [row.tobytes() for row in vectors[:2]] == expected[:2] and np.isnan(vectors[2]).all()
    assert np.array_equal(batch.to_numpy(), vectors, equal_nan=True)
    assert np.array_equal(np.asarray(batch), vectors, equal_nan=True)
    assert np.asarray(batch, np.float64).dtype == np.float64
    assert batch["error"][:2] == [None, None] and batch["error"][2].startswith("decode: ")
    assert list(batch.schema) == ["embedding", "error"] and str(embedder.dim) in batch.schema["embedding"]
    with pytest.raises(KeyError, match="id"):
        batch["id"]
    (streamed,) = foveate.embed_files(photos[:2], model=MODEL)
    pytest.importorskip("pandas")
    frame = streamed.to_pandas()
    assert frame["id"].tolist() == streamed["id"] == list(map(str, photos[:2]))
    assert [vector.tobytes() for vector in frame["embedding"]] == expected[:2]
    assert batch.to_pandas()["embedding"][2] is None


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()], ids=str)
def test_dictionaries(embedder, photos, contents, expected, kind):
    values = [str(photo) for photo in photos[:2]] if kind == pa.string() else [contents[0], contents[1]]
    array = pa.array([values[1], None, values[0], values[1]], kind).dictionary_encode()
    assert rows(embedder.embed_arrow(array)) == [expected[1], None, expected[0], expected[1]]
    assert rows(embedder.embed_arrow(pa.nulls(2, array.type))) == [None, None]
    with pytest.raises(foveate.ItemError, match="row 1"):
        bad = pa.array([contents[0], b"no image"]).dictionary_encode()
        foveate.Embedder(MODEL, on_error="raise").embed_arrow(bad)


def test_categories_of_polars(embedder, photos, expected):
    files = pl.Series([str(photos[1]), None, str(photos[0])], dtype=pl.Categorical)
    assert rows(embedder.embed_arrow(files)) == [expected[1], None, expected[0]]
