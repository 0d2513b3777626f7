"""Shared parts of the steps: settings, time, running foveate, CSV files, arithmetic. Standard library only."""

import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
DTYPES = ("f16", "bf16", "f32")
# Decoder, after a space its backend, and decode scale.
DECODERS = (("turbojpeg", "exact"), ("exact", "exact"), ("nvjpeg", "exact"), ("nvjpeg mixed", "exact"),
            ("zune", "exact"), ("turbojpeg", "fast"), ("image", "exact"))

# Shapes of the networks, with the keys of Hugging Face's configuration.
def shape(width, layers, heads, image=518, patch=14):
    return {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "image_size": image,
            "patch_size": patch}


SHAPES = {"small": shape(384, 12, 6), "base": shape(768, 12, 12), "large": shape(1024, 24, 16),
          "tiny": shape(64, 2, 2, image=98)}

FORWARD = ("engine", "model", "dtype", "batch", "images_per_second", "least", "most", "samples",
           "call_images_per_second", "memory_mb", "memory_of", "status")
CHECKS = ("step", "what", "found", "beside", "verdict", "status")
NUMERICS = ("check", "model", "dtype", "images", "one_minus_cosine", "relative_error", "same_bits",
            "torch_one_minus_cosine", "torch_relative_error", "share", "recall", "recall_other", "status")
END_TO_END = ("photos", "model", "dtype", "decoder", "scale", "workers", "batch", "images", "samples",
              "images_per_second", "least", "most", "gpu_busy", "ceiling", "status")
BASELINE = ("photos", "loader", "dtype", "workers", "batch", "images", "samples", "images_per_second", "least", "most",
            "status")


class Mode:
    """The extent of the measurement. `smoke` exercises every step on any machine; its figures mean nothing."""

    def __init__(self, name):
        quick, smoke = name == "quick", name == "smoke"
        self.name = name
        self.models = ("tiny",) if smoke else ("small",) if quick else ("small", "base")
        # Half precision at growing batches.
        self.swept = ("tiny",) if smoke else ("small", "base", "large")
        self.sizes = (1, 2) if smoke else (32, 64, 128, 256, 512)
        # Most important first: the time may end before the list does.
        self.batches = (2, 1) if smoke else (256,) if quick else (256, 1, 64, 512, 8, 128, 32)
        self.compiled_batches = self.batches[:1] if name != "full" else self.batches[:3]
        self.workers = (2, 1) if smoke else (16, 4, 1) if quick else (16, 8, 4, 2, 1)
        self.seconds = 0.2 if smoke else 1.0 if quick else 1.5
        # Of a whole job. The first batch loads cuBLASLt's kernels: 0.2 s, which a short job would count for too much.
        self.job_seconds = 0.2 if smoke else 3.0 if quick else 5.0
        self.samples = 3 if name == "full" else 1
        self.batch = 4 if smoke else 256

    def spec(self, model):
        """Foveate's name of a model of SHAPES. Its weights are generated, except for the tiny model's."""
        return str(HERE / "models/tiny") if model == "tiny" else f"seeded:dinov2-{model}"


class Failed(Exception):
    """A cell that could not be measured; the reason has one line."""


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--mode", choices=("smoke", "quick", "full"), default="quick")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=120, help="time for this step")
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--step", default="", help="the check to run, where a file has several")
    parser.add_argument("--scratch", type=Path, default=Path("scratch"), help="folder for files in between, in memory")
    return parser.parse_args()


class Deadline:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()

    def check(self, need=0.0):
        """Fails unless `need` seconds are left."""
        if self.left() <= need:
            raise Failed("out of time")


class Cells:
    """A CSV file whose rows are on the disk as soon as they are added."""

    def __init__(self, path, columns, append=False):
        self.columns = columns
        self.rows = []
        self.file = open(path, "a" if append else "w", newline="")
        self.writer = csv.DictWriter(self.file, columns)
        if self.file.tell() == 0:
            self.writer.writeheader()
        self.file.flush()

    def add(self, **row):
        row.setdefault("status", "ok")
        self.rows.append(row)
        self.writer.writerow({name: tidy(value) for name, value in row.items()})
        self.file.flush()
        print(" ".join(f"{name}={tidy(value)}" for name, value in row.items()), flush=True)

    def attempt(self, key, measure):
        """Adds a row: `key`, and the result of `measure` or why it failed. An error affects only that cell."""
        try:
            self.add(**key, **measure())
        except Failed as error:
            self.add(**key, status=f"n/a ({error})")
        except Exception as error:  # A failed cell does not end its step.
            self.add(**key, status=f"failed ({one_line(f'{type(error).__name__}: {error}')})")


def read(path):
    """The rows of a CSV file as dictionaries; empty if the file does not exist."""
    try:
        with open(path, newline="") as file:
            return list(csv.DictReader(file))
    except FileNotFoundError:
        return []


def tidy(value):
    return f"{value:.6g}" if isinstance(value, float) else value


