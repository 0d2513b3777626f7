"""A Python decoder for benches/decode.rs: `time LIST MIN_SIDE` and `check LIST MIN_SIDE IMAGES FILE`.

usage: decode.py Pillow|Pillow-asarray|OpenCV|PyTurboJPEG|simplejpeg
A MIN_SIDE of 0 requests the native size. Any other permits the smallest of 1/1, 1/2, 1/4, 1/8 whose shorter side is at
least as long. PyTurboJPEG finds libturbojpeg (3.0 or newer) by the variable TURBOJPEG_LIBRARY.
"""

import io
import os
import sys
import time

from contest import contend, timed


def divisor(size, min_side):
    """The largest of 8, 4, 2 and 1 that leaves the shorter side long enough, as libjpeg rounds."""
    fits = [n for n in (8, 4, 2) if min_side and -(-min(size) // n) >= min_side]
    return fits[0] if fits else 1


def pillow(as_array):
    import numpy
    import PIL
    from PIL import Image

    def decode(data, by):
        image = Image.open(io.BytesIO(data))
        if by > 1:
            image.draft("RGB", (image.width // by, image.height // by))
        image.load()
        image = image if image.mode == "RGB" else image.convert("RGB")
        return numpy.asarray(image) if as_array else image

    from PIL import features

    version = f"Pillow {PIL.__version__}, libjpeg-turbo {features.version_feature('libjpeg_turbo')}"
    return version, decode, numpy.asarray


def opencv():
    import cv2
    import numpy

    cv2.setNumThreads(1)
    flags = {1: cv2.IMREAD_COLOR, 2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4, 8: cv2.IMREAD_REDUCED_COLOR_8}

    def decode(data, by):
        return cv2.imdecode(numpy.frombuffer(data, numpy.uint8), flags[by] | cv2.IMREAD_IGNORE_ORIENTATION)

    return f"OpenCV {cv2.__version__} (BGR)", decode, lambda image: image[..., ::-1]


def pyturbojpeg():
    import importlib.metadata

    import turbojpeg

    library = turbojpeg.TurboJPEG(os.environ.get("TURBOJPEG_LIBRARY"))

    def decode(data, by):
        return library.decode(data, pixel_format=turbojpeg.TJPF_RGB, scaling_factor=(1, by))

    return f"PyTurboJPEG {importlib.metadata.version('PyTurboJPEG')}", decode, lambda image: image


def simplejpeg():
    import simplejpeg

    def decode(data, by):
        if by == 1:
            return simplejpeg.decode_jpeg(data, "RGB")
        height, width = (-(-side // by) for side in simplejpeg.decode_jpeg_header(data)[:2])
        return simplejpeg.decode_jpeg(data, "RGB", min_height=height, min_width=width)

    return f"simplejpeg {simplejpeg.__version__}", decode, lambda image: image


LIBRARIES = {
    "Pillow": lambda: pillow(False),
    "Pillow-asarray": lambda: pillow(True),
    "OpenCV": opencv,
    "PyTurboJPEG": pyturbojpeg,
    "simplejpeg": simplejpeg,
}


def start():
    from PIL import Image

    version, decode, rgb = LIBRARIES[sys.argv[1]]()
    photos = {}

    def load(path, min_side):
        """Bytes, and what to divide by: not a part of the work."""
        if (path, min_side) not in photos:
            files = [open(line, "rb").read() for line in open(path).read().splitlines()]
            photos[path, min_side] = [(data, divisor(Image.open(io.BytesIO(data)).size, min_side)) for data in files]
        return photos[path, min_side]

    def all_of(photos):
        for data, by in photos:
            decode(data, by)

    def answer(words):
        command, path, min_side, *rest = words
        photos = load(path, int(min_side))
        if command == "time":
            return timed(time.thread_time, lambda: all_of(photos))
        images, file = int(rest[0]), rest[1]
        with open(file, "wb") as out:
            for data, by in photos[:images]:
                out.write(rgb(decode(data, by)).tobytes())
        return (images,)

    return version, answer


contend(start)
