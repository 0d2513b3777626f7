#!/usr/bin/env python3
"""Generates image files of every class that decoders are known to get wrong, and Pillow's pixels of each.

    make.py FOLDER [--seed N] [--files N]

writes the files, `cases.csv` and `pixels.rgb`, which holds Pillow's RGB pixels of all cases, one after the other. A
case that Pillow refuses has the size 0x0. The committed files are `make.py files --seed 1 --files 2`. Needs Pillow 13;
the same seed gives the same files."""

import argparse
import csv
import io
import pathlib
import random
import re
import struct
import zlib

from PIL import Image, ImageFile, ImageOps

import tiff
from pictures import bmp, exif, gif_interlaced, picture, png, png_chunk, saved, xmp

# Class name → its generator, the largest difference that is accepted (-1: Pillow's pixels or a refusal), and whether
# truncated files are accepted.
CLASSES = {}


def made(name, tolerance=0, lenient=False):
    def add(generate):
        CLASSES[name] = (generate, tolerance, lenient)
        return generate

    return add


# Ordinary files, so that no repair spoils them.


@made("jpeg")
def _(choose):
    progressive, quality = choose.random() < 0.5, choose.choice([50, 75, 95])
    return saved(picture(choose, choose.choice(["L", "RGB", "CMYK"])), "JPEG", progressive=progressive, quality=quality)


