"""Texts to vectors beside ONNX Runtime and PyTorch, and labels of a million images beside numpy.

usage: words.py TOKENIZER OUT.csv [ROUNDS [IMAGES]]

TOKENIZER is a folder with the tokenizer of a CLIP model in transformers' layout. The model is CLIP B/32 with random
weights. Each contestant takes the same captions as texts, in batches of 32 on all cores, and all take turns; the others
pad a batch to its longest text. Then `foveate label` gives a million vectors the best of 1,000 labels, files included,
and numpy does the same with what is in memory. Vectors and labels are compared. Needs the wheel, torch, transformers
and onnxruntime.
"""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from transformers import AutoTokenizer, CLIPConfig, CLIPModel, CLIPTextModelWithProjection

import foveate

BATCH, BATCHES, LABELS, CORES = 32, 6, 1000, os.cpu_count() or 1
COLUMNS = (
    "what engine version dtype items batch tokens_mean threads rounds items_per_second_median items_per_second_min "
    "items_per_second_max seconds_median ratio_to_reference_median ratio_to_reference_min ratio_to_reference_max "
    "least_agreement"
).split()
ADJECTIVES = "red small old blue wooden striped large black".split()
THINGS = "shoe bicycle cat sofa bottle jacket teapot dog lamp chair".split()
PLACES = ["on a table", "in the snow", "in front of a house", "", "beside a river", "seen from above"]


def captions(count: int) -> list[str]:
    choose = random.Random(0).choice
    return [f"a photo of a {choose(ADJECTIVES)} {choose(THINGS)} {choose(PLACES)}".strip() for _ in range(count)]


