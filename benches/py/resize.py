#!/usr/bin/env python3
"""What Pillow and OpenCV need for what benches/resize.rs measures: CPU ms per image, one thread, median of rounds.

    pip install Pillow==13.0.0 numpy opencv-python-headless
"""

import time

import cv2
import numpy as np
from PIL import Image

IMAGES, ROUNDS = 40, 5


def measure(work):
    work()
    rounds = []
    for _ in range(ROUNDS):
        before = time.thread_time()
        for _ in range(IMAGES):
            work()
        rounds.append((time.thread_time() - before) * 1e3 / IMAGES)
    return sorted(rounds)[ROUNDS // 2]


def main():
    cv2.setNumThreads(1)
    pixels = (np.random.default_rng(1).integers(0, 32, (1000, 1000, 3)) + np.arange(1000)[:, None, None] * 3 // 14).astype(np.uint8)
    image = Image.fromarray(pixels)
    size = (224, 224)
    for name, work in {
        "Pillow hf (bicubic to 256, crop)": lambda: image.resize((256, 256), Image.BICUBIC).crop((16, 16, 240, 240)),
        "OpenCV squash (INTER_LINEAR)": lambda: cv2.resize(pixels, size, interpolation=cv2.INTER_LINEAR),
        "Pillow bilinear": lambda: image.resize(size, Image.BILINEAR),
        "Pillow bicubic": lambda: image.resize(size, Image.BICUBIC),
        "Pillow lanczos": lambda: image.resize(size, Image.LANCZOS),
        "Pillow box": lambda: image.resize(size, Image.BOX),
    }.items():
        print(f"{name:<34} {measure(work):.3f}")
    print(f"Pillow {Image.__version__}, OpenCV {cv2.__version__}")


main()