@made("png")
def _(choose):
    return saved(picture(choose, choose.choice(["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])), "PNG")


@made("webp")
def _(choose):
    return saved(picture(choose, choose.choice(["RGB", "RGBA"])), "WEBP", lossless=choose.random() < 0.5)


@made("gif")
def _(choose):
    return saved(picture(choose, choose.choice(["1", "L", "P"])), "GIF", interlace=False)


@made("bmp")
def _(choose):
    return saved(picture(choose, choose.choice(["1", "L", "P", "RGB", "RGBA"])), "BMP")


@made("tiff")
def _(choose):
    mode = choose.choice(["1", "L", "RGB", "RGBA", "I;16"])
    return saved(picture(choose, mode), "TIFF", compression=choose.choice(["raw", "tiff_lzw", "tiff_adobe_deflate"]))


# Orientation.


@made("png: orientation in a raw profile")
def _(choose):
    block = exif(choose)
    text = f"\nexif\n{len(block):8}\n".encode()
    text += b"".join(block.hex()[at : at + 72].encode() + b"\n" for at in range(0, 2 * len(block), 72))
    name = b"Raw profile type exif\0"
    chunk = choose.choice([png_chunk(b"tEXt", name + text), png_chunk(b"zTXt", name + b"\0" + zlib.compress(text))])
    return png(choose, **{choose.choice(["before", "after"]): chunk})


@made("png: orientation in XMP")
def _(choose):
    compressed = choose.random() < 0.7
    text = zlib.compress(xmp(choose)) if compressed else xmp(choose)
    chunk = png_chunk(b"iTXt", b"XML:com.adobe.xmp\0" + bytes([compressed]) + b"\0\0\0" + text)
    return png(choose, **{choose.choice(["before", "after"]): chunk})


@made("jpeg: EXIF orientation of unusual types")
def _(choose):
    block = exif(choose, odd=True)
    return saved(picture(choose, "RGB"), "JPEG", exif=b"Exif\0\0" + block)


# TIFF. `tiff.make` writes what Pillow cannot: tiles, planes, predictors, fill order, extra samples.


@made("tiff: LZW in tiles")
def _(choose):
    return tiff.make(choose, "rgb", compression="lzw", tiled=True)


@made("tiff: unspecified extra samples")
def _(choose):
    return tiff.make(choose, "rgb", extra=[0] * choose.choice([1, 1, 2, 3]))


@made("tiff: associated alpha")
def _(choose):
    return tiff.make(choose, "rgb", extra=choose.choice([[1], [1], [1, 0]]))


@made("tiff: associated alpha of 16 bits")
def _(choose):
    return tiff.make(choose, "rgb16", extra=[1])


@made("tiff: unassociated alpha")
def _(choose):
    return tiff.make(choose, choose.choice(["rgb", "rgb16"]), extra=[2])


@made("tiff: fill order 2")
def _(choose):
    kind = choose.choice(["gray1", "gray2", "gray4", "gray", "rgb", "palette"])
    return tiff.make(choose, kind, fill=2, compression=choose.choice(["raw", "packbits", "lzw", "deflate"]))


@made("tiff: CMYK")
def _(choose):
    return tiff.make(choose, choose.choice(["cmyk", "cmyk", "cmyk16"]), extra=choose.choice([[], [], [0]]))


@made("tiff: one plane for each sample")
def _(choose):
    return tiff.make(choose, choose.choice(["rgb", "cmyk"]), planar=True, extra=choose.choice([[], [0]]))


@made("tiff: palette")
def _(choose):
    return tiff.make(choose, choose.choice(["palette", "palette", "palette1", "palette2", "palette4"]))


@made("tiff: gray with alpha")
def _(choose):
    return tiff.make(choose, "gray", extra=[choose.choice([0, 2])], white_is_zero=False)


@made("tiff: gray")
def _(choose):
    return tiff.make(choose, choose.choice(["gray1", "gray2", "gray4", "gray"]))


@made("tiff: 16 bits")
def _(choose):
    return tiff.make(choose, choose.choice(["gray16", "rgb16"]), white_is_zero=False)


@made("tiff: signed and float")
def _(choose):
    # Uncompressed: Pillow 13 swaps the bytes of compressed big-endian ones.
    return tiff.make(choose, choose.choice(["signed16", "signed32", "float32"]), compression="raw", white_is_zero=False)


@made("tiff: YCbCr, uncompressed", tolerance=1)
def _(choose):
    return tiff.make(choose, "ycbcr", compression="raw")


@made("tiff: YCbCr, compressed")
def _(choose):
    return tiff.make(choose, "ycbcr", compression=choose.choice(["lzw", "deflate", "packbits"]))


@made("tiff: JPEG", tolerance=3)
def _(choose):
    return saved(picture(choose, choose.choice(["L", "RGB", "CMYK"])), "TIFF", compression="jpeg")


@made("tiff: Zstandard")
def _(choose):
    return saved(picture(choose, choose.choice(["L", "RGB", "RGBA"])), "TIFF", compression="zstd")


@made("tiff: LZMA", tolerance=-1)
def _(choose):
    return tiff.make(choose, "rgb", compression="lzma")


@made("tiff: Group 4")
def _(choose):
    return saved(picture(choose, "1"), "TIFF", compression="group4")


@made("tiff: Group 3", tolerance=-1)
def _(choose):
    return saved(picture(choose, "1"), "TIFF", compression=choose.choice(["group3", "tiff_ccitt"]))


@made("tiff: CIELAB", tolerance=-1)
def _(choose):
    return tiff.make(choose, "lab")


# Truncated files.


@made("png: without IEND")
def _(choose):
    file = png(choose)
    return file[: len(file) - choose.choice([12, 12, 8, 4, 1])]


@made("jpeg: without EOI", tolerance=-1)
def _(choose):
    file = saved(picture(choose, "RGB"), "JPEG", progressive=choose.random() < 0.5)
    # Without 0xFF, which could begin a marker.
    return file[:-2] + choose.randbytes(choose.choice([0, 1, 7, 64])).replace(b"\xff", b"")


@made("jpeg: without EOI, accepted", lenient=True)
def _(choose):
    file = saved(picture(choose, "RGB"), "JPEG", progressive=choose.random() < 0.5)
    # Without 0xFF, which could begin a marker.
    return file[:-2] + choose.randbytes(choose.choice([0, 1, 7, 64])).replace(b"\xff", b"")


def cut(choose, file):
    return file[: choose.randrange(len(file) // 3, len(file) - 1)]


@made("truncated jpeg, accepted", lenient=True)
def _(choose):
    return cut(choose, saved(picture(choose, "RGB", 64), "JPEG"))


@made("truncated bmp, accepted", lenient=True)
def _(choose):
    file = saved(picture(choose, choose.choice(["L", "RGB", "P"]), 64), "BMP")
    return file[: choose.randrange(struct.unpack_from("<I", file, 10)[0], len(file))]


@made("truncated tiff, accepted", tolerance=-1, lenient=True)
def _(choose):
    return cut(choose, tiff.make(choose, "rgb", compression="raw", tiled=False))


# GIF, WebP, BMP.


@made("gif: interlaced")
def _(choose):
    return gif_interlaced(choose, beyond=False)


@made("gif: index beyond the palette")
def _(choose):
    return gif_interlaced(choose, beyond=True)


@made("webp: alpha flag without alpha")
def _(choose):
    image = picture(choose, "RGB")
    file = saved(image, "WEBP", quality=80)
    header = bytes([0x10, 0, 0, 0]) + struct.pack("<I", image.width - 1)[:3] + struct.pack("<I", image.height - 1)[:3]
    body = b"WEBPVP8X" + struct.pack("<I", len(header)) + header + file[12:]
    return b"RIFF" + struct.pack("<I", len(body)) + body


@made("bmp: 16 bits")
def _(choose):
    return bmp(choose, 16, header=choose.choice([40, 56, 108, 124]))


@made("bmp: OS/2 headers")
def _(choose):
    return bmp(choose, choose.choice([1, 4, 8, 24]), header=choose.choice([12, 64]))


@made("jpeg: progressive, with restart markers")
def _(choose):
    return saved(picture(choose, "RGB"), "JPEG", progressive=True, restart_marker_blocks=choose.randint(1, 5))


@made("jpeg: several pictures (MPO)")
def _(choose):
    first, second = picture(choose, "RGB"), picture(choose, "RGB")
    return saved(first, "MPO", save_all=True, append_images=[second])


@made("avif", tolerance=-1)
def _(choose):
    return saved(picture(choose, "RGB"), "AVIF", quality=choose.choice([50, 75, 100]))


@made("jpeg 2000", tolerance=-1)
def _(choose):
    return saved(picture(choose, "RGB"), "JPEG2000")


def pillow(file, lenient):
    """Pillow's upright RGB pixels, or None if it refuses the file."""
    ImageFile.LOAD_TRUNCATED_IMAGES = lenient
    try:
        with Image.open(io.BytesIO(file)) as image:
            return ImageOps.exif_transpose(image).convert("RGB")
    except (OSError, ValueError, SyntaxError, KeyError, TypeError, EOFError, struct.error):
        return None
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", type=int, default=2, help="files of each class")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    with open(args.folder / "cases.csv", "w", newline="") as table, open(args.folder / "pixels.rgb", "wb") as pixels:
        lines = csv.writer(table, lineterminator="\n")
        lines.writerow(["class", "file", "tolerance", "lenient", "width", "height"])
        for name, (generate, tolerance, lenient) in CLASSES.items():
            slug = "-".join(re.findall("[A-Za-z0-9]+", name))
            for number in range(args.files):
                file = generate(random.Random(f"{name} {args.seed} {number}"))
                path = f"{slug}-{number}.bin"
                (args.folder / path).write_bytes(file)
                image = pillow(file, lenient)
                size = image.size if image else (0, 0)
                lines.writerow([name, path, tolerance, int(lenient), *size])
                pixels.write(image.tobytes() if image else b"")


main()
