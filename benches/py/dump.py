"""Reads the weights that benches/forward.rs writes for other engines: a safetensors file of f32 tensors with
interpolated position embeddings, and the architecture in its metadata.
"""

import json
import struct

import numpy as np


def read_safetensors(path):
    """Metadata, and arrays by name."""
    data = open(path, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    meta = header.pop("__metadata__")
    tensors = {}
    for name, info in header.items():
        begin, end = (8 + length + offset for offset in info["data_offsets"])
        tensors[name] = np.frombuffer(data[begin:end], dtype=np.float32).reshape(info["shape"])
    return meta, tensors
