"""Opens the given Parquet files with pyarrow, DuckDB and polars and compares them with what was written.

usage: read_parquet.py ELEMENT FILE...   (exit code 77: a library is missing, whose name is printed)
"""

import sys

try:
    import duckdb
    import numpy as np
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq
    from written import element, files, hashes, ids, kind, vectors
except ImportError as missing:
    print(missing)
    sys.exit(77)

table = pa.concat_tables([pq.read_table(file) for file in files])
arrow_kind = pa.float32() if element == "f32" else pa.float16()
assert table.schema.field("embedding").type == pa.list_(pa.field("element", arrow_kind, nullable=False), 4), table.schema
assert not any(field.nullable for field in table.schema), table.schema
assert table["id"].to_pylist() == ids
column = table["embedding"].combine_chunks()
read = column.flatten().to_numpy(zero_copy_only=True).reshape(-1, 4)
assert read.dtype == kind and (read == vectors).all()
assert table["width"].to_pylist() == [100] * 10 and table["height"].to_pylist() == [200] * 10
assert table["xxh3"].to_pylist() == hashes
metadata = pq.read_metadata(files[0]).metadata
assert metadata[b"foveate.model"] == b"tiny" and b'"dim":4' in metadata[b"foveate.manifest"], metadata

relation = duckdb.sql(f"select * from read_parquet({files!r})")
shown = dict(zip(relation.columns, map(str, relation.types)))
# Parquet has lists only; DuckDB turns one into an array where it is told to.
assert shown["embedding"] == "FLOAT[]", shown
assert (shown["id"], shown["width"], shown["xxh3"]) == ("VARCHAR", "UINTEGER", "VARCHAR"), shown
rows = duckdb.sql(f"select id, embedding::FLOAT[4], array_distance(embedding::FLOAT[4], embedding::FLOAT[4]) from relation").fetchall()
assert [row[0] for row in rows] == ids
assert (np.array([row[1] for row in rows], dtype=kind) == vectors).all()

frame = pl.read_parquet(files)
expected = pl.Float32 if element == "f32" else pl.Float16
assert frame.schema["embedding"] == pl.Array(expected, 4), frame.schema
assert frame["id"].to_list() == ids
assert (frame["embedding"].to_numpy() == vectors).all()
print(f"pyarrow {pa.__version__}, duckdb {duckdb.__version__}, polars {pl.__version__}: {element} ok")
