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
from pictures import bmp, exif, gif_interlaced, jpeg_damaged, jpeg_with, picture, png, png_chunk, png_interlaced
from pictures import saved, webp_chunk, xmp

# Class name → its generator, the largest difference that is accepted, whether an error is accepted that says why a file
# is not read, and whether truncated files are accepted.
CLASSES = {}


def made(name, tolerance=0, refusable=False, lenient=False):
    def add(generate):
        CLASSES[name] = (generate, tolerance, refusable, lenient)
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


@made("jpeg: orientation in XMP behind EXIF without one")
def _(choose):
    block = choose.choice([b"", b"no TIFF structure", exif(choose)[:8], exif(choose)])
    segments = [b"Exif\0\0" + block, b"http://ns.adobe.com/xap/1.0/\0" + xmp(choose)]
    packed = b"".join(b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment for segment in segments)
    file = saved(picture(choose, "RGB"), "JPEG")
    return file[:2] + packed + file[2:]


@made("jpeg: EXIF orientation of unusual types")
def _(choose):
    block = exif(choose, odd=True)
    return saved(picture(choose, "RGB"), "JPEG", exif=b"Exif\0\0" + block)


# TIFF. `tiff.make` writes what Pillow cannot: tiles, planes, predictors, fill order, extra samples.


@made("tiff: LZW in tiles")
def _(choose):
    # Large tiles of few values have long codes, and codes that clear the table.
    kind, side = choose.choice([("rgb", 40), ("rgb", 40), ("gray", 150), ("palette4", 150)])
    return tiff.make(choose, kind, compression="lzw", tiled=True, side=side)


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
    # Pillow 13 swaps the bytes of compressed big-endian ones.
    return tiff.make(choose, choose.choice(["signed16", "signed32", "float32"]), white_is_zero=False)


@made("tiff: YCbCr, uncompressed")
def _(choose):
    return tiff.make(choose, "ycbcr", compression="raw")


@made("tiff: YCbCr, compressed")
def _(choose):
    return tiff.make(choose, "ycbcr", compression=choose.choice(["lzw", "deflate", "packbits"]))


@made("tiff: YCbCr, written by Pillow")
def _(choose):
    image = picture(choose, "RGB").convert("YCbCr")
    return saved(image, "TIFF", compression=choose.choice(["raw", "tiff_lzw", "tiff_adobe_deflate"]))


@made("tiff: JPEG", tolerance=3)
def _(choose):
    return saved(picture(choose, choose.choice(["L", "RGB", "CMYK"])), "TIFF", compression="jpeg")


@made("tiff: Zstandard")
def _(choose):
    return saved(picture(choose, choose.choice(["L", "RGB", "RGBA"])), "TIFF", compression="zstd")


@made("tiff: LZMA")
def _(choose):
    return tiff.make(choose, choose.choice(["gray", "rgb", "palette"]), compression="lzma")


@made("tiff: Group 4")
def _(choose):
    return saved(picture(choose, "1", choose.choice([40, 400])), "TIFF", compression="group4")


@made("tiff: Group 3")
def _(choose):
    # Bit 0: rows refer to those above; bit 2: marks end with a byte.
    options = choose.choice([0, 1, 4, 5])
    image = picture(choose, "1", choose.choice([40, 400]))
    return saved(image, "TIFF", compression="group3", tiffinfo={292: options})


@made("tiff: fax runs")
def _(choose):
    return saved(picture(choose, "1", choose.choice([40, 400])), "TIFF", compression="tiff_ccitt")


@made("tiff: CIELAB", refusable=True)
def _(choose):
    return tiff.make(choose, "lab")


@made("tiff: version in the other byte order")
def _(choose):
    file = tiff.make(choose, choose.choice(["gray", "rgb", "palette"]), compression="raw")
    return file[:2] + file[3:1:-1] + file[4:]


# Truncated files.


@made("png: without IEND")
def _(choose):
    file = png(choose)
    return file[: len(file) - choose.choice([12, 12, 8, 4, 1])]


@made("jpeg: without EOI", refusable=True)
def _(choose):
    file = saved(picture(choose, "RGB"), "JPEG", progressive=choose.random() < 0.5)
    # Without 0xFF, which could begin a marker.
    return file[:-2] + choose.randbytes(choose.choice([0, 1, 7, 64])).replace(b"\xff", b"")


@made("jpeg: without EOI, with other markers behind it", refusable=True)
def _(choose):
    file = saved(picture(choose, "RGB"), "JPEG", progressive=choose.random() < 0.5)
    return file[:-2] + choose.randbytes(choose.choice([1, 7, 64])) + bytes([0xFF, choose.randrange(256)])


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


