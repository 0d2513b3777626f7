#!/usr/bin/env python3
"""Writes the files of this folder, with libjpeg-turbo's cjpeg: small pictures with every kind of sampling factors, in
sizes around the edges of units, coded in all ways. hashes.csv holds the SHA-256 of what djpeg -pnm makes of them
(libjpeg-turbo 2.1.5), reduced.csv that of djpeg -scale, and ../three_eighths.csv that of the golden photos at 3/8.
Deterministic: run it again and nothing changes."""

import hashlib
import pathlib
import random
import subprocess

SAMPLINGS = [
    "1x1", "2x1", "2x2", "1x2", "4x1", "1x4", "4x2", "2x4", "3x1", "1x3", "3x2", "2x2,2x1,1x2", "2x2,1x2,2x1",
    "4x1,2x1,1x1", "1x1,2x2,1x1", "1x1,2x1,1x2", "2x2,1x1,2x2", "1x4,1x2,1x1", "3x1,1x1,3x1",
    "2x1,2x1,2x1",
]  # fmt: skip
SIZES = [(1, 1), (2, 3), (3, 2), (4, 5), (5, 17), (6, 9), (7, 7), (8, 8), (9, 6), (15, 16), (16, 15), (17, 4), (33, 18)]
CODINGS = [[], ["-progressive"], ["-restart", "1B"], ["-progressive", "-restart", "1"], ["-optimize"], ["-scans"]]


def main():
    folder = pathlib.Path(__file__).parent
    script = folder / "scans.txt"
    script.write_text("0;\n1,2;\n")
    choose = random.Random(2)
    lines = ["file,djpeg_sha256"]
    reduced = ["file,eighths,djpeg_sha256"]
    for number in range(66):
        width, height = SIZES[number % len(SIZES)]
        coding = [*CODINGS[number % len(CODINGS)]]
        if coding == ["-scans"]:
            coding.append(str(script))
        colours = {20: ["-grayscale"], 41: ["-rgb"]}.get(number, ["-sample", SAMPLINGS[number % len(SAMPLINGS)]])
        pixels = bytes(choose.randrange(256) for _ in range(width * height * 3))
        ppm = b"P6\n%d %d\n255\n" % (width, height) + pixels
        quality = ["-quality", str(choose.choice([30, 75, 98]))]
        jpeg = subprocess.run(["cjpeg", *quality, *colours, *coding], input=ppm, capture_output=True, check=True).stdout
        name = f"{number:02}_{width}x{height}.jpg"
        (folder / name).write_bytes(jpeg)
        lines.append(f"{name},{sha256(jpeg, 8)}")
        reduced.extend(f"{name},{eighths},{sha256(jpeg, eighths)}" for eighths in range(1, 5))
    script.unlink()
    (folder / "hashes.csv").write_text("\n".join(lines) + "\n")
    (folder / "reduced.csv").write_text("\n".join(reduced) + "\n")
    # djpeg does not convert CMYK as Pillow does.
    photos = sorted((folder / "../../../../tests/fixtures/goldens/photos").resolve().glob("*.jpg"))
    photos = [f"{photo.name},{sha256(photo.read_bytes(), 3)}" for photo in photos if "cmyk" not in photo.name]
    (folder.parent / "three_eighths.csv").write_text("\n".join(["file,djpeg_sha256", *photos]) + "\n")


def sha256(jpeg, eighths):
    command = ["djpeg", "-scale", f"{eighths}/8", "-pnm"]
    return hashlib.sha256(subprocess.run(command, input=jpeg, capture_output=True, check=True).stdout).hexdigest()


main()
