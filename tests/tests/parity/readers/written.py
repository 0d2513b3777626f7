"""What the suites of sinks write, for the scripts beside this one, whose arguments are ELEMENT FILE..."""

import sys

import numpy as np

element, files = sys.argv[1], sys.argv[2:]
kind = {"f32": np.float32, "f16": np.float16}[element]
ids = [f'photos/{i},\n "ż".jpg' for i in range(10)]
vectors = (np.arange(40, dtype=np.float32).reshape(10, 4) * np.float32(0.1)).astype(kind)
hashes = [f"{i * 7:016x}" for i in range(10)]
