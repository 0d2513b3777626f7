"""Vectors of lists equal the command line's, bit for bit, and each image has its own outcome."""

from __future__ import annotations

import gc
import io
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import PIL.Image
import polars as pl
import pyarrow as pa
import pytest

import foveate
from conftest import MODEL


@pytest.fixture(scope="module")
def embedder() -> foveate.Embedder:
    return foveate.Embedder(MODEL)


def rows(embedded: foveate.Embedded | np.ndarray) -> list[bytes]:
    vectors = embedded.vectors if isinstance(embedded, foveate.Embedded) else embedded
    return [row.tobytes() for row in vectors]


def test_paths_and_bytes_give_the_command_lines_vectors(embedder, photos, contents, expected):
    assert rows(embedder.embed(photos)) == expected
    assert rows(embedder.embed([str(photo) for photo in photos])) == expected
    assert rows(embedder.embed(contents)) == expected
    assert rows(embedder.embed([bytearray(content) for content in contents])) == expected
    assert rows(embedder.encode(memoryview(content) for content in contents)) == expected
    structs = [{"bytes": contents[0], "path": "a"}, {"bytes": None, "path": str(photos[1])}]
    assert rows(embedder.embed(structs)) == expected[:2]
    mapped = embedder({"image": [*contents[:2], None]})
    assert rows(np.array(mapped["embedding"][:2], np.float32)) == expected[:2] and mapped["error"] == [None] * 3


def test_one_by_one_is_the_same(embedder, contents, expected):
    assert [embedder.encode([content])[0].tobytes() for content in contents[:8]] == expected[:8]


def test_pil_images_and_arrays_skip_the_decoder_alone(embedder, photos, expected):
    images = [PIL.Image.open(photo) for photo in photos]
    assert rows(embedder.embed(images)) == expected, "Pillow's pixels are libjpeg-turbo's, as ours are"
    arrays = [np.asarray(image.convert("RGB")) for image in images]
    upright = [at for at, image in enumerate(images) if image.getexif().get(0x0112, 1) == 1]
    assert len(upright) < len(images), "one photo is stored turned"
    vectors = rows(embedder.embed(arrays))
    assert [vectors[at] for at in upright] == [expected[at] for at in upright]


def test_arrays_of_any_layout(embedder):
    rgb = np.random.default_rng(0).integers(0, 256, (97, 61, 3), dtype=np.uint8)
    alpha = np.concatenate([rgb, np.full((97, 61, 1), 7, np.uint8)], axis=2)
    mirrored = np.ascontiguousarray(rgb[:, ::-1])
    first, *others = rows(embedder.embed([rgb, alpha, np.asfortranarray(rgb), mirrored[:, ::-1]]))
    assert others == [first] * 3
    gray = rgb[:, :, 0]
    plain, threefold = rows(embedder.embed([gray, np.dstack([gray] * 3)]))
    assert plain == threefold != first


def test_one_image_is_one_row(embedder, photos, contents, expected):
    photo, content = photos[0], contents[0]
    image = PIL.Image.open(photo)
    buffer = io.BytesIO(content)
    buffer.seek(0, io.SEEK_END)
    one = [photo, str(photo), buffer, photo.as_uri(), f"file:{photo}", content, bytearray(content), memoryview(content), image, {"bytes": content, "path": None}]
    assert [rows(embedder.embed(image)) for image in one] == [expected[:1]] * len(one)
    pixels = np.asarray(image.convert("RGB"))
    assert rows(embedder.embed(pixels)) == rows(embedder.embed([pixels])) == expected[:1]
    gray = pixels[:, :, 0]
    assert rows(embedder.embed(gray)) == rows(embedder.embed([gray])) == rows(embedder.embed([gray[:, :, None]]))
    assert rows(embedder.embed(gray[:, :, None])) == rows(embedder.embed(gray))
    assert rows(embedder.embed(np.stack([pixels, pixels]))) == expected[:1] * 2
    assert rows(embedder.embed(np.array(list(map(str, photos[:2]))))) == expected[:2]


