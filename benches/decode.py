#!/usr/bin/env python3
"""Measures decoders on sets of photos, beside other libraries: decode.csv.

usage: decode.py PHOTOS SMALL FOLDER [SET…]

PHOTOS and SMALL are folders of JPEG files. The sets are the baseline files of PHOTOS with 0.7 to 1.4 megapixels, its
progressive files from 0.7 megapixels on, 64 files spread over those below SMALL, six of the first set enlarged to 12
megapixels, and 24 of it as PNG, as PNG of a product (on white; a third each with a palette and with alpha), as WebP of
quality 80, and as WebP without loss. They lie in FOLDER afterwards, for instructions.py, with a run of each set and
decode.csv, all runs in one.
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
    some = baseline[:: len(baseline) // 24][:24]
    return {
        "baseline-1mp": baseline,
        "progressive-1mp": progressive,
        "small": others[:: len(others) // 64][:64],
        "large": baseline[:: len(baseline) // 6][:6],
        "png": some,
        "png-product": some,
        "webp": some,
        "webp-lossless": some,
    }


def product(image, number):
    """The photo smaller, on white: with a palette, with alpha, or in RGB."""
    white = Image.new("RGB", image.size, "white")
    small = image.resize((image.width * 3 // 5, image.height * 3 // 5))
    at = (image.width // 5, image.height // 5)
    white.paste(small, at)
    if number % 3 == 0:
        return white.quantize(256)
    if number % 3 == 1:
        alpha = Image.new("L", image.size, 0)
        alpha.paste(255, (*at, at[0] + small.width, at[1] + small.height))
        white.putalpha(alpha)
    return white


def put(name, paths, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(paths):
        if name in ("baseline-1mp", "progressive-1mp", "small"):
            (folder / f"{path.parent.name}-{path.name}").write_bytes(path.read_bytes())
            continue
        image = Image.open(path).convert("RGB")
        to = folder / path.stem
        if name == "large":
            image = image.resize((4000, 3000), Image.Resampling.BICUBIC)
            image.save(to.with_suffix(".jpg"), quality=90)
        elif name == "png":
            image.save(to.with_suffix(".png"))
        elif name == "png-product":
            product(image, number).save(to.with_suffix(".png"))
        else:
            image.save(to.with_suffix(".webp"), quality=80, lossless=name == "webp-lossless")


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
