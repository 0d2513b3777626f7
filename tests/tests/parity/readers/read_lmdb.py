"""Reads the given .lmdb files with Python's lmdb and numpy, and with LMDB's own mdb_stat.

usage: read_lmdb.py ELEMENT FILE...   (exit code 77: a library is missing, whose name is printed)
"""

import json
import struct
import subprocess
import sys

try:
    import lmdb
    import numpy as np
    from written import element, files, ids, vectors
except ImportError as missing:
    print(missing)
    sys.exit(77)

kinds = {1: np.dtype("<f4"), 2: np.dtype("<f2")}

found = []
for file in files:
    with lmdb.open(file, subdir=False, readonly=True, lock=False, max_dbs=3) as env:
        db = {name: env.open_db(name.encode(), create=False) for name in ("vectors", "order", "meta")}
        with env.begin() as txn:
            meta = dict(txn.cursor(db["meta"]))
            assert sorted(meta) == [b"manifest"], meta
            manifest = json.loads(meta[b"manifest"])
            assert manifest["dim"] == 4 and manifest["fingerprint"]["model"] == "tiny"
            keys = [key for _, key in txn.cursor(db["order"])]
            assert sorted(key for key, _ in txn.cursor(db["vectors"])) == sorted(keys)
            for index, key in enumerate(keys, len(found)):
                value = txn.get(key, db=db["vectors"])
                fields = struct.unpack_from("<4sBBxxIIIIQQI", value)
                magic, version, code, start, dim, width, height, place, xxh3, id_len = fields
                assert (magic, version, dim, id_len) == (b"FVEC", 1, 4, 0)
                assert (place, width, height, xxh3) == (index, 100, 200, index * 7)
                assert (np.frombuffer(value, kinds[code], dim, start) == vectors[index]).all()
            found += [key.decode() for key in keys]
    shown = subprocess.run(["mdb_stat", "-n", "-s", "vectors", file], capture_output=True, text=True, check=True).stdout
    assert f"Entries: {len(keys)}\n" in shown, shown
assert found == ids
print(f"lmdb {lmdb.__version__} (LMDB {'.'.join(map(str, lmdb.version()))}), numpy {np.__version__}: {element} ok")
