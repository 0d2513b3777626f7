"""Instructions per pixel of JPEG decoders, counted by valgrind.

usage: instructions.py OUT.csv SET=PHOTOS…

SET is the name of a pattern of files. Each decoder decodes all of them once and three times; half of the difference is
what decoding costs, without the start of the program. valgrind has no AVX-512, so programs use AVX2. Pixels are those
of the whole photos, at each scale. The program is that of peers-rs/jpeg.
"""

import csv
import glob
import pathlib
import re
import subprocess
import sys

from PIL import Image

PROGRAM = pathlib.Path(__file__).parent / "peers-rs/jpeg/target/peers/decode"
DECODERS = ("exact", "turbojpeg", "libjpeg-turbo-rs", "zune", "image")
SCALED = ("exact", "turbojpeg", "libjpeg-turbo-rs")


def instructions(decoder, min_side, times, files):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", PROGRAM, decoder, min_side, times]
    run = subprocess.run([*map(str, command), *files], check=True, capture_output=True, text=True)
    return int(re.search(r"Collected : (\d+)", run.stderr)[1])


def main(out, *sets):
    with open(out, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["set", "photos", "min_side", "decoder", "instructions_per_pixel"])
        for name, _, pattern in (each.partition("=") for each in sets):
            files = sorted(glob.glob(pattern))
            pixels = sum(width * height for width, height in (Image.open(path).size for path in files))
            for min_side in (0, 256):
                for decoder in SCALED if min_side else DECODERS:
                    once, thrice = (instructions(decoder, min_side, times, files) for times in (1, 3))
                    writer.writerow([name, len(files), min_side, decoder, f"{(thrice - once) / 2 / pixels:.2f}"])
                    file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
