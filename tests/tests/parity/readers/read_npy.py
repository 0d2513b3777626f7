"""Opens the given .npy files with numpy (memory-mapped) and their ids with csv, DuckDB and polars.

usage: read_npy.py ELEMENT FILE...   (exit code 77: a library is missing, whose name is printed)
"""

import csv
import sys

try:
    import duckdb
    import numpy as np
    import polars as pl
except ImportError as missing:
    print(missing)
    sys.exit(77)

element, files = sys.argv[1], sys.argv[2:]
kind = {"f32": np.float32, "f16": np.float16}[element]
ids = [f'photos/{i},\n "ż".jpg' for i in range(10)]
vectors = (np.arange(40, dtype=np.float32).reshape(10, 4) * np.float32(0.1)).astype(kind)
columns = ["id", "width", "height", "xxh3"]

arrays = [np.load(file, mmap_mode="r") for file in files]
assert all(array.dtype == kind and array.flags.c_contiguous for array in arrays)
assert (np.concatenate(arrays) == vectors).all()

tables = [file + ".ids.csv" for file in files]
rows = [row for table in tables for row in csv.DictReader(open(table, newline="", encoding="utf-8"))]
assert [list(row) for row in rows] == [columns] * 10
assert [row["id"] for row in rows] == ids
assert [row["xxh3"] for row in rows] == [f"{i * 7:016x}" for i in range(10)]
for array, table in zip(arrays, tables):
    frame = pl.read_csv(table, schema_overrides={"xxh3": pl.String})
    assert frame.columns == columns and len(frame) == len(array)
found = duckdb.sql(f"select id, width, height from read_csv({tables!r}, all_varchar = true)").fetchall()
assert found == [(id, "100", "200") for id in ids], found
print(f"numpy {np.__version__}, duckdb {duckdb.__version__}, polars {pl.__version__}: {element} ok")
