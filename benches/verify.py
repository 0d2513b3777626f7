#!/usr/bin/env python3
"""What each fast option does to vectors of trained weights: verify.csv.

usage: verify.py FOVEATE MODEL LARGE LABELLED… OUT.csv

Each option is compared with the default build in f32 (`foveate verify`) on the photos LARGE, a pattern, and on folders
LABELLED, beside which a MANIFEST.csv has the columns `file` and `label`: the cosines of every photo's two vectors, the share of
photos with the same nearest other photo, and recall@1 under the option and under the default.
"""

import csv
import json
import pathlib
import subprocess
import sys

OPTIONS = {
    "turbojpeg": "decoder=turbojpeg",
    "opencv": "decoder=opencv",
    "zune": "decoder=zune",
    "image": "decoder=image",
    "fast": "decode-scale=fast",
    "low": "decode-scale=low",
    "resizer opencv": "resizer=opencv",
    "resizer image": "resizer=image",
    "fused bf16": "dtype=bf16",
    "fused i8": "dtype=i8",
    "ort f32": "encoder=ort",
    "ort f16": "encoder=ort,dtype=f16",
    "tch f32": "encoder=tch",
    "tch bf16": "encoder=tch,dtype=bf16",
    "squash": "preprocess=squash",
}
DEFAULT = "decoder=exact,decode-scale=exact,resizer=fir,encoder=fused,dtype=f32,preprocess=hf"


def row(foveate, model, name, option, photos, labels):
    chosen = {**dict(each.split("=") for each in DEFAULT.split(",")), **dict(each.split("=") for each in option.split(","))}
    command = [foveate, "verify", photos, "--model", model, "--against", DEFAULT, "--json", *labels]
    command += [word for option, value in chosen.items() for word in (f"--{option}", value)]
    run = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True, text=True)
    found = json.loads(run.stdout)
    cosine, recall = found["cosine"], found["recall_at_1"] or {}
    return {
        "configuration": name,
        "option": option,
        "images": found["compared"],
        "one_minus_cosine_median": f"{1 - cosine['median']:.2e}",
        "one_minus_cosine_p99": f"{1 - cosine['p1']:.2e}",
        "one_minus_cosine_max": f"{1 - cosine['min']:.2e}",
        "same_neighbour": found["same_neighbour"],
        "recall_at_1": recall.get("first"),
        "recall_at_1_default": recall.get("second"),
    }


def main(foveate, model, large, *labelled, out):
    sets = {"large": (large, [])}
    sets |= {pathlib.Path(each).name: (each, ["--labels", f"{pathlib.Path(each).parent}/MANIFEST.csv"]) for each in labelled}
    rows = []
    for photos, (pattern, labels) in sets.items():
        for name, option in OPTIONS.items():
            rows.append({"photos": photos, **row(foveate, model, name, option, pattern, labels)})
    with open(out, "w", newline="") as file:
        table = csv.DictWriter(file, rows[0], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:-1], out=sys.argv[-1]) if len(sys.argv) > 5 else __doc__)