@made("truncated tiff, accepted", refusable=True, lenient=True)
def _(choose):
    return cut(choose, tiff.make(choose, "rgb", compression="raw", tiled=False))


@made("truncated png, accepted", lenient=True)
def _(choose):
    image = picture(choose, choose.choice(["1", "L", "LA", "P", "RGB", "RGBA", "I;16"]), 64)
    file = png_interlaced(choose, image) if choose.random() < 0.3 else saved(image, "PNG")
    return cut(choose, file)


@made("truncated gif, accepted", lenient=True)
def _(choose):
    image = picture(choose, choose.choice(["L", "P"]), 64)
    file = saved(image, "GIF", interlace=choose.random() < 0.5, transparency=choose.choice([0, 1, 3]))
    return cut(choose, choose.choice([file, saved(image, "GIF")]))


@made("gif: without its end", refusable=True)
def _(choose):
    file = saved(picture(choose, choose.choice(["L", "P"])), "GIF")
    return file[: -choose.choice([1, 2, 3, 4])]


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
    flags, after = choose.choice([(0x10, b""), (0x18, webp_chunk(b"EXIF", exif(choose)))])
    header = bytes([flags, 0, 0, 0]) + (image.width - 1).to_bytes(3, "little") + (image.height - 1).to_bytes(3, "little")
    body = b"WEBP" + webp_chunk(b"VP8X", header) + file[12:] + after
    return webp_chunk(b"RIFF", body)


@made("webp: orientation, announced or not")
def _(choose):
    image = picture(choose, "RGB")
    lossy = saved(image, "WEBP", quality=80)[12:]
    head = bytes([choose.choice([0, 4, 8, 12]), 0, 0, 0])
    head += (image.width - 1).to_bytes(3, "little") + (image.height - 1).to_bytes(3, "little")
    extended = webp_chunk(b"VP8X", head) if choose.random() < 0.8 else b""
    chunks = [(b"EXIF", exif(choose)), (b"XMP ", xmp(choose))]
    behind = b"".join(webp_chunk(*chunk) for chunk in choose.choice([chunks, chunks[:1], chunks[1:]]))
    if choose.random() < 0.2:
        return webp_chunk(b"RIFF", b"WEBP" + extended + lossy) + behind
    return webp_chunk(b"RIFF", b"WEBP" + extended + lossy + behind)


@made("webp: animated")
def _(choose):
    mode = choose.choice(["RGB", "RGBA"])
    frames = [picture(choose, mode).resize((40, 30)) for _ in range(2)]
    return saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=choose.random() < 0.5)


@made("bmp: 16 bits")
def _(choose):
    return bmp(choose, 16, header=choose.choice([40, 56, 108, 124]))


@made("bmp: OS/2 headers")
def _(choose):
    return bmp(choose, choose.choice([1, 4, 8, 24]), header=choose.choice([12, 64]))


@made("jpeg: components with one id")
def _(choose):
    return jpeg_with(saved(picture(choose, "RGB"), "JPEG", subsampling=choose.choice([0, 2])), ids=choose.randrange(256))


@made("jpeg: coefficients beyond the usual range", tolerance=255)
def _(choose):
    file = saved(picture(choose, choose.choice(["L", "RGB"])), "JPEG", quality=choose.choice([50, 90]))
    return jpeg_with(file, coarser=choose.choice([2, 8, 30]))


@made("jpeg: damaged data", tolerance=255, refusable=True)
def _(choose):
    return jpeg_damaged(choose, saved(picture(choose, choose.choice(["L", "RGB"]), 100), "JPEG"))


@made("jpeg: damaged data between restart markers", tolerance=255, refusable=True)
def _(choose):
    image = picture(choose, choose.choice(["L", "RGB"]), 100)
    return jpeg_damaged(choose, saved(image, "JPEG", restart_marker_blocks=choose.randint(1, 5)))


@made("jpeg: damaged data, progressive", tolerance=255, refusable=True)
def _(choose):
    return jpeg_damaged(choose, saved(picture(choose, choose.choice(["L", "RGB"]), 100), "JPEG", progressive=True))


@made("jpeg: scans missing, progressive", tolerance=255)
def _(choose):
    file = saved(picture(choose, choose.choice(["L", "RGB"]), 100), "JPEG", progressive=True)
    return file[: choose.choice([at.start() for at in re.finditer(b"\xff\xda", file)][1:])] + file[-2:]


