#!/usr/bin/env python3
"""Adds to each row of recorded CSV files what was measured: commit, date, host, cores and effort, where they are missing.

usage: stamp.py FILE.csv… [--quick]

Run it right after the script that wrote the files, in the checkout that it measured. The columns are those of `foveate
bench`: the commit has 12 digits, and `+` if the sources differed from it.
"""

import csv
import os
import platform
import subprocess
import sys
import time

# The recorded files themselves are new.
SOURCES = ["crates", "models", "benches", "Cargo.toml", "Cargo.lock", ":(exclude)benches/runs"]


def git(*args):
    return subprocess.run(["git", *args], check=True, capture_output=True, text=True).stdout.strip()


def processor():
    with open("/proc/cpuinfo") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main():
    files = [name for name in sys.argv[1:] if name != "--quick"]
    commit = git("rev-parse", "--short=12", "HEAD")
    differs = git("status", "--porcelain", "--", *SOURCES)
    stamp = {
        "commit": commit + ("+" if differs else ""),
        "date": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()),
        "host": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "effort": "quick" if "--quick" in sys.argv else "full",
    }
    for name in files:
        with open(name, newline="") as file:
            rows = list(csv.DictReader(file))
        rows = [{**row, **{column: row.get(column) or value for column, value in stamp.items()}} for row in rows]
        with open(name, "w", newline="") as file:
            table = csv.DictWriter(file, rows[0], lineterminator="\n")
            table.writeheader()
            table.writerows(rows)


main()
