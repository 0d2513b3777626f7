#!/usr/bin/env python3
"""Measures decoders on four sets of photos, beside other libraries: decode.csv.

usage: decode.py PHOTOS SMALL FOLDER [SET…]

PHOTOS and SMALL are folders of JPEG files. The sets are the baseline files of PHOTOS with 0.7 to 1.4 megapixels, its
progressive files from 0.7 megapixels on, 64 files spread over those below SMALL, and six of the first set enlarged to
12 megapixels. They lie in FOLDER afterwards, for instructions.py, with a run of each set and decode.csv, all runs in one.
PROGRAM names another foveate than target/release/foveate; nothing else should run on the machine.
"""

import csv
import os
import pathlib
import subprocess
import sys

from PIL import Image

BENCHES = pathlib.Path(__file__).parent
PROGRAM = os.environ.get("PROGRAM", BENCHES.parent / "target/release/foveate")
MEASURED = "--model seeded:dinov2-small --as-given --samples 25 --seconds 0.8".split()


def sets(photos, small):
    sizes = {path: Image.open(path) for path in sorted(photos.glob("*.jpg"))}
    pixels = {path: image.width * image.height for path, image in sizes.items()}
    progressive = [path for path, image in sizes.items() if "progressive" in image.info and pixels[path] > 700_000]
    baseline = [path for path in sizes if path not in progressive and 700_000 < pixels[path] < 1_400_000]
    others = sorted(small.rglob("*.jpg"))
    return {
        "baseline-1mp": baseline,
        "progressive-1mp": progressive,
        "small": others[:: len(others) // 64][:64],
        "large": baseline[:: len(baseline) // 6][:6],
    }


def put(name, paths, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        if name == "large":
            image = Image.open(path).convert("RGB").resize((4000, 3000), Image.Resampling.BICUBIC)
            image.save(folder / path.name, quality=90)
        else:
            (folder / f"{path.parent.name}-{path.name}").write_bytes(path.read_bytes())


def main(photos, small, out, *chosen):
    out, rows = pathlib.Path(out), []
    for name, paths in sets(pathlib.Path(photos), pathlib.Path(small)).items():
        folder, run = out / "photos" / name, out / name
        if not folder.exists():
            put(name, paths, folder)
        if not chosen or name in chosen:
            command = [PROGRAM, "bench", "decoders", folder, *MEASURED, "--peers", BENCHES / "peers.py", "-o", run]
            subprocess.run(list(map(str, command)), check=True)
        if (run / "decoders.csv").exists():
            with open(run / "decoders.csv", newline="") as file:
                rows += [{"set": name, **row} for row in csv.DictReader(file)]
    with open(out / "decode.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) > 3 else __doc__)