@made("jpeg: progressive, with restart markers")
def _(choose):
    return saved(picture(choose, "RGB"), "JPEG", progressive=True, restart_marker_blocks=choose.randint(1, 5))


@made("jpeg: several pictures (MPO)")
def _(choose):
    first, second = picture(choose, "RGB"), picture(choose, "RGB")
    return saved(first, "MPO", save_all=True, append_images=[second])


# AVIF, JPEG 2000.


@made("avif")
def _(choose):
    image, options = picture(choose, choose.choice(["L", "RGB", "RGB", "RGBA"])), {}
    options["subsampling"] = choose.choice(["4:2:0", "4:2:2", "4:4:4"] + ["4:0:0"] * (image.mode != "RGBA"))
    options["range"] = choose.choice(["full", "limited"])
    return saved(image, "AVIF", quality=choose.choice([50, 75, 100]), **options)


@made("avif: gray with alpha", tolerance=1)
def _(choose):
    image = picture(choose, "RGBA")
    return saved(image, "AVIF", subsampling="4:0:0", range=choose.choice(["full", "limited"]))


@made("avif: turned by its container")
def _(choose):
    return saved(picture(choose, "RGB"), "AVIF", exif=exif(choose))


@made("jpeg 2000")
def _(choose):
    image = picture(choose, choose.choice(["L", "LA", "RGB", "RGBA", "I;16"]))
    return saved(image, "JPEG2000", no_jp2=choose.random() < 0.3, tile_size=choose.choice([None, (16, 16)]))


@made("jpeg 2000: lossy", tolerance=1)
def _(choose):
    image = picture(choose, choose.choice(["L", "RGB", "RGBA"]))
    rate = {"quality_mode": "rates", "quality_layers": [choose.choice([2, 5, 20])]}
    return saved(image, "JPEG2000", irreversible=True, **rate)


# Simple formats.


@made("pnm")
def _(choose):
    image = picture(choose, choose.choice(["1", "L", "RGB", "I;16"]))
    return saved(image, "PPM")


@made("pnm: of other levels, or in text")
def _(choose):
    kind, most = choose.choice([2, 3, 5, 6]), choose.choice([1, 15, 100, 255, 256, 1023, 4095, 65535])
    width, height = choose.randint(1, 20), choose.randint(1, 20)
    samples = [choose.randint(0, most) for _ in range(width * height * (3 if kind in (3, 6) else 1))]
    header = f"P{kind}\n# levels\n{width} {height}\n{most}\n".encode()
    if kind < 4:
        return header + " ".join(map(str, samples)).encode() + b"\n"
    return header + b"".join(sample.to_bytes(1 + (most > 255), "big") for sample in samples)


@made("tga")
def _(choose):
    image = picture(choose, choose.choice(["L", "LA", "P", "RGB", "RGBA"]))
    return saved(image, "TGA", compression=choose.choice([None, "tga_rle"]), orientation=choose.choice([-1, 1]))


@made("tga: 16 bits, or from the right")
def _(choose):
    width, height, bits = choose.randint(1, 30), choose.randint(1, 30), choose.choice([16, 24])
    header = struct.pack("<BBBHHBHHHHBB", 3, 0, 2, 0, 0, 0, 0, 0, width, height, bits, choose.choice([0, 16, 32, 48]))
    return header + b"abc" + choose.randbytes(width * height * bits // 8)


@made("qoi")
def _(choose):
    return saved(picture(choose, choose.choice(["RGB", "RGBA"])), "QOI")


@made("ico")
def _(choose):
    image = picture(choose, choose.choice(["L", "RGB", "RGBA"])).resize((64, 64))
    sizes = choose.sample([(16, 16), (24, 24), (32, 32), (48, 48)], choose.randint(1, 3))
    return saved(image, "ICO", sizes=sizes, bitmap_format=choose.choice(["png", "bmp"]))


@made("pcx")
def _(choose):
    return saved(picture(choose, choose.choice(["1", "L", "P", "RGB"])), "PCX")


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
        lines.writerow(["class", "file", "tolerance", "refusable", "lenient", "width", "height"])
        for name, (generate, tolerance, refusable, lenient) in CLASSES.items():
            slug = "-".join(re.findall("[A-Za-z0-9]+", name))
            for number in range(args.files):
                file = generate(random.Random(f"{name} {args.seed} {number}"))
                path = f"{slug}-{number}.bin"
                (args.folder / path).write_bytes(file)
                image = pillow(file, lenient)
                size = image.size if image else (0, 0)
                lines.writerow([name, path, tolerance, int(refusable), int(lenient), *size])
                pixels.write(image.tobytes() if image else b"")


main()
