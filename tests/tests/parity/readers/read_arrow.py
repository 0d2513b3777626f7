"""Maps the given Arrow IPC files with pyarrow, reads them with polars, and compares them with what was written.

usage: read_arrow.py ELEMENT FILE...   (exit code 77: a library is missing, whose name is printed)
"""

import sys

try:
    import numpy as np
    import polars as pl
    import pyarrow as pa
    from written import element, files, hashes, ids, kind, vectors
except ImportError as missing:
    print(missing)
    sys.exit(77)

before = pa.total_allocated_bytes()
tables = [pa.ipc.open_file(pa.memory_map(file)).read_all() for file in files]
assert pa.total_allocated_bytes() == before, "the rows are copied, not mapped"
read = []
for table in tables:
    assert table.schema.metadata[b"foveate.model"] == b"tiny", table.schema.metadata
    assert b'"dim":4' in table.schema.metadata[b"foveate.manifest"], table.schema.metadata
    for chunk in table["embedding"].chunks:
        read.append(chunk.flatten().to_numpy(zero_copy_only=True).reshape(-1, 4))
read = np.concatenate(read)
assert read.dtype == kind and (read == vectors).all()

table = pa.concat_tables(tables)
arrow_kind = pa.float32() if element == "f32" else pa.float16()
assert table.schema.field("embedding").type == pa.list_(pa.field("element", arrow_kind, nullable=False), 4), table.schema
assert not any(field.nullable for field in table.schema), table.schema
assert table["id"].to_pylist() == ids
assert table["width"].to_pylist() == [100] * 10 and table["height"].to_pylist() == [200] * 10
assert table["xxh3"].to_pylist() == hashes

frame = pl.concat([pl.read_ipc(file) for file in files])
expected = pl.Float32 if element == "f32" else pl.Float16
assert frame.schema["embedding"] == pl.Array(expected, 4), frame.schema
assert frame["id"].to_list() == ids
assert (frame["embedding"].to_numpy() == vectors).all()
print(f"pyarrow {pa.__version__}, polars {pl.__version__}: {element} ok")
