#!/usr/bin/env python3
"""Distance of candle-transformers' DINOv2 from the reference: candle_transformers.csv.

usage: candle_transformers.py GOLDENS > benches/runs/candle_transformers.csv

GOLDENS is the folder with the vectors of seeded DINOv2-small by `transformers`, in f64, and the crops they are of. The
program is peers-rs/candle. It computes the vectors twice: as it is, and with position embeddings laid out so that its own
interpolation (of the nearest) picks the values of the bicubic one. The second row shows what the rest differs by.
"""

import csv
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy
from PIL import Image

from peers import HIDDEN_HEADS_LAYERS, seeded_values

PROGRAM = pathlib.Path(__file__).parent / "peers-rs/candle/target/peers/foveate-peers-candle"
REFERENCE = "dinov2-small.hf_pil.cls64"
HIDDEN, _, LAYERS = HIDDEN_HEADS_LAYERS["small"]
GRID, PATCHES = 37, 16  # position embeddings and patches in a row


def read(path):
    data = path.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    begin, end = header[REFERENCE]["data_offsets"]
    names = json.loads(header["__metadata__"]["names"])
    return names, numpy.frombuffer(data[start + begin : start + end]).reshape(header[REFERENCE]["shape"])


def write(path, tensors):
    header, at = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(values.tobytes() for values in tensors.values()))


def weights():
    """The seeded weights by Meta's names."""
    of = lambda name, *shape: seeded_values(name, shape)
    linear = lambda name, *shape: (of(f"{name}.weight", *shape), of(f"{name}.bias", shape[0]))
    named = {
        "cls_token": [of("embeddings.cls_token", 1, 1, HIDDEN)],
        "pos_embed": [of("embeddings.position_embeddings", 1, GRID * GRID + 1, HIDDEN)],
        "patch_embed.proj": linear("embeddings.patch_embeddings.projection", HIDDEN, 3, 14, 14),
        "norm": linear("layernorm", HIDDEN),
    }
    for layer in range(LAYERS):
        ours, block = f"encoder.layer.{layer}", f"blocks.{layer}"
        parts = [linear(f"{ours}.attention.attention.{part}", HIDDEN, HIDDEN) for part in ("query", "key", "value")]
        named[f"{block}.attn.qkv"] = [numpy.concatenate(values) for values in zip(*parts)]
        named[f"{block}.attn.proj"] = linear(f"{ours}.attention.output.dense", HIDDEN, HIDDEN)
        named[f"{block}.mlp.fc1"] = linear(f"{ours}.mlp.fc1", 4 * HIDDEN, HIDDEN)
        named[f"{block}.mlp.fc2"] = linear(f"{ours}.mlp.fc2", HIDDEN, 4 * HIDDEN)
        for part in "12":
            named[f"{block}.norm{part}"] = linear(f"{ours}.norm{part}", HIDDEN)
            named[f"{block}.ls{part}.gamma"] = [of(f"{ours}.layer_scale{part}.lambda1", HIDDEN)]
    ends = lambda values: [""] if len(values) == 1 else [".weight", ".bias"]
    return {name + end: value for name, values in named.items() for end, value in zip(ends(values), values)}


def bicubic():
    """The matrix that PyTorch's bicubic interpolation (a = -0.75, without antialiasing) multiplies a row by."""
    matrix = numpy.zeros((PATCHES, GRID))
    for row in range(PATCHES):
        center = (row + 0.5) * GRID / PATCHES - 0.5
        for at in range(int(numpy.floor(center)) - 1, int(numpy.floor(center)) + 3):
            x = abs(center - at)
            near, far = 1.25 * x**3 - 2.25 * x**2 + 1, -0.75 * (x**3 - 5 * x**2 + 8 * x - 4)
            matrix[row, min(max(at, 0), GRID - 1)] += near if x <= 1 else far
    return matrix


def laid_out(positions):
    grid, matrix = positions[0, 1:].reshape(GRID, GRID, HIDDEN).astype(float), bicubic()
    picked = [at * GRID // PATCHES for at in range(PATCHES)]
    grid[numpy.ix_(picked, picked)] = numpy.einsum("yh,xw,hwc->yxc", matrix, matrix, grid)
    return numpy.concatenate([positions[:, :1], grid.reshape(1, -1, HIDDEN).astype(numpy.float32)], axis=1)


def main(goldens):
    goldens = pathlib.Path(goldens)
    names, reference = read(goldens / "seeded_embeddings.safetensors")
    photos = numpy.stack([numpy.asarray(Image.open(goldens / "hf/crop_hf_pil" / f"{name}.png")) for name in names])
    pixels = (photos / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    pixels = numpy.ascontiguousarray(pixels.transpose(0, 3, 1, 2), numpy.float32)
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow("library model positions photos one_minus_cosine_median one_minus_cosine_max relative_error_max".split())
    plain = weights()
    for positions in ("nearest", "bicubic"):
        tensors = {**plain, "pixels": pixels}
        if positions == "bicubic":
            tensors["pos_embed"] = laid_out(tensors["pos_embed"])
        with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
            write(pathlib.Path(file.name), tensors)
            out = subprocess.run([PROGRAM, file.name], check=True, stdout=subprocess.PIPE).stdout
        vectors = numpy.frombuffer(out, numpy.float32).reshape(reference.shape).astype(float)
        norms = numpy.linalg.norm(vectors, axis=1) * numpy.linalg.norm(reference, axis=1)
        drift = 1 - (vectors * reference).sum(axis=1) / norms
        error = numpy.linalg.norm(vectors - reference, axis=1) / numpy.linalg.norm(reference, axis=1)
        figures = [f"{value:.3g}" for value in (numpy.median(drift), drift.max(), error.max())]
        table.writerow(["candle-transformers 0.11.1", "seeded:dinov2-small", positions, len(names), *figures])


if __name__ == "__main__":
    main(*sys.argv[1:])
