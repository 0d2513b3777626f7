"""A long job from tar shards, killed again and again: no image is lost, and what a million images cost.

usage: long_run.py FOVEATE PHOTOS MODEL IMAGES SECONDS OUT.csv [OPTION…]

`bench extrapolation` measures a sample of the photos. Then files are written into shards of 1000, the photos in turn,
each with a comment segment of its own, so that no two are the same bytes and nothing is computed once for several.
`embed` runs twice with the OPTIONs: on a fifth of IMAGES as it is, and on all with every fiftieth file cut, overwritten
or no image, and SIGKILL every SECONDS, repeated until it ends by itself.

It fails unless each file has exactly one outcome: a recorded failure if it is damaged, or else a vector with the bits
of every other copy's. OUT.csv gets a row for each run: time from the first start to the last end, processor time of all
processes.
"""

import csv
import glob
import io
import os
import pathlib
import platform
import resource
import subprocess
import sys
import tarfile
import tempfile
import time

import pyarrow.parquet

IN_A_SHARD = 1000
DAMAGES = ("cut", "overwritten", "no image")
COLUMNS = (
    "host cores model options images damaged kills wall_seconds cpu_seconds images_per_second core_hours_per_million "
    "vectors failures lost rows_twice copies_that_differ predicted_images_per_second predicted_low predicted_high within date"
).split()


def commented(photo, number):
    """The same photo with other bytes: a comment segment after SOI."""
    comment = str(number).encode()
    return photo[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + photo[2:]


def damaged(photo, kind):
    if kind == "cut":
        return photo[: len(photo) // 3]
    if kind == "overwritten":
        return photo[:2] + bytes(len(photo) - 2)
    return b"<html>404 Not Found</html>"


def write_shards(folder, photos, images, every):
    """Damages one of `every` files; returns their names."""
    bad = set()
    for first in range(0, images, IN_A_SHARD):
        with tarfile.open(folder / f"{first // IN_A_SHARD:05}.tar", "w") as shard:
            for number in range(first, min(first + IN_A_SHARD, images)):
                at = number % len(photos)
                name, content = f"{number:08}_{at:03}.jpg", commented(photos[at], number)
                if every and number % every == every - 1:
                    content = damaged(content, DAMAGES[number // every % len(DAMAGES)])
                    bad.add(name)
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                shard.addfile(entry, io.BytesIO(content))
    return bad


def extrapolated(foveate, photos, model, options, out):
    command = [foveate, "bench", "extrapolation", *photos, "--model", model, *options, "--as-given", "-o", out]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(out / "extrapolation.csv", newline="") as file:
        row = next(csv.DictReader(file))
    return [float(row[column]) for column in ("images_per_second", "low", "high")]


def embed(command, between_kills):
    """Runs until the command ends by itself; returns the number of kills."""
    kills = 0
    while True:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            if process.wait(timeout=between_kills):
                raise SystemExit(f"exit code {process.returncode}")
            return kills
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1


def outcomes(output, photos, images, bad):
    """Compares each file's outcome with what it must be."""
    table = pyarrow.parquet.read_table(output, columns=["id", "embedding"])
    names = [id.split("/")[-1] for id in table["id"].to_pylist()]
    vectors = table["embedding"].combine_chunks().flatten().to_numpy().reshape(len(names), -1)
    bits = {}
    differ = 0
    for name, vector in zip(names, vectors):
        at = name.split("_")[1]
        differ += bits.setdefault(at, vector.tobytes()) != vector.tobytes()
    with open(output / "_failures.csv", newline="") as file:
        failed = [row["id"].split("/")[-1] for row in csv.DictReader(file)]
    whole = {f"{number:08}_{number % photos:03}.jpg" for number in range(images)} - bad
    lost = len(whole - set(names)) + len(bad - set(failed)) + len(set(names) & set(failed))
    twice = len(names) - len(set(names)) + len(failed) - len(set(failed))
    return {"vectors": len(names), "failures": len(failed), "lost": lost, "rows_twice": twice,
            "copies_that_differ": differ}


def processor():
    with open("/proc/cpuinfo") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.machine()


def run(foveate, photos, model, options, images, every, between_kills):
    """The row of a run, without the prediction."""
    with tempfile.TemporaryDirectory() as temporary:
        shards, output = (pathlib.Path(temporary) / name for name in ("shards", "out"))
        shards.mkdir()
        bad = write_shards(shards, photos, images, every)
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        command = [foveate, "embed", *sorted(shards.iterdir()), "--model", model, *options, "-o", output]
        kills = embed(command, between_kills)
        wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        checked = outcomes(output, len(photos), images, bad)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "host": processor(), "cores": os.cpu_count(), "model": pathlib.Path(model).name, "options": " ".join(options),
        "images": images, "damaged": len(bad), "kills": kills, "wall_seconds": f"{wall:.1f}",
        "cpu_seconds": f"{cpu:.1f}", "images_per_second": f"{images / wall:.2f}",
        "core_hours_per_million": f"{os.cpu_count() * 1e6 * wall / images / 3600:.2f}", **checked,
        "date": time.strftime("%Y-%m-%d"),
    }


def main(foveate, photos, model, images, seconds, out, *options):
    files = sorted(map(pathlib.Path, glob.glob(photos)))
    contents = [path.read_bytes() for path in files]
    with tempfile.TemporaryDirectory() as temporary:
        middle, low, high = extrapolated(foveate, files, model, options, pathlib.Path(temporary))
    with open(out, "a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not file.tell():
            writer.writeheader()
        for count, every, between_kills in ((int(images) // 5, None, None), (int(images), 50, float(seconds))):
            row = run(foveate, contents, model, options, count, every, between_kills)
            row |= {"predicted_images_per_second": middle, "predicted_low": low, "predicted_high": high}
            row["within"] = "yes" if low <= float(row["images_per_second"]) <= high else "no"
            writer.writerow(row)
            file.flush()
            if row["lost"] or row["rows_twice"] or row["copies_that_differ"]:
                raise SystemExit(f"outcomes are wrong: {row}")


if __name__ == "__main__":
    main(*sys.argv[1:])
