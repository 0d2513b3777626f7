"""A Python resizer for benches/resize.rs: `time PHOTOS CASE` and `check PHOTOS CASE FILE`.

usage: resize.py Pillow|OpenCV
PHOTOS has a line `WIDTH HEIGHT FILE` for each photo, the file with its RGB samples.
"""

import sys
import time

import numpy
from contest import contend, timed

SIDE, EDGE = 224, 256


def pillow():
    import PIL
    from PIL import Image

    def hf(image):
        scale = EDGE / min(image.size)
        width, height = (EDGE if side == min(image.size) else int(side * scale) for side in image.size)
        left, top = (width - SIDE) // 2, (height - SIDE) // 2
        return image.resize((width, height), Image.BICUBIC).crop((left, top, left + SIDE, top + SIDE))

    kinds = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC, "lanczos": Image.LANCZOS, "box": Image.BOX}
    cases = {name: lambda image, kind=kind: image.resize((SIDE, SIDE), kind) for name, kind in kinds.items()}
    return f"Pillow {PIL.__version__}", Image.fromarray, {"hf": hf, **cases}


def opencv():
    import cv2

    cv2.setNumThreads(1)
    kinds = {"squash": cv2.INTER_LINEAR, "area": cv2.INTER_AREA, "cubic": cv2.INTER_CUBIC}
    cases = {name: lambda image, kind=kind: cv2.resize(image, (SIDE, SIDE), interpolation=kind) for name, kind in kinds.items()}

    def hf(image):
        """The same recipe as programs with OpenCV implement it: the mean of areas, then the crop."""
        height, width = image.shape[:2]
        scale = EDGE / min(height, width)
        width, height = (EDGE if side == min(image.shape[:2]) else int(side * scale) for side in (width, height))
        left, top = (width - SIDE) // 2, (height - SIDE) // 2
        resized = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
        return numpy.ascontiguousarray(resized[top : top + SIDE, left : left + SIDE])

    return f"OpenCV {cv2.__version__}", lambda pixels: pixels, {"hf": hf, **cases}


def start():
    version, wrap, cases = {"Pillow": pillow, "OpenCV": opencv}[sys.argv[1]]()
    photos = {}

    def load(path):
        if path not in photos:
            lines = [line.split(" ", 2) for line in open(path).read().splitlines()]
            shaped = lambda w, h, file: numpy.fromfile(file, numpy.uint8).reshape(int(h), int(w), 3)
            photos[path] = [wrap(shaped(*line)) for line in lines]
        return photos[path]

    def answer(words):
        command, path, case, *rest = words
        if case not in cases:
            raise ValueError(f"it has no {case}")
        photos, resize = load(path), cases[case]
        if command == "time":
            return timed(time.thread_time, lambda: [resize(photo) for photo in photos])
        with open(rest[0], "wb") as out:
            for photo in photos:
                out.write(numpy.asarray(resize(photo)).tobytes())
        return (len(photos),)

    return version, answer


contend(start)
