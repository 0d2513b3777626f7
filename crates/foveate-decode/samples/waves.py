#!/usr/bin/env python3
"""Writes waves_420.jpg and waves_444_progressive.jpg, with Pillow 13: long waves in all channels, on sides that no power
of two divides, for tests of decoding at reduced scale."""

import math
import pathlib

from PIL import Image

WIDTH, HEIGHT = 157, 101


def sample(x, y, channel):
    across, down = 2 * math.pi * x / (56 + 9 * channel), 2 * math.pi * y / (73 - 8 * channel)
    return round(127.5 + 90 * math.sin(across + channel) * math.cos(down))


def main():
    picture = Image.new("RGB", (WIDTH, HEIGHT))
    picture.putdata([tuple(sample(x, y, c) for c in range(3)) for y in range(HEIGHT) for x in range(WIDTH)])
    folder = pathlib.Path(__file__).parent
    picture.save(folder / "waves_420.jpg", quality=92, subsampling=2)
    picture.save(folder / "waves_444_progressive.jpg", quality=92, subsampling=0, progressive=True)


main()
