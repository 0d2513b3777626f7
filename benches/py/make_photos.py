#!/usr/bin/env python3
"""Makes the photos that benches/decode.rs measures besides the originals: the same pictures as progressive files, and
as thumbnails of 256 pixels (Pillow 13; the same bytes on every run).

usage: make_photos.py OUT FILE…
"""

import pathlib
import sys

from PIL import Image


def main():
    out, files = pathlib.Path(sys.argv[1]), sys.argv[2:]
    for kind in ("progressive", "thumbnails"):
        (out / kind).mkdir(parents=True, exist_ok=True)
    for name in files:
        image = Image.open(name)
        # The file's own quantization and subsampling.
        image.save(out / "progressive" / pathlib.Path(name).name, quality="keep", progressive=True)
        image = image.convert("RGB")
        scale = 256 / min(image.size)
        size = tuple(round(side * scale) for side in image.size)
        image.resize(size, Image.BICUBIC).save(out / "thumbnails" / pathlib.Path(name).name, quality=75)


main()
