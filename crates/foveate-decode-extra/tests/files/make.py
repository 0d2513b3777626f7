#!/usr/bin/env python3
"""Makes the files beside it, and the pixels of each: NAME.rgb, as Pillow reads NAME.

Needs Pillow 13, pillow-heif, pillow-jxl-plugin and imagecodecs, of which CI has the first alone: so the files are committed."""

import io
import struct

import imagecodecs
import numpy
import pillow_heif
import pillow_jxl  # noqa: F401, registers the format
from PIL import Image


def written(name, file):
    open(name, "wb").write(file)
    open(name + ".rgb", "wb").write(Image.open(io.BytesIO(file)).convert("RGB").tobytes())


def saved(image, format, **options):
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def box(kind, *parts):
    payload = b"".join(parts)
    return struct.pack(">I", len(payload) + 8) + kind + payload


def versioned(kind, *parts):
    return box(kind, bytes(4), *parts)


def grid(tiles, rows, columns, size):
    """An AVIF whose primary image is a grid of tiles, the items 2 and up. The grid itself is among the tables."""
    coded = []
    for tile in tiles:
        file = saved(tile, "AVIF", quality=80, subsampling="4:2:0")
        coded.append(file[file.index(b"mdat") + 4 :])
        av1c = file[file.index(b"av1C") - 4 :][:12]
        nclx = file[file.index(b"nclx") - 8 :][:19]
    kinds = [b"grid"] + [b"av01"] * len(tiles)
    infos = [box(b"infe", b"\2\0\0\0", struct.pack(">HH", 1 + at, 0), kind, b"\0") for at, kind in enumerate(kinds)]
    sizes = [versioned(b"ispe", struct.pack(">II", *side)) for side in (size, tiles[0].size)]
    links = [(1, [1, 3])] + [(2 + at, [2, 3, 4]) for at in range(len(tiles))]
    ipma = b"".join(struct.pack(">HB", item, len(places)) + bytes(places) for item, places in links)
    descriptor = bytes([0, 0, rows - 1, columns - 1]) + struct.pack(">HH", *size)

    def meta(start):
        items = struct.pack(">HHHHII", 1, 1, 0, 1, 0, len(descriptor))
        for at, data in enumerate(coded):
            items += struct.pack(">HHHHII", 2 + at, 0, 0, 1, start, len(data))
            start += len(data)
        return versioned(
            b"meta",
            versioned(b"hdlr", bytes(4), b"pict", bytes(13)),
            versioned(b"pitm", struct.pack(">H", 1)),
            box(b"iloc", b"\1\0\0\0", b"\x44\0", struct.pack(">H", len(kinds)), items),
            versioned(b"iinf", struct.pack(">H", len(kinds)), *infos),
            versioned(b"iref", box(b"dimg", struct.pack(">HH", 1, len(tiles)), *[struct.pack(">H", 2 + at) for at in range(len(tiles))])),
            box(b"iprp", box(b"ipco", sizes[0], sizes[1], nclx, av1c), versioned(b"ipma", struct.pack(">I", len(links)), ipma)),
            box(b"idat", descriptor),
        )

    head = box(b"ftyp", b"avif", bytes(4), b"avifmif1miaf")
    start = len(head) + len(meta(0)) + 8
    return head + meta(start) + box(b"mdat", *coded)


rows, columns = numpy.mgrid[:64, :128]
waves = numpy.stack([columns * 2, rows * 2, 128 + 100 * numpy.sin(columns / 9 + rows / 5)], -1).clip(0, 255).astype(numpy.uint8)
small = waves[:37, :41]
ten = (small.astype(numpy.uint16) << 2) + (small % 4)

written("ten-bits.avif", imagecodecs.avif_encode(ten, level=80, bitspersample=10, pixelformat="420"))
tiles = [Image.fromarray(numpy.ascontiguousarray(waves[:64, at : at + 64])) for at in (0, 64)]
written("grid.avif", grid(tiles, 1, 2, (78, 52)))
pillow_heif.register_heif_opener()
turned = Image.Exif()
turned[0x112] = 6
written("turned.heic", saved(Image.fromarray(small), "HEIF", quality=90, exif=turned.tobytes()))
written("lossy.jxl", saved(Image.fromarray(small), "JXL", quality=90))
written("gray.jxl", saved(Image.fromarray(small).convert("LA"), "JXL", lossless=True))
