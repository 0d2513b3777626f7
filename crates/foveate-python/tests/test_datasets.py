"""Hugging Face datasets: ``map`` with an embedder, on decoded images, on bytes and on Arrow tables."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import MODEL, needs

needs("datasets")

import datasets

import foveate


@pytest.fixture(scope="module")
def embedder() -> foveate.Embedder:
    return foveate.Embedder(MODEL)


@pytest.fixture(scope="module")
def pictures(photos) -> datasets.Dataset:
    images = datasets.Features({"image": datasets.Image(), "name": datasets.Value("string")})
    rows = {"image": [*map(str, photos), None], "name": [*(photo.name for photo in photos), "none"]}
    return datasets.Dataset.from_dict(rows, features=images)


def rows(dataset: datasets.Dataset) -> list[bytes | None]:
    column = dataset.with_format("arrow")[:]["embedding"].to_pylist()
    vectors = (None if row is None or np.isnan(row).all() else np.array(row, np.float32) for row in column)
    return [None if vector is None else vector.tobytes() for vector in vectors]


def test_map_over_decoded_images(embedder, pictures, expected):
    mapped = pictures.map(embedder, batched=True, batch_size=10)
    assert mapped.column_names == ["image", "name", "embedding", "error"]
    assert rows(mapped) == [*expected, None], "Pillow's pixels are ours, and upright"


def test_map_over_encoded_images(embedder, pictures, expected):
    encoded = pictures.cast_column("image", datasets.Image(decode=False))
    assert rows(encoded.map(embedder, batched=True, remove_columns=["image"])) == [*expected, None]
    assert rows(encoded.map(embedder, batched=True, num_proc=2)) == [*expected, None]


def test_map_over_arrow_tables(embedder, pictures, expected):
    mapped = pictures.with_format("arrow").map(embedder, batched=True, batch_size=10)
    assert rows(mapped) == [*expected, None]
    dim = len(expected[0]) // 4
    assert mapped.features["embedding"].length == dim and mapped.column_names[-2:] == ["embedding", "error"]
    table = mapped.with_format("arrow")[:]
    assert table["embedding"].null_count == 1 and table["error"].null_count == table.num_rows


def test_streaming(embedder, pictures, expected):
    stream = pictures.cast_column("image", datasets.Image(decode=False)).to_iterable_dataset()
    mapped = list(stream.map(embedder, batched=True, batch_size=8, remove_columns=["image"]))
    assert [np.asarray(row["embedding"], np.float32).tobytes() for row in mapped[:-1]] == expected


def test_a_bad_image_after_the_first_batch(embedder, photos, contents, expected):
    images = [{"photo": {"bytes": content, "path": None}} for content in [*contents[:3], b"no image", None]]
    dataset = datasets.Dataset.from_list(images).cast_column("photo", datasets.Image(decode=False))
    mapped = dataset.map(embedder, batched=True, batch_size=2, writer_batch_size=2, fn_kwargs={"image": "photo"})
    assert rows(mapped) == [*expected[:3], None, None]
    assert [error and error.split(":")[0] for error in mapped["error"]] == [None, None, None, "decode", None]
    assert mapped.features["embedding"].length == embedder.dim
    # The first batch has no vector.
    assert rows(dataset.select([3, 4, 0]).map(embedder, batched=True, batch_size=2, fn_kwargs={"image": "photo"})) == [
        None,
        None,
        expected[0],
    ]
    with pytest.raises(KeyError, match="there is no column 'image'; columns: photo; pass fn_kwargs={'image': NAME}"):
        dataset.map(embedder, batched=True)


def test_map_without_batches_says_what_to_do(embedder, pictures):
    for dataset in (pictures, pictures.cast_column("image", datasets.Image(decode=False)), pictures.select([len(pictures) - 1])):
        with pytest.raises(TypeError, match="call map with batched=True"):
            dataset.map(embedder)