def one_line(text, most=160):
    text = " ".join(str(text).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def spread(samples):
    """The columns of a rate's samples."""
    return {"images_per_second": statistics.median(samples), "least": min(samples), "most": max(samples),
            "samples": len(samples)}


def steady_rates(batches, encode, settle, workers, seconds, windows, now=time.perf_counter):
    """Images per second of a loader under way, in `windows` windows of at least `seconds`.

    Its workers deliver a batch each at about the same time. So the clock starts when each has delivered one, and a window
    ends after a whole round. `encode` returns a batch's number of images; `settle` waits for the device."""
    rates, images, start = [], 0, None
    for at, batch in enumerate(batches, 1):
        images += encode(batch)
        if at % workers:
            continue
        settle()
        if start is not None and now() - start >= seconds:
            rates.append(images / (now() - start))
            start = None
        if len(rates) == windows:
            return rates
        if start is None:
            images, start = 0, now()
    raise Failed("the photos ended before the windows")


def foveate(*args, seconds=60, codes=(0,)):
    """Runs the program and returns its output. Raises `Failed` with the reason if it ends with another code or exceeds
    the time."""
    if seconds <= 0:
        raise Failed("out of time")
    command = [os.environ.get("FOVEATE", str(HERE / "bin/foveate")), *map(str, args)]
    print("$ foveate", *command[1:], flush=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Failed(f"out of time after {seconds:.0f} s") from None
    except OSError as error:
        raise Failed(one_line(error)) from None
    if done.returncode not in codes:
        raise Failed(reason(done.stderr) or f"exit code {done.returncode}")
    return done.stdout


def reason(stderr):
    """The last reason that a program prints for its failure."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error:")]
    return one_line((errors or lines or [""])[-1].removeprefix("error:").strip())


def embed_json(*args, seconds=60):
    """The summary of a run of `foveate embed`."""
    return json.loads(foveate("embed", *args, "--json", "--quiet", "--overwrite", seconds=seconds))


def bench_rows(experiment, file, *args, out, seconds):
    """The rows of the CSV file that `foveate bench` writes."""
    (out / file).unlink(missing_ok=True)
    foveate("bench", experiment, *args, "--as-given", "--quiet", "-o", out, seconds=seconds)
    return read(out / file)


def encoders(device, seconds):
    """The encoders that this device runs, `foveate doctor` says; it ends with 1 if any backend is broken."""
    try:
        rows = json.loads(foveate("doctor", "--json", seconds=min(30, seconds), codes=(0, 1)))["backends"]
    except (Failed, ValueError):
        return []
    return [row["name"] for row in rows if row["kind"] == "encoder" and device.split(",")[0] in row["devices"]]


def why(row):
    """The reason in a status `n/a (reason)`."""
    return row["status"].removeprefix("n/a (").removesuffix(")")


def number(text):
    """A CSV field as a number, or None if it is not one."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def flop_per_image(shape, size=224):
    """Operations of a plain ViT's forward: 2 for each multiply-add of its linear layers and of attention's products.

    Patches: p·3·k²·D for p patches of k×k pixels. Each layer, for n tokens: 4·n·D² (query, key, value, output),
    2·n²·D (scores and their product with the values), 8·n·D² (the MLP of 4·D). Nothing else is counted.
    """
    width, patch = shape["hidden_size"], shape["patch_size"]
    n = (size // patch) ** 2 + 1
    embedding = (n - 1) * 3 * patch * patch * width
    layer = 4 * n * width**2 + 2 * n * n * width + 8 * n * width**2
    return 2 * (embedding + shape["num_hidden_layers"] * layer)


def photos(folder):
    """The photos of a folder of the bundle, sorted."""
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    if not found:
        raise Failed(f"no photos in {folder.name}")
    return found


def small_copies(originals, folder, side=256):
    """Makes copies whose shorter side is `side` pixels, like stored thumbnails."""
    try:
        from PIL import Image
    except ImportError as error:
        raise Failed(one_line(error)) from None
    folder.mkdir(parents=True, exist_ok=True)
    for original in originals:
        with Image.open(original) as image:
            scale = side / min(image.size)
            size = tuple(max(side, round(edge * scale)) for edge in image.size)
            image.convert("RGB").resize(size, Image.Resampling.BICUBIC).save(folder / original.name, quality=90)
    return photos(folder)


def photo_sets(scratch):
    """The photos of `small` (256 px) and `large` (about 1000 px), or the reason why there are none."""
    sets = {}
    for name in ("small", "large"):
        try:
            originals = photos(HERE / "photos")
            sets[name] = small_copies(originals, scratch / "small") if name == "small" else originals
        except Failed as error:
            sets[name] = error
    return sets


def many(originals, folder, count):
    """Makes `count` files with new names in `folder`: copies, or hard links to them. Returns a file that lists them."""
    seeds = folder / "seeds"
    seeds.mkdir(parents=True, exist_ok=True)
    for original in originals:
        (seeds / original.name).write_bytes(original.read_bytes())
    names = [seeds / original.name for original in originals]
    listing = folder / "list.txt"
    with open(listing, "w") as out:
        for at in range(count):
            seed = names[at % len(names)]
            link = folder / f"{at // 1000:03}" / f"{at:06}{seed.suffix}"
            if at % 1000 == 0:
                link.parent.mkdir(exist_ok=True)
            if not link.exists():
                os.link(seed, link)
            out.write(f"{link}\n")
    return listing
