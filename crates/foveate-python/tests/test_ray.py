"""Ray Data: vectors are the command line's, whatever reads the images and whichever actor dies."""

from __future__ import annotations

import io
import os
import signal
import tarfile
from pathlib import Path

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import MODEL, PHOTOS, needs

needs("ray.data")

import ray

import foveate.ray


@pytest.fixture(scope="module", autouse=True)
def cluster():
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def vectors(rows: list[dict], key: str) -> dict[str, bytes | None]:
    """The rows' vectors as bytes, by their key; no key comes twice."""
    found = {row[key]: row["embedding"] for row in rows}
    assert len(found) == len(rows)
    return {key: None if vector is None else np.array(vector, np.float32).tobytes() for key, vector in found.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, photos) -> Path:
    """The photos and a bad one."""
    folder = tmp_path_factory.mktemp("folder")
    for photo in photos:
        (folder / photo.name).symlink_to(photo)
    (folder / "bad.jpg").write_bytes(b"no image")
    return folder


def test_binary_files_and_what_is_no_image(folder, photos, expected):
    files = ray.data.read_binary_files(str(folder), include_paths=True)
    rows = foveate.ray.embed(files, MODEL, image="bytes", num_cpus=1).take_all()
    assert all(set(row) == {"path", "embedding", "error"} for row in rows)
    by_path = vectors(rows, "path")
    assert [by_path.pop(str(folder / photo.name)) for photo in photos] == expected
    assert by_path == {str(folder / "bad.jpg"): None}
    reasons = [row["error"] for row in rows if row["error"] is not None]
    assert len(reasons) == 1 and reasons[0].startswith("decode: ")


def test_map_batches_with_the_class(photos, contents, expected):
    dataset = ray.data.from_items([{"n": n, "image": content} for n, content in enumerate(contents)])
    options = {"model": MODEL, "keep_image": True, "pooling": "cls"}
    mapped = dataset.map_batches(
        foveate.ray.Embedder, batch_format="pyarrow", batch_size=10, concurrency=2, fn_constructor_kwargs=options
    )
    rows = mapped.take_all()
    assert vectors(rows, "n") == dict(enumerate(expected))
    assert all(row["image"] == contents[row["n"]] for row in rows)


def test_paths_and_structs_in_parquet(photos, contents, expected, tmp_path):
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    structs = pa.array([{"bytes": content, "path": None} for content in contents], kind)
    photos_table = pa.table({"file": list(map(str, photos)), "image": structs})
    pq.write_table(photos_table, tmp_path / "photos.parquet", row_group_size=7)
    table = ray.data.read_parquet(str(tmp_path / "photos.parquet"))
    files = dict(zip(map(str, photos), expected))
    assert vectors(foveate.ray.embed(table, MODEL).take_all(), "file") == files
    assert vectors(foveate.ray.embed(table, MODEL, image="file").take_all(), "file") == files, "text is kept"


def test_webdataset_shards(photos, contents, expected, tmp_path):
    needs("webdataset")
    for shard in range(2):
        with tarfile.open(tmp_path / f"{shard}.tar", "w") as tar:
            for photo, content in list(zip(photos, contents))[shard::2]:
                member = tarfile.TarInfo(f"{photo.stem}.jpg")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    shards = ray.data.read_webdataset(str(tmp_path), decoder=None)
    rows = foveate.ray.embed(shards, MODEL, image="jpg").take_all()
    assert vectors(rows, "__key__") == {photo.stem: vector for photo, vector in zip(photos, expected)}


def test_images_that_ray_decoded(photos, expected):
    """Ray reads with Pillow, whose pixels are ours, and does not turn them upright."""
    images = ray.data.read_images([str(photo) for photo in photos], mode="RGB", include_paths=True)
    by_path = vectors(foveate.ray.embed(images, MODEL).take_all(), "path")
    upright = {str(photo): vector for photo, vector in zip(photos, expected) if is_upright(photo)}
    assert len(by_path) == len(photos) > len(upright) > 20
    assert {path: by_path[path] for path in upright} == upright
    same = ray.data.read_images([str(photo) for photo in photos], size=(256, 256), mode="RGB", include_paths=True)
    rows = foveate.ray.embed(same, MODEL).take_all()
    pixels = [np.asarray(PIL.Image.open(photo).convert("RGB").resize((256, 256), 2)) for photo in photos]
    direct = foveate.Embedder(MODEL).encode(pixels)
    assert vectors(rows, "path") == {str(photo): row.tobytes() for photo, row in zip(photos, direct)}


def is_upright(photo: Path) -> bool:
    return PIL.Image.open(photo).getexif().get(0x0112, 1) == 1


class Killed(foveate.ray.Embedder):
    """Its actor dies once, in the middle of its third call."""

    def __init__(self, *, mark: str, **options: object) -> None:
        super().__init__(**options)
        self.mark, self.calls = Path(mark), 0

    def __call__(self, batch: pa.Table) -> pa.Table:
        self.calls += 1
        result = super().__call__(batch)
        if self.calls == 3 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def test_a_killed_actor_loses_no_row_and_doubles_none(contents, expected, tmp_path):
    count, mark = 200, tmp_path / "killed"
    images = [{"n": n, "image": contents[n % len(contents)]} for n in range(count)]
    dataset = ray.data.from_items(images, override_num_blocks=20)
    options = {"model": MODEL, "mark": str(mark)}
    mapped = dataset.map_batches(
        Killed, batch_format="pyarrow", batch_size=5, concurrency=2, fn_constructor_kwargs=options
    )
    rows = mapped.take_all()
    assert mark.exists(), "an actor was killed"
    assert vectors(rows, "n") == {n: expected[n % len(expected)] for n in range(count)}


def test_an_actor_uses_the_cpus_that_ray_assigned(contents):
    class Shown(foveate.ray.Embedder):
        def __call__(self, batch: pa.Table) -> pa.Table:
            return pa.table({"options": [repr(self._embedder)]})

    def options(**given: object) -> str:
        dataset = ray.data.from_items([{"image": contents[0]}])
        mapped = dataset.map_batches(
            Shown, batch_format="pyarrow", concurrency=1, num_cpus=2, fn_constructor_kwargs={"model": MODEL, **given}
        )
        return mapped.take_all()[0]["options"]

    assert "threads=2," in options() and "workers=1," in options()
    assert "threads=1," in options(threads=1)


def test_wrong_columns_and_models_end_the_job(contents, tmp_path):
    dataset = ray.data.from_items([{"picture": contents[0]}])
    with pytest.raises(Exception, match="there is no column 'image'; columns: picture"):
        foveate.ray.embed(dataset, MODEL).take_all()
    with pytest.raises(Exception, match=str(tmp_path)):
        foveate.ray.embed(dataset, str(tmp_path), image="picture").take_all()
    bad = ray.data.from_items([{"image": b"no image"}])
    with pytest.raises(Exception, match="cannot decode row 0"):
        foveate.ray.embed(bad, MODEL, on_error="raise").take_all()


def test_the_driver_refuses_unknown_models_and_options():
    for model, options in [("dinov2-smal", {}), (MODEL, {"colour": "red"})]:
        with pytest.raises(ValueError, match="dinov2-smal|colour"):
            foveate.ray.embed(ray.data.range(1), model, **options)
