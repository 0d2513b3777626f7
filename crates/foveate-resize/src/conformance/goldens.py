#!/usr/bin/env python3
"""Writes goldens.bin beside this file: what Pillow and OpenCV make of small noise images, for goldens.rs.

    pip install Pillow==13.0.0 numpy opencv-python-headless==5.0.0.93
    python3 goldens.py
"""

from math import ceil
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

OPENCV = {"linear": cv2.INTER_LINEAR, "area": cv2.INTER_AREA, "cubic": cv2.INTER_CUBIC}
PILLOW = {"box": Image.BOX, "bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC, "lanczos": Image.LANCZOS}

# (width, height), filter, then either ("stretch", width, height) or ("crop", edge, width, height). The order is that of
# CASES in goldens.rs.
CASES = []
for name in PILLOW:
    CASES += [
        ((61, 47), name, ("stretch", 24, 20)),
        ((5, 4), name, ("stretch", 16, 16)),
        ((40, 20), name, ("stretch", 20, 20)),  # one axis unchanged
        ((9, 100), name, ("stretch", 12, 16)),  # vertical pass first
        ((67, 41), name, ("crop", 32, 24, 24)),
        ((13, 90), name, ("crop", 32, 24, 24)),  # vertical pass first, cropped
        ((30, 45), name, ("crop", 16, 20, 20)),  # padded
    ]
for name in OPENCV:
    CASES += [
        ((61, 47), name, ("stretch", 24, 20)),
        ((5, 4), name, ("stretch", 16, 16)),
        ((40, 20), name, ("stretch", 20, 20)),
        ((40, 40), name, ("stretch", 20, 20)),  # linear and area: the mean of 2 x 2
        ((1, 7), name, ("stretch", 5, 5)),
        ((9, 100), name, ("stretch", 12, 16)),
    ]


def noise(width, height):
    """xorshift32, seeded by the size."""
    state = (width * 1009 + height) & 0xFFFFFFFF
    out = np.empty(width * height * 3, np.uint8)
    for i in range(out.size):
        state ^= (state << 13) & 0xFFFFFFFF
        state ^= state >> 17
        state ^= (state << 5) & 0xFFFFFFFF
        out[i] = (state >> 11) & 0xFF
    return out.reshape(height, width, 3)


def resize(image, name, width, height):
    if name in OPENCV:
        return cv2.resize(image, (width, height), interpolation=OPENCV[name])
    return np.asarray(Image.fromarray(image).resize((width, height), PILLOW[name]))


def shortest_edge(width, height, edge):
    """transformers' get_resize_output_image_size."""
    short, long = min(width, height), max(width, height)
    new_long = int(edge * long / short)
    return (edge, new_long) if width <= height else (new_long, edge)


def center_crop(image, width, height):
    """transformers' center_crop."""
    h, w = image.shape[:2]
    top, left = (h - height) // 2, (w - width) // 2
    full = np.zeros((max(height, h), max(width, w), 3), np.uint8)
    y, x = ceil((full.shape[0] - h) / 2), ceil((full.shape[1] - w) / 2)
    full[y : y + h, x : x + w] = image
    return full[top + y : top + y + height, left + x : left + x + width]


def main():
    blocks = []
    for (width, height), name, geometry in CASES:
        image = noise(width, height)
        if geometry[0] == "stretch":
            out = resize(image, name, *geometry[1:])
        else:
            _, edge, crop_width, crop_height = geometry
            out = center_crop(resize(image, name, *shortest_edge(width, height, edge)), crop_width, crop_height)
        blocks.append(np.ascontiguousarray(out).tobytes())
    data = b"".join(blocks)
    (Path(__file__).parent / "goldens.bin").write_bytes(data)
    print(f"{len(blocks)} goldens, {len(data)} bytes")


main()