def checkpoint(folder: Path, tokenizer: Path) -> None:
    """CLIP B/32 with random weights and another tokenizer."""
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "preprocessor_config.json"):
        shutil.copy(tokenizer / name, folder / name)
    special = json.loads((tokenizer / "config.json").read_text())["text_config"]
    ids = {name: special[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    torch.manual_seed(0)
    model = CLIPModel(CLIPConfig(text_config=ids)).eval()
    # Random weights of the usual spread make all texts alike.
    for name, weight in model.text_model.named_parameters():
        if weight.ndim == 2:
            torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    model.save_pretrained(folder)


def contestants(folder: Path) -> dict[tuple[str, str, str], object]:
    torch.set_num_threads(CORES)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tower = CLIPTextModelWithProjection.from_pretrained(folder).eval()
    tokens = dict(tokenizer(["a", "a cat"], padding=True, return_tensors="pt"))
    axes = {name: {0: "batch", 1: "tokens"} for name in ("input_ids", "attention_mask")}
    path = str(folder / "text.onnx")
    arguments = (tokens["input_ids"], tokens["attention_mask"])
    names = list(axes)
    torch.onnx.export(tower, arguments, path, input_names=names, output_names=["v"], dynamic_axes=axes, dynamo=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = CORES
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def by_onnx_runtime(texts):
        given = tokenizer(texts, padding=True, truncation=True, return_tensors="np")
        return session.run(["v"], {name: given[name].astype(np.int64) for name in names})[0]

    def by_torch(texts):
        with torch.inference_mode():
            return tower(**tokenizer(texts, padding=True, truncation=True, return_tensors="pt")).text_embeds.numpy()

    found = {
        ("ONNX-Runtime", onnxruntime.__version__, "f32"): by_onnx_runtime,
        ("PyTorch", torch.__version__, "f32"): by_torch,
    }
    for dtype in ("f32", "bf16", "i8"):
        embedder = foveate.Embedder(folder, dtype=dtype)
        found["fused", foveate.__version__, dtype] = lambda texts, own=embedder: own.embed_text(texts).vectors
    return found


def cosines(a: np.ndarray, b: np.ndarray) -> float:
    a, b = (x.astype(np.float64) / np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True) for x in (a, b))
    return float((a * b).sum(axis=1).min())


def row(what: str, key: tuple[str, str, str], items: int, seconds: list[float], reference: list[float], **more) -> dict:
    rates = [items / one for one in seconds]
    ratios = [other / one for one, other in zip(seconds, reference)]
    figures = {"items_per_second": rates, "ratio_to_reference": ratios}
    found = {"what": what, "engine": key[0], "version": key[1], "dtype": key[2], "items": items, "threads": CORES}
    for name, values in figures.items():
        found |= {f"{name}_median": statistics.median(values), f"{name}_min": min(values), f"{name}_max": max(values)}
    return found | {"rounds": len(seconds), "seconds_median": statistics.median(seconds)} | more


def texts(folder: Path, rounds: int) -> list[dict]:
    given = captions(BATCH * BATCHES)
    parts = [given[first : first + BATCH] for first in range(0, len(given), BATCH)]
    all = contestants(folder)
    vectors = {key: np.concatenate([act(part) for part in parts]) for key, act in all.items()}
    taken: dict[tuple[str, str, str], list[float]] = {key: [] for key in all}
    for number in range(rounds):
        for key, act in list(all.items())[:: 1 if number % 2 else -1]:
            start = time.perf_counter()
            for part in parts:
                act(part)
            taken[key].append(time.perf_counter() - start)
    first = next(iter(all))
    lengths = [len(ids) for ids in AutoTokenizer.from_pretrained(folder)(given)["input_ids"]]
    more = {"batch": BATCH, "tokens_mean": statistics.mean(lengths)}
    rows = []
    for key in all:
        agreement = cosines(vectors[key], vectors[first])
        rows.append(row("texts", key, len(given), taken[key], taken[first], least_agreement=agreement, **more))
    return rows


def labels(folder: Path, rounds: int, images: int) -> list[dict]:
    names = [f"{number} {text}" for number, text in enumerate(captions(LABELS))]
    (folder / "labels.txt").write_text("\n".join(names))
    embedder = foveate.Embedder(folder)
    classes = embedder.embed_text([f"This is a photo of {name}." for name in names]).vectors
    classes /= np.linalg.norm(classes, axis=1, keepdims=True)
    random = np.random.default_rng(0)
    vectors = random.standard_normal((images, classes.shape[1]), np.float32)
    # Each image is near a label.
    vectors = classes[random.integers(0, LABELS, images)] + 0.05 * vectors
    np.save(folder / "v.npy", vectors)
    scale = embedder.logits[0]
    command = [sys.executable, "-m", "foveate", "label", "v.npy", "--labels", "labels.txt", "--model", str(folder)]
    taken = {"foveate": [], "numpy": []}
    for _ in range(rounds):
        start = time.perf_counter()
        subprocess.run([*command, "-o", "l.parquet", "--overwrite", "--quiet"], cwd=folder, check=True)
        taken["foveate"].append(time.perf_counter() - start)
        start = time.perf_counter()
        best, scores = np.empty(images, np.int64), np.empty(images, np.float32)
        for first in range(0, images, 8192):
            some = vectors[first : first + 8192]
            logits = scale * (some @ classes.T) / np.linalg.norm(some, axis=1, keepdims=True)
            best[first : first + 8192] = logits.argmax(axis=1)
            scores[first : first + 8192] = 1 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)
        taken["numpy"].append(time.perf_counter() - start)
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(folder / "l.parquet")
    found = np.array([int(name.split()[0]) for name in table["label"].to_pylist()])
    agreement = float((found == best).mean())
    ours, theirs = ("foveate", foveate.__version__, "f64"), ("numpy", np.__version__, "f32")
    return [
        row("labels", ours, images, taken["foveate"], taken["numpy"], batch=LABELS, least_agreement=agreement),
        row("labels", theirs, images, taken["numpy"], taken["numpy"], batch=LABELS, least_agreement=1.0),
    ]


def main() -> None:
    tokenizer, out, *rest = sys.argv[1:]
    rounds = int(rest[0]) if rest else 7
    images = int(rest[1]) if len(rest) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        checkpoint(Path(folder), Path(tokenizer))
        rows = [*texts(Path(folder), rounds), *labels(Path(folder), 3, images)]
    with open(out, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
