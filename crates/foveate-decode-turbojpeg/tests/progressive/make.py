#!/usr/bin/env python3
"""Writes the files of this folder with libjpeg-turbo's cjpeg: one picture, progressive, with the scan scripts and
sampling factors that encoders use and some that they should not. Deterministic: run it again and nothing changes."""

import pathlib
import random
import subprocess

WIDTH, HEIGHT = 53, 38

# What stands before the colon are the components (0 is luma), behind it Ss-Se and, for successive approximation, Ah, Al.
SCRIPTS = {
    "usual": None,
    # Whole bands at once.
    "bands": "0,1,2: 0-0, 0, 0; 0: 1-5, 0, 0; 1: 1-63, 0, 0; 2: 1-63, 0, 0; 0: 6-63, 0, 0;",
    # As mozjpeg: DC of luma and chroma apart, two bands, one bit later.
    "bands_and_bits": "0: 0-0, 0, 0; 1,2: 0-0, 0, 0; 0: 1-8, 0, 1; 0: 9-63, 0, 1; 1: 1-63, 0, 0; 2: 1-63, 0, 0;"
    "0: 1-63, 1, 0;",
    # Bit by bit.
    "bits": "0,1,2: 0-0, 0, 2; 0: 1-63, 0, 3; 1: 1-63, 0, 3; 2: 1-63, 0, 3; 0,1,2: 0-0, 2, 1; 0: 1-63, 3, 2; 1: 1-63, 3, 2;"
    "2: 1-63, 3, 2; 0: 1-63, 2, 1; 1: 1-63, 2, 1; 2: 1-63, 2, 1; 0,1,2: 0-0, 1, 0; 0: 1-63, 1, 0; 1: 1-63, 1, 0;"
    "2: 1-63, 1, 0;",
    # One component after the other: luma's AC before there is any chroma.
    "components": "0: 0-0, 0, 0; 0: 1-63, 0, 0; 1: 0-0, 0, 0; 1: 1-63, 0, 0; 2: 0-0, 0, 0; 2: 1-63, 0, 0;",
    # Never finished, where libjpeg smooths: no AC, a bit missing, a low coefficient missing, chroma's AC missing.
    "unfinished_ac": "0,1,2: 0-0, 0, 0; 1: 1-63, 0, 0; 2: 1-63, 0, 0;",
    "unfinished_bit": "0,1,2: 0-0, 0, 0; 0: 1-63, 0, 1; 1: 1-63, 0, 0; 2: 1-63, 0, 0;",
    "unfinished_low": "0,1,2: 0-0, 0, 0; 0: 1-4, 0, 0; 0: 6-63, 0, 0; 1: 1-63, 0, 0; 2: 1-63, 0, 0;",
    "unfinished_chroma": "0,1,2: 0-0, 0, 0; 0: 1-63, 0, 0; 1: 1-63, 0, 0;",
    # Never finished, where libjpeg does not smooth.
    "unfinished_high": "0,1,2: 0-0, 0, 0; 0: 1-20, 0, 0; 1: 1-63, 0, 0; 2: 1-63, 0, 0;",
}
SAMPLINGS = ["1x1", "2x1", "1x2", "2x2", "4x1", "4x2", "1x1,2x2,1x1", "2x2,2x1,1x2"]


def pixel(x, y, noise):
    gradient = [x * 255 // WIDTH, y * 255 // HEIGHT, (x * y) % 256]
    return bytes(max(0, min(255, value + noise.randrange(-40, 41))) for value in gradient)


def main():
    folder = pathlib.Path(__file__).parent
    noise = random.Random(8)
    pixels = b"".join(pixel(x, y, noise) for y in range(HEIGHT) for x in range(WIDTH))
    ppm = b"P6\n%d %d\n255\n" % (WIDTH, HEIGHT) + pixels
    script_file = folder / "script.txt"

    def write(name, script, *options):
        scans = ["-progressive"]
        if script:
            script_file.write_text(script)
            scans = ["-scans", str(script_file)]
        command = ["cjpeg", *scans, *options]
        (folder / f"{name}.jpg").write_bytes(subprocess.run(command, input=ppm, capture_output=True, check=True).stdout)

    for name, script in SCRIPTS.items():
        for sampling in ["2x2", "1x1"]:
            write(f"{name}_{sampling}", script, "-sample", sampling, "-quality", "60")
    for sampling in SAMPLINGS:
        write(f"sampled_{sampling.replace(',', '_')}", None, "-sample", sampling, "-quality", "75")
    write("gray", None, "-grayscale", "-quality", "80")
    write("rgb", None, "-rgb", "-quality", "80")
    write("restarts", None, "-restart", "2B", "-quality", "70")
    # Luma and chroma share one quantization table; entries of 16 bits.
    write("shared_table", None, "-sample", "2x2", "-qslots", "0,0,0", "-quality", "50")
    write("wide_table", None, "-quality", "2")
    script_file.unlink()


main()
