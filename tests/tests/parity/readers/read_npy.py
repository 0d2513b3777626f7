"""Opens the given .npy files with numpy (memory-mapped) and their ids with csv, DuckDB and polars.

usage: read_npy.py ELEMENT FILE...   (exit code 77: a library is missing, whose name is printed)
"""

import csv
import sys

try:
    import duckdb
    import numpy as np
    import polars as pl
    from written import element, files, hashes, ids, kind, vectors
except ImportError as missing:
    print(missing)
    sys.exit(77)

columns = ["id", "width", "height", "xxh3"]

arrays = [np.load(file, mmap_mode="r") for file in files]
assert all(array.dtype == kind and array.flags.c_contiguous for array in arrays)
assert (np.concatenate(arrays) == vectors).all()

tables = [file + ".ids.csv" for file in files]
rows = [row for table in tables for row in csv.DictReader(open(table, newline="", encoding="utf-8"))]
assert [list(row) for row in rows] == [columns] * 10
assert [row["id"] for row in rows] == ids
assert [row["xxh3"] for row in rows] == hashes
for array, table in zip(arrays, tables):
    frame = pl.read_csv(table, schema_overrides={"xxh3": pl.String})
    assert frame.columns == columns and len(frame) == len(array)
found = duckdb.sql(f"select id, width, height from read_csv({tables!r}, all_varchar = true)").fetchall()
assert found == [(id, "100", "200") for id in ids], found
print(f"numpy {np.__version__}, duckdb {duckdb.__version__}, polars {pl.__version__}: {element} ok")
