"""Reads each folder's output with its format's own library and compares the rows.

usage: read.py FOLDER...   (a missing library is named, and its folders are skipped)
"""

import csv
import struct
import sys
from pathlib import Path


def parquet(file):
    import pyarrow.parquet as pq

    table = pq.read_table(file)
    return zip(table["id"].to_pylist(), table["xxh3"].to_pylist(), table["embedding"].to_pylist())


def npy(file):
    import numpy as np

    with open(f"{file}.ids.csv", newline="", encoding="utf-8") as ids:
        rows = list(csv.DictReader(ids))
    vectors = np.load(file)
    assert len(rows) == len(vectors), f"{file}: {len(rows)} ids for {len(vectors)} vectors"
    return [(row["id"], row["xxh3"], vector.tolist()) for row, vector in zip(rows, vectors)]


def arrow(file):
    import pyarrow as pa

    table = pa.ipc.open_file(pa.memory_map(str(file))).read_all()
    return zip(table["id"].to_pylist(), table["xxh3"].to_pylist(), table["embedding"].to_pylist())


def lmdb(file):
    import lmdb
    import numpy as np

    rows = []
    with lmdb.open(str(file), subdir=False, readonly=True, lock=False, max_dbs=4) as env:
        vectors, order = (env.open_db(name, create=False) for name in (b"vectors", b"order"))
        with env.begin() as txn:
            for _, key in txn.cursor(order):
                value = txn.get(key, db=vectors)
                (start, dim), (xxh3, id_len) = struct.unpack_from("<8xII", value), struct.unpack_from("<32xQI", value)
                name = value[44 : 44 + id_len] if key[0] == 0 else key
                rows.append((name.decode(), f"{xxh3:016x}", np.frombuffer(value, "<f4", dim, start).tolist()))
    return rows


expected = None
for folder in map(Path, sys.argv[1:]):
    try:
        rows = [row for read in (parquet, npy, arrow, lmdb) for file in sorted(folder.rglob(f"*.{read.__name__}")) for row in read(file)]
    except ImportError as missing:
        print(f"{folder.name}: not read ({missing})")
        continue
    rows.sort()
    expected = expected or rows
    assert rows == expected and len(rows) > 0, f"{folder.name} holds other rows than {sys.argv[1]}"
print(f"{len(sys.argv) - 1} outputs hold the same {len(expected or [])} rows")
