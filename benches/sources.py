#!/usr/bin/env python3
"""Photos to pixels from a folder, tar, zip and Parquet, beside Python's readers: sources.csv.

usage: sources.py FOVEATE PHOTOS OUT.csv

The photos (a pattern of JPEG files) are repeated under other names, and made thumbnails of 256 px. Everybody reads,
decodes exactly, resizes to a shorter side of 256 px and crops 224 x 224 pixels, with a worker for each core: foveate
with a stand-in for the forward that takes a microsecond per image (`foveate profile`, mode `threaded`), the others as
`peers.py read` says. foveate is measured before and after each of the others, and its row is of both. Everything lies
in the page cache. There is a tar for each worker, because WebDataset needs one.
"""

import csv
import glob
import io
import os
import pathlib
import statistics
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import pyarrow
import pyarrow.parquet
from PIL import Image

PEERS = pathlib.Path(__file__).parent / "peers.py"
WORKERS = len(os.sched_getaffinity(0))
MOST = {"photos": 800, "thumbnails": 1600}


def thumbnail(photo):
    image, small = Image.open(io.BytesIO(photo)).convert("RGB"), io.BytesIO()
    image.thumbnail((256, 256))
    image.save(small, "JPEG", quality=90)
    return small.getvalue()


def inputs(folder, photos):
    """Writes the photos in every way; returns a name and an argument for each."""
    plain = folder / "plain"
    plain.mkdir(parents=True)
    for name, photo in photos.items():
        (plain / name).write_bytes(photo)
    names = list(photos)
    for end, mode in (("tar", "w"), ("tar.gz", "w:gz")):
        for at in range(WORKERS):
            with tarfile.open(folder / f"photos-{at}.{end}", mode) as tar:
                for name in names[at::WORKERS]:
                    tar.add(plain / name, name)
    with zipfile.ZipFile(folder / "photos.zip", "w") as archive:
        for name in photos:
            archive.write(plain / name, name)
    table = pyarrow.table({"image": [{"bytes": photo, "path": name} for name, photo in photos.items()]})
    pyarrow.parquet.write_table(table, folder / "photos.parquet", row_group_size=100, compression="none")
    return {"folder": plain, **{end: folder / f"photos-*.{end}" for end in ("tar", "tar.gz")},
            **{end: folder / f"photos.{end}" for end in ("zip", "parquet")}}


def foveate(program, source, images, out):
    command = [program, "profile", source, "--as-given", "--stand-in", "0+0.001*n", "--model", "seeded:dinov2-small", "-q"]
    subprocess.run(list(map(str, [*command, "--images", images, "-o", out])), check=True, stdout=subprocess.DEVNULL)
    with open(out / "profile.csv", newline="") as file:
        row = next(row for row in csv.DictReader(file) if row["mode"] == "threaded")
    return float(row["images_per_second"]), row["foveate"]


def others(source):
    command = [sys.executable, PEERS, "read", source, WORKERS, "3"]
    run = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True, text=True)
    return list(csv.DictReader(run.stdout.splitlines()))


def main(program, pattern, out):
    originals = [pathlib.Path(path).read_bytes() for path in sorted(glob.glob(pattern))]
    sets = {"photos": originals, "thumbnails": [thumbnail(photo) for photo in originals]}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, photos in sets.items():
            repeated = {f"{at:05}.jpg": photos[at % len(photos)] for at in range(MOST[name])}
            each = sum(map(len, repeated.values())) // len(repeated)
            for kind, source in inputs(folder / name, repeated).items():
                shared = {"photos": name, "images": len(repeated), "bytes_per_image": each, "input": kind}
                before, version = foveate(program, source, len(repeated), folder)
                peers = others(source) if kind in ("folder", "tar", "parquet") else []
                rates = [before, foveate(program, source, len(repeated), folder)[0]]
                figures = {of: f"{how(rates):.1f}" for of, how in RATES.items()}
                ours = {"reader": "foveate", "version": version, "workers": WORKERS, "rounds": 2, "status": "ok"}
                rows += [{**shared, **row} for row in ({**ours, **figures}, *peers)]
    with open(out, "w", newline="") as file:
        table = csv.DictWriter(file, rows[0], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


RATES = {"images_per_second": statistics.median, "images_per_second_min": min, "images_per_second_max": max}

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) == 4 else __doc__)
