"""Opens every Parquet file of a folder with pyarrow and prints the ids and sums of the vectors, one JSON object a row.

usage: segments.py FOLDER
"""

import json
import pathlib
import sys

import pyarrow.parquet as pq

for file in sorted(pathlib.Path(sys.argv[1]).glob("*.parquet")):
    table = pq.read_table(file)
    for id, vector in zip(table["id"].to_pylist(), table["embedding"].to_pylist()):
        print(json.dumps({"file": file.name, "id": id, "vector": vector}))