def test_what_is_neither_one_image_nor_several_is_refused(embedder, photos):
    table = pa.table({"image": [str(photos[0])]})
    with open(photos[0], "rb") as file:
        assert rows(embedder.embed(file)) == rows(embedder.embed([file, io.BytesIO(file.read())]))[:1]
    for wrong in [None, 3, {"image": ["a"]}, table, pl.DataFrame({"image": ["a"]}), np.zeros((), np.uint8)]:
        with pytest.raises(TypeError, match="; (pass|call)"):
            embedder.embed(wrong)
    # Channels first, or several gray images.
    for shape in [(3, 8, 8), (5, 8, 8), (2, 3, 8, 8), (1, 2, 8, 8, 3)]:
        with pytest.raises(TypeError, match=r"shape \[.*\]; pass .* \[h, w, 3\] or \[n, h, w, 3\]"):
            embedder.embed(np.zeros(shape, np.uint8))
    with pytest.raises(TypeError, match="batched=True"):
        embedder({"image": PIL.Image.new("RGB", (8, 8))})


def test_vectors_and_errors_are_plain_objects(embedder, contents):
    embedded = embedder.embed([contents[0], b"no image", None])
    assert type(embedded.vectors) is np.ndarray and type(embedded.vectors.mean()) is np.float32
    vectors, errors = pickle.loads(pickle.dumps(embedded))
    assert rows(vectors) == rows(embedded)
    assert [error and (error.item, error.stage) for error in errors] == [None, ("image 1", "decode"), None]
    assert rows(embedder.encode([contents[0]])) == rows(vectors[:1])


def test_pandas_missing_values_are_rows_without_an_error(embedder, photos, expected):
    pd = pytest.importorskip("pandas")
    files = pd.Series([str(photos[0]), None, float("nan"), pd.NA, pd.NaT], dtype=object)
    vectors, errors = embedder.embed(files)
    assert rows(vectors[:1]) == expected[:1] and np.isnan(vectors[1:]).all() and errors == [None] * 5
    assert embedder.embed(files[:3].astype("string")).errors == [None] * 3


def test_file_addresses_are_paths(embedder, photos, expected, tmp_path):
    odd = tmp_path / "a b%20c.jpg"
    odd.write_bytes(photos[0].read_bytes())
    given = [odd.as_uri(), f"file:{odd}", f"file://{odd}", f"file://localhost{odd}", "file:///missing.jpg", "file://host/a.jpg"]
    vectors, errors = embedder.embed(given)
    assert rows(vectors[:4]) == expected[:1] * 4
    assert [error and error.item for error in errors] == [None] * 4 + given[4:]
    batch = pa.record_batch(embedder.embed_arrow(pa.array(given)))
    assert rows(np.array(batch["embedding"].to_pylist()[:4], np.float32)) == expected[:1] * 4


def test_images_that_cannot_be_taken_are_rows_with_an_error(embedder, contents, expected):
    cut = PIL.Image.open(io.BytesIO(contents[0][:3000]))
    text = io.StringIO("text")
    wrong = [3, text, cut, np.zeros((4, 4, 3), np.float32), np.zeros((4, 4, 2), np.uint8), np.zeros((4, 4, 3, 1), np.uint8)]
    vectors, errors = embedder.embed([contents[0], *wrong, contents[1]])
    assert (vectors[0].tobytes(), vectors[-1].tobytes()) == (expected[0], expected[1])
    assert np.isnan(vectors[1:-1]).all()
    assert [error and (error.item, error.stage) for error in errors] == [
        None,
        *((f"image {at}", "decode") for at in range(1, 7)),
        None,
    ]
    for error, says in zip(errors[1:], ["int is no image", "binary mode", "truncated", "float32", "(4, 4, 2)", "(4, 4, 3, 1)"]):
        assert says in error.reason
    raising = foveate.Embedder(MODEL, on_error="raise")
    for image in wrong:
        with pytest.raises(foveate.ItemError, match="cannot decode image 1: "):
            raising.embed([contents[0], image])
    mapped = embedder({"image": [contents[0], cut, None]})
    assert rows(np.array(mapped["embedding"][:1], np.float32)) == expected[:1]
    assert mapped["embedding"][1:] == [None, None]
    assert mapped["error"][0] is mapped["error"][2] is None and "truncated" in mapped["error"][1]


