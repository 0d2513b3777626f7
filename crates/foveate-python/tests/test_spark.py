"""Spark: vectors are the command line's, on executors of their own that have neither a home folder nor a network."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import MODEL, needs

needs("pyspark")

from pyspark.sql import DataFrame, SparkSession

import foveate.spark

#: What an executor's environment has instead of a home and the network.
NOTHING = {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent", "HTTPS_PROXY": "http://127.0.0.1:9"}


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    if shutil.which("java") is None:
        (pytest.fail if os.environ.get("FOVEATE_TESTS") == "full" else pytest.skip)("java is missing")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Two executors, each a process of its own, with two cores for each task.
    builder = SparkSession.builder.master("local-cluster[2,2,1024]").config("spark.task.cpus", 2)
    builder = builder.config("spark.ui.enabled", False).config("spark.driver.host", "localhost")
    builder = builder.config("spark.network.timeout", "600s").config("spark.executor.heartbeatInterval", "60s")
    for name, value in NOTHING.items():
        builder = builder.config(f"spark.executorEnv.{name}", value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    archive = shutil.make_archive(str(tmp_path_factory.mktemp("model") / "tiny"), "zip", MODEL)
    session.sparkContext.addArchive(f"{archive}#tiny")
    yield session
    session.stop()


def vectors(frame: DataFrame, key: str) -> dict[str, bytes | None]:
    """The rows' vectors as bytes, by their key; no key comes twice."""
    rows = frame.collect()
    found = {row[key]: row["embedding"] for row in rows}
    assert len(found) == len(rows)
    return {key: None if vector is None else np.array(vector, np.float32).tobytes() for key, vector in found.items()}


def test_binary_files_and_what_is_no_image(spark, photos, expected, tmp_path):
    for photo in photos:
        shutil.copy(photo, tmp_path)
    (tmp_path / "bad.jpg").write_bytes(b"no image")
    files = spark.read.format("binaryFile").load(str(tmp_path)).select("path", "content").repartition(4)
    schema = foveate.spark.schema(files.schema)
    assert schema.simpleString() == "struct<path:string,embedding:array<float>,error:string>"
    embedded = files.mapInArrow(foveate.spark.embedder(foveate.spark.File("tiny")), schema).cache()
    found = {Path(path).name: vector for path, vector in vectors(embedded, "path").items()}
    assert [found.pop(photo.name) for photo in photos] == expected
    assert found == {"bad.jpg": None}
    (reason,) = [row["error"] for row in embedded.where("error is not null").collect()]
    assert reason.startswith("decode: ")


def test_a_parquet_of_bytes(spark, photos, contents, expected, tmp_path):
    table = pa.table({"file": list(map(str, photos)), "image": contents})
    pq.write_table(table, tmp_path / "photos.parquet", row_group_size=7)
    frame = spark.read.parquet(str(tmp_path / "photos.parquet"))
    files = dict(zip(map(str, photos), expected))
    embedded = foveate.spark.embed(frame, MODEL, image="image", keep_image=True)
    assert embedded.columns == ["file", "image", "embedding", "error"]
    assert vectors(embedded, "file") == files
    by_path = foveate.spark.embed(frame.select("file"), MODEL, image="file")
    assert vectors(by_path, "file") == files, "text is kept"
    embedded.write.parquet(str(tmp_path / "vectors"))
    assert vectors(spark.read.parquet(str(tmp_path / "vectors")), "file") == files


def test_a_worker_uses_the_cores_of_its_task_and_keeps_its_model(spark):
    def shown(batches):
        import os

        for batch in batches:
            options = repr(foveate.spark._on_executor(MODEL, {}))
            yield pa.RecordBatch.from_pydict({"options": [options], "home": [os.environ["HOME"]]})

    (row,) = spark.range(1).mapInArrow(shown, "options string, home string").distinct().collect()
    assert "threads=2," in row["options"] and "workers=1," in row["options"] and row["home"] == NOTHING["HOME"]
    pickled = foveate.spark.pickle.dumps(foveate.Embedder(MODEL))
    assert foveate.spark._opened(pickled) is foveate.spark._opened(pickled)


def test_wrong_options_columns_and_models_are_told(spark, tmp_path):
    with pytest.raises(ValueError, match="colour"):
        foveate.spark.embedder(MODEL, colour="red")
    frame = spark.createDataFrame([(bytearray(b"x"),)], "picture binary")
    with pytest.raises(KeyError):
        foveate.spark.embed(frame, MODEL)
    with pytest.raises(Exception, match="there is no column 'content'; columns: picture"):
        frame.mapInArrow(foveate.spark.embedder(MODEL), "picture binary").collect()
    with pytest.raises(Exception, match=str(tmp_path)):
        foveate.spark.embed(frame, str(tmp_path), image="picture").collect()
