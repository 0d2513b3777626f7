"""LanceDB computes the vectors of a table and of queries with the registered function."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from conftest import MODEL, needs

needs("lancedb")

import lancedb
from lancedb.embeddings import EmbeddingFunctionConfig, get_registry
from lancedb.pydantic import LanceModel, Vector

import foveate.lancedb


def test_a_table_embeds_what_is_added_and_what_is_searched(photos, expected, tmp_path):
    function = get_registry().get("foveate").create(model=MODEL, options={"batch": 8})

    class Photo(LanceModel):
        path: str = function.SourceField()
        vector: Vector(function.ndims()) = function.VectorField()

    table = lancedb.connect(tmp_path).create_table("photos", schema=Photo)
    table.add([{"path": str(photo)} for photo in photos])
    rows = table.to_arrow().to_pylist()
    vectors = {row["path"]: np.array(row["vector"], np.float32).tobytes() for row in rows}
    assert vectors == dict(zip(map(str, photos), expected))
    for photo in photos[:3]:
        (nearest,) = table.search(str(photo)).limit(1).to_list()
        assert (nearest["path"], nearest["_distance"]) == (str(photo), 0)

    reopened = lancedb.connect(tmp_path).open_table("photos")
    reopened.add([{"path": str(photos[0])}])
    assert reopened.count_rows() == len(photos) + 1, "the table remembers the function and its options"


def test_a_column_of_bytes(contents, expected, tmp_path):
    function = get_registry().get("foveate").create(model=MODEL)
    config = EmbeddingFunctionConfig(vector_column="vector", source_column="image", function=function)
    given = pa.table({"image": pa.array(contents, pa.binary())})
    table = lancedb.connect(tmp_path).create_table("photos", data=given, embedding_functions=[config])
    rows = table.to_arrow().to_pylist()
    assert [np.array(row["vector"], np.float32).tobytes() for row in rows] == expected


def test_the_function_alone(photos, contents, expected):
    function = foveate.lancedb.FoveateEmbeddings.create(model=MODEL)
    assert function.ndims() == len(expected[0]) // 4
    (first, bad, null) = function.compute_source_embeddings(pa.array([contents[0], b"no image", None], pa.binary()))
    assert (first.tobytes(), bad, null) == (expected[0], None, None)
    for query in (contents[1], str(photos[1]), photos[1]):
        (vector,) = function.compute_query_embeddings(query)
        assert vector.tobytes() == expected[1]


def test_wrong_options_and_bad_images_name_themselves(contents, caplog, tmp_path):
    create = get_registry().get("foveate").create
    with pytest.raises(ValueError, match="does not take 'colour'"):
        create(model=MODEL, options={"colour": "red"})
    with pytest.raises(ValueError, match="create does not take 'device'; pass options={'device': 'gpu'}"):
        create(model=MODEL, device="gpu")
    config = EmbeddingFunctionConfig(vector_column="vector", source_column="image", function=create(model=MODEL))
    given = pa.table({"image": pa.array([*contents[:2], b"no image"], pa.binary())})
    table = lancedb.connect(tmp_path).create_table(
        "photos", data=given, embedding_functions=[config], on_bad_vectors="drop"
    )
    assert table.count_rows() == 2
    assert "cannot decode image 2: " in caplog.text and "on_bad_vectors='drop'" in caplog.text
