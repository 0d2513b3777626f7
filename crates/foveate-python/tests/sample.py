"""A program with types, for ``mypy --strict``."""

from pathlib import Path

import numpy as np

import foveate

embedder = foveate.Embedder("facebook/dinov2-small", device="cpu", batch=8, max_pixels="200M", on_error="raise")
foveate.Embedder(colour="red")  # type: ignore[call-arg]  # An unknown option is an error of types, too.
foveate.embed_files("photos/", columns="url")  # type: ignore[call-arg]
vectors, errors = embedder.embed([Path("a.jpg"), "b.jpg", b"", None, np.zeros((4, 4, 3), np.uint8)])
similarity: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = vectors @ vectors.T
reasons: list[str] = [error.reason for error in errors if error is not None]
batch: foveate.Batch = embedder.embed_arrow(object(), image="image")
count: int = len(batch) + embedder.dim
for part in foveate.embed_files("photos/", model="facebook/dinov2-small", shard="0/8"):
    count += part.num_rows
report: dict[str, object] = foveate.embed(["a", Path("b")], output="v.parquet", progress=lambda done, of, bad: None)
costs: dict[str, object] = foveate.plan(images="10M", sample_bytes="300K", cpu_ms=4.4, overhead_ms=5, item_ms=0.03)
stages: object = foveate.profile("photos/", n=8)["profile"]
on_spark = foveate.spark.embedder(foveate.spark.File("model"), image="content", threads=2)
on_ray = foveate.ray.Embedder("model", image="bytes", max_pixels="200M")
try:
    embedder.embed(["missing.jpg"])
except foveate.ItemError as error:
    print(error.item, error.stage, error.reason)
