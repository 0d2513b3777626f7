#!/usr/bin/env python3
"""Makes the inputs of benches/sources: the same photos as a folder, as tar shards (plain, gzip), as zip and as Parquet.

usage: make_sources.py OUT SET IMAGES FILE…

SET is `large` (the files as they are) or `small` (thumbnails with a shorter side of 256 pixels). The files repeat, under
other names, up to IMAGES. OUT/SET is a bucket of a server whose root is OUT. What is there already is kept.
"""

import io
import os
import pathlib
import sys
import tarfile
import zipfile

import pyarrow
import pyarrow.parquet
from PIL import Image

SHARDS = 4
ROW_GROUP = 100


def thumbnail(data):
    image = Image.open(io.BytesIO(data)).convert("RGB")
    scale = 256 / min(image.size)
    image = image.resize([round(side * scale) for side in image.size], Image.BICUBIC)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=75)
    return out.getvalue()


def write_tar(path, photos, mode):
    with tarfile.open(path, mode, format=tarfile.GNU_FORMAT, **({"compresslevel": 1} if mode == "w:gz" else {})) as tar:
        for name, data in photos:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def write_zip(path, photos):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in photos:
            archive.writestr(name, data)


def write_parquet(path, photos):
    """As Hugging Face's `datasets` writes images."""
    rows = [{"bytes": data, "path": name} for name, data in photos]
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    table = pyarrow.table({"image": pyarrow.array(rows, kind)})
    pyarrow.parquet.write_table(table, path, row_group_size=ROW_GROUP)


def main():
    out, images = pathlib.Path(sys.argv[1], sys.argv[2]), int(sys.argv[3])
    if (out / "photos.parquet").exists():  # the last to be written
        return
    files = [pathlib.Path(name).read_bytes() for name in sys.argv[4:]]
    if sys.argv[2] == "small":
        files = [thumbnail(data) for data in files]
    photos = [(f"{number:06}.jpg", files[number % len(files)]) for number in range(images)]
    for folder in ("folder", "shards", "shards-gz"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for name, data in photos:
        (out / "folder" / name).write_bytes(data)
    size = -(-images // SHARDS)
    for number in range(SHARDS):
        shard = photos[number * size : (number + 1) * size]
        write_tar(out / "shards" / f"{number}.tar", shard, "w")
        write_tar(out / "shards-gz" / f"{number}.tar.gz", shard, "w:gz")
    write_zip(out / "photos.zip", photos)
    write_parquet(out / "photos.parquet", photos)
    forget(out)


def forget(folder):
    """Makes the system drop its pages of what was just written. Pages that reading brings are larger, and cheaper to
    read again, so otherwise a measurement would depend on how a program had written the file."""
    os.sync()
    for path in folder.rglob("*.*"):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


main()