def test_bad_images_are_rows_with_an_error(embedder, photos, contents, expected, tmp_path):
    empty = tmp_path / "empty.jpg"
    empty.touch()
    given = [contents[0], b"no image", None, "missing.jpg", empty, tmp_path, contents[0][:500], photos[1], "s3:/x"]
    vectors, errors = embedder.embed([*given, np.zeros((0, 4, 3), np.uint8)])
    assert vectors.shape == (10, embedder.dim) and vectors.dtype == np.float32
    there = ~np.isnan(vectors).all(axis=1)
    assert there.tolist() == [True, False, False, False, False, False, False, True, False, False]
    assert (vectors[0].tobytes(), vectors[7].tobytes()) == (expected[0], expected[1])
    found = [error and (error.item, error.stage) for error in errors]
    assert found == [
        None,
        ("image 1", "decode"),
        None,
        ("missing.jpg", "read"),
        (str(empty), "decode"),
        (str(tmp_path), "read"),
        ("image 6", "decode"),
        None,
        ("s3:/x", "read"),
        ("image 9", "decode"),
    ]
    assert all(error.reason and str(error).startswith("cannot ") for error in errors if error)


def test_raise_raises_the_first(contents):
    embedder = foveate.Embedder(MODEL, on_error="raise")
    with pytest.raises(foveate.ItemError) as raised:
        embedder.embed([contents[0], b"no image", "missing.jpg"])
    error = raised.value
    assert (error.item, error.stage) == ("image 1", "decode") and isinstance(error, foveate.FoveateError)
    assert not np.isnan(embedder.encode([contents[0]])).any(), "it goes on"


def test_nothing_is_no_rows(embedder):
    vectors, errors = embedder.embed([])
    assert vectors.shape == (0, embedder.dim) and errors == []
    vectors, errors = embedder.embed([None, None])
    assert np.isnan(vectors).all() and errors == [None, None]


def test_vectors_may_be_written(embedder, contents):
    vectors, _ = embedder.embed(contents[:2])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert vectors.flags.c_contiguous and vectors.flags.writeable


def test_options_are_the_command_lines(by_command, photos, contents):
    embedder = foveate.Embedder(MODEL, preprocess="squash", pooling="mean", normalize="l2", threads=1, batch=3)
    options = ["--preprocess=squash", "--pooling=mean", "--normalize=l2"]
    expected = by_command(*options)
    assert rows(embedder.embed(contents)) == [expected[str(photo)] for photo in photos]
    for wrong in [{"dtype": "f64"}, {"colour": "red"}, {"batch": 0}, {"on_error": "ignore"}]:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            foveate.Embedder(MODEL, **wrong)


def test_a_model_that_is_missing_is_an_error(tmp_path):
    embedder = foveate.Embedder(str(tmp_path))
    for _ in range(2):
        with pytest.raises(foveate.FoveateError, match=str(tmp_path)):
            embedder.embed([b"x"])
    with pytest.raises(foveate.FoveateError, match="cuda:7"):
        foveate.Embedder(MODEL, device="cuda:7").embed([b"x"])


def test_threads_share_an_embedder(embedder, contents, expected):
    other = foveate.Embedder(MODEL, batch=2)
    with ThreadPoolExecutor(8) as threads:
        calls = [threads.submit((embedder, other)[n % 2].embed, contents) for n in range(16)]
        assert all(rows(call.result()) == expected for call in calls)


def resident() -> int:
    """Bytes of this process in memory."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def test_memory_does_not_grow_over_200_calls(embedder, contents):
    def call() -> None:
        embedder.embed(contents[:6])
        embedder.embed([b"no image", PIL.Image.new("RGB", (640, 480))])

    for _ in range(40):
        call()
    gc.collect()
    before = resident()
    for _ in range(200):
        call()
    gc.collect()
    # A leak of one small photo for each call would be more.
    assert resident() - before < 4 << 20
