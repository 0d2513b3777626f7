"""Opens every Parquet file of a folder with pyarrow and prints the ids and sums of the vectors, one JSON object a row.

usage: segments.py FOLDER   (exit code 77: pyarrow is missing)
"""

import json
import pathlib
import sys

try:
    import pyarrow.parquet as pq
except ImportError as missing:
    print(missing)
    sys.exit(77)

for file in sorted(pathlib.Path(sys.argv[1]).glob("*.parquet")):
    table = pq.read_table(file)
    for id, vector in zip(table["id"].to_pylist(), table["embedding"].to_pylist()):
        print(json.dumps({"file": file.name, "id": id, "vector": vector}))
