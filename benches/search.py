"""Measures exact search beside faiss, usearch and numpy, on vectors with the spectrum of real ones.

    cargo build --release -p foveate-search --example measure
    python3 benches/search.py BASE.npy target/release/examples/measure OUT.csv [ROWS …]

BASE.npy has real embeddings, `[m, dim]` f32: `foveate embed photos/ -o base.npy`. The measured vectors are mixtures of
two of them with noise along their spread; one in fifty is a near copy of another. Every tool finds the 10 nearest of all
rows. Ids and scores of ours are compared with those of f64 on some rows. Needs numpy, polars, faiss-cpu and usearch.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import faiss
import numpy as np
import polars
import usearch.index

K = 10
#: Most rows for faiss, and for tools that take minutes with more.
MOST, MOST_OF_OTHERS = 100_000, 20_000
#: Most rows whose neighbours are searched.
MOST_OF_ALL = 1_000_000


def vectors(base: np.ndarray, rows: int) -> np.ndarray:
    """Mixtures of two embeddings, with noise of a third of their spread."""
    random = np.random.default_rng(0)
    base = base / np.linalg.norm(base, axis=1, keepdims=True)
    spread = (base - base.mean(axis=0)) / np.sqrt(len(base))
    out = np.empty((rows, base.shape[1]), np.float32)
    for start in range(0, rows, 50_000):
        count = min(50_000, rows - start)
        one, other = random.integers(0, len(base), (2, count))
        share = random.uniform(0.5, 1.0, (count, 1))
        noise = random.standard_normal((count, len(base))) @ spread
        out[start : start + count] = share * base[one] + (1 - share) * base[other] + noise / 3
    copies = random.choice(rows, rows // 50, replace=False)
    of = random.integers(0, rows, len(copies))
    out[copies] = out[of] + 0.002 * random.standard_normal((len(copies), base.shape[1]))
    return out / np.linalg.norm(out, axis=1, keepdims=True)


def timed(act) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def by_faiss(rows: np.ndarray, kind: type, *args) -> float:
    def act():
        index = kind(rows.shape[1], *args)
        index.add(rows)
        index.search(rows, K + 1)

    return timed(act)


def by_usearch(rows: np.ndarray) -> float:
    return timed(lambda: usearch.index.search(rows, rows, K + 1, usearch.index.MetricKind.IP, exact=True))


def by_numpy(rows: np.ndarray) -> float:
    def act():
        for start in range(0, len(rows), 1000):
            scores = rows[start : start + 1000] @ rows.T
            np.argpartition(scores, -K - 1, axis=1)[:, -K - 1 :]

    return timed(act)


def check(rows: np.ndarray, found: Path) -> None:
    """Compare with scores of f64."""
    table = polars.read_csv(found, has_header=False).to_numpy()
    sample = min(2000, 100_000_000 // len(rows))
    chosen = np.random.default_rng(1).choice(len(rows), sample, replace=False)
    exact = rows.astype(np.float64)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    starts = np.searchsorted(table[:, 0], chosen)
    for row, start in zip(chosen, starts):
        ours = table[start : start + K]
        scores = exact @ exact[row]
        scores[row] = -2
        best = np.lexsort((np.arange(len(scores)), -np.round(scores, 13)))[:K]
        assert set(ours[:, 0]) == {row}
        assert np.abs(np.sort(ours[:, 2])[::-1] - scores[best]).max() < 1e-6
        assert set(ours[:, 1].astype(int)) == set(best) or np.ptp(scores[best][-1:] - ours[-1:, 2]) < 1e-12


def ours(*command: object) -> dict[str, float]:
    """What `measure` says."""
    return json.loads(subprocess.run(list(map(str, command)), check=True, capture_output=True).stdout)


def main() -> None:
    base, measure, out, *rows = sys.argv[1:]
    base = np.load(base).astype(np.float32)
    table = []
    for count in map(int, rows or ["20000", "100000"]):
        data = vectors(base, count)
        with tempfile.TemporaryDirectory() as folder:
            path, found = Path(folder) / "v.npy", Path(folder) / "found.csv"
            np.save(path, data)
            told = {}
            if count <= MOST_OF_ALL:
                told["foveate neighbors"] = ours(measure, path, "neighbors", str(K), found)
                check(data, found)
            told["foveate pairs 0.95"] = ours(measure, path, "pairs", "0.95")
            told["foveate nearest of 10000"] = ours(measure, path, "nearest", "10000")
        for name, row in told.items():
            share = row["scored"] / row["pairs"]
            table.append([name, count, row["seconds"], row["width"], share, row["found"], row["peak_gb"]])
        if count <= MOST:
            table.append(["faiss IndexFlatIP", count, by_faiss(data, faiss.IndexFlatIP), "", "", "", ""])
        if count <= MOST_OF_OTHERS:
            table.append(["faiss IndexFlatIPPanorama", count, by_faiss(data, faiss.IndexFlatIPPanorama, 8), "", "", "", ""])
            table.append(["usearch exact", count, by_usearch(data), "", "", "", ""])
            table.append(["numpy", count, by_numpy(data), "", "", "", ""])
        print(*(row for row in table if row[1] == count), sep="\n", flush=True)
    with open(out, "w", newline="") as file:
        csv.writer(file).writerows([["tool", "rows", "seconds", "width", "scored", "found", "peak_gb"], *table])


if __name__ == "__main__":
    main()
