#!/usr/bin/env python3
"""How much an image costs that was embedded before: in the same run, in a run with the cache, or in the output.

usage: reuse.py FOVEATE PHOTOS [ROUNDS] > reuse.csv

The cases take turns, each run is a process of its own, and every vector is compared with that of a run without reuse.
Each photo has a JPEG comment of its own, so that none is another's copy. `seconds` is the median of the rounds, with the
start of the process and the loading of the model. Needs pyarrow.
"""

import csv
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import pyarrow.parquet

PHOTOS, NEW, MANY = 160, 16, 100_000
MODEL = ["--model", "seeded:dinov2-small"]


def commented(photo, number):
    """The JPEG with a comment after its first marker."""
    text = b"photo %d" % number
    return photo[:2] + b"\xff\xfe" + (len(text) + 2).to_bytes(2, "big") + text + photo[2:]


def folder(path, contents):
    path.mkdir()
    for number, content in enumerate(contents):
        (path / f"{number:06}.jpg").write_bytes(content)
    return path


def embed(foveate, photos, output, *options):
    """The summary of a run, and its seconds."""
    command = [foveate, "embed", photos, "-o", output, "--json", *MODEL, *options]
    start = time.monotonic()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout), time.monotonic() - start


def vectors(output):
    table = pyarrow.parquet.read_table(output, columns=["id", "embedding"])
    rows = numpy.stack(table["embedding"].to_numpy())
    return dict(zip((pathlib.Path(id).name for id in table["id"].to_pylist()), rows))


def main():
    foveate, photos, rounds = sys.argv[1], pathlib.Path(sys.argv[2]), int((sys.argv[3:] or [5])[0])
    pictures = [path.read_bytes() for path in sorted(photos.glob("*.jpg"))]
    contents = [commented(pictures[number % len(pictures)], number) for number in range(PHOTOS)]
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        once = folder(place / "once", contents)
        twice = folder(place / "twice", [contents[number // 2] for number in range(PHOTOS)])
        old = folder(place / "old", contents[:-NEW])
        full, most, base = place / "full", place / "most", place / "base.parquet"
        off = ("--recent-memory", "off")
        expected = {}
        for collection in once, twice:
            output = collection.with_suffix(".parquet")
            embed(foveate, collection, output, *off)
            expected[collection] = vectors(output)
        embed(foveate, once, place / "y.parquet", "--cache", full)
        embed(foveate, old, place / "z.parquet", "--cache", most)
        # The update finds its inputs where the output's were.
        moving = folder(place / "moving", contents[:-NEW])
        embed(foveate, moving, base)
        for number in range(PHOTOS - NEW, PHOTOS):
            (moving / f"{number:06}.jpg").write_bytes(contents[number])

        def case(photos, *options, cache=None, output=None):
            target = place / "out.parquet"
            target.unlink(missing_ok=True)
            for path in place.glob("*out.parquet*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            for path in place.glob("*base.*") if output else ():
                shutil.copy(path, place / path.name.replace("base.", "out.", 1))
            shutil.rmtree(place / "cache", ignore_errors=True)
            if cache and cache.exists():
                shutil.copytree(cache, place / "cache")
            summary, seconds = embed(foveate, photos, target, *options, *(("--cache", place / "cache") if cache else ()))
            found = vectors(target)
            assert len(found) == PHOTOS
            want = expected[twice if photos == twice else once]
            assert all(numpy.array_equal(found[name], want[name]) for name in want)
            return summary, seconds

        cases = {
            "every photo once; no reuse": lambda: case(once, *off),
            "every photo once": lambda: case(once),
            "every photo once; empty cache": lambda: case(once, cache=place / "none"),
            "every photo in the cache": lambda: case(once, cache=full),
            "9 of 10 photos in the cache": lambda: case(once, cache=most),
            "9 of 10 photos in the output; --update": lambda: case(moving, "--update", output=True),
            "every photo twice; no reuse": lambda: case(twice, *off),
            "every photo twice": lambda: case(twice),
        }
        taken = {name: [] for name in cases}
        for turn in range(rounds):
            for name in list(cases)[:: 1 if turn % 2 == 0 else -1]:
                taken[name].append(cases[name]())
        rows = [(name, PHOTOS, *runs) for name, runs in ((name, unzip(runs)) for name, runs in taken.items())]

        many = folder(place / "many", (pictures[number % len(pictures)] for number in range(MANY)))
        first = [embed(foveate, many, place / "many.parquet")]
        again = [embed(foveate, many, place / "many.parquet", "--update") for _ in range(rounds)]
        rows.append((f"{MANY:,} files of {len(pictures)} photos", MANY, *unzip(first)))
        rows.append((f"{MANY:,} files in the output; --update", MANY, *unzip(again)))

    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(
        "case,images,computed,from_run,from_cache,kept,seconds,seconds_min,seconds_max,ratio_to_first,model,rounds,foveate"
        .split(",")
    )
    version = subprocess.run([foveate, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()[1]
    for name, images, summary, seconds in rows:
        median = statistics.median(seconds)
        ratio = statistics.median(rows[0][3]) / median if images == PHOTOS else ""
        table.writerow(
            [name, images]
            + [summary["session"][key] for key in ("computed", "from_run", "from_cache")]
            + [(summary["update"] or {}).get("kept", 0)]
            + [f"{value:.3f}" for value in (median, min(seconds), max(seconds))]
            + [ratio and f"{ratio:.2f}", MODEL[1], len(seconds), version]
        )


def unzip(runs):
    """The last summary, and all seconds."""
    return runs[-1][0], [seconds for _, seconds in runs]


if __name__ == "__main__":
    main()
