"""The PyTorch contestant of benches/forward.rs: DINOv2 in eager mode from a dump of its weights.

usage: forward_torch.py DUMP.safetensors THREADS float32|bfloat16
Requests and answers are those of forward_ort.py. Fused attention (scaled_dot_product_attention), inference mode.
"""

import sys
import time

import numpy as np
from contest import contend, timed
from dump import read_safetensors

try:
    import torch
    from torch.nn import functional
except ImportError as error:
    missing = error
else:
    missing = None


class Model:
    """The model as its users run it: normalized pixels in, the class token after the final LayerNorm out."""

    def __init__(self, meta, tensors, dtype):
        self.heads, self.layers, self.patch = int(meta["heads"]), int(meta["layers"]), int(meta["patch"])
        self.eps, self.dtype = float(meta["eps"]), dtype
        self.tensors = {name: torch.tensor(value).to(dtype) for name, value in tensors.items()}

    def norm(self, x, name):
        weight, bias = (self.tensors[f"{name}.{part}"] for part in ("weight", "bias"))
        return functional.layer_norm(x, weight.shape, weight, bias, self.eps)

    def linear(self, x, name):
        return functional.linear(x, self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"])

    def attention(self, x, name):
        n, tokens, hidden = x.shape
        split = lambda part: self.linear(x, f"{name}.attention.{part}").view(n, tokens, self.heads, -1).transpose(1, 2)
        y = functional.scaled_dot_product_attention(*(split(part) for part in ("query", "key", "value")))
        return self.linear(y.transpose(1, 2).reshape(n, tokens, hidden), f"{name}.output.dense")

    def block(self, x, name):
        y = self.attention(self.norm(x, f"{name}.norm1"), f"{name}.attention")
        x = x + y * self.tensors[f"{name}.layer_scale1.lambda1"]
        y = functional.gelu(self.linear(self.norm(x, f"{name}.norm2"), f"{name}.mlp.fc1"))
        return x + self.linear(y, f"{name}.mlp.fc2") * self.tensors[f"{name}.layer_scale2.lambda1"]

    def __call__(self, pixels):
        projection = "embeddings.patch_embeddings.projection"
        weight, bias = (self.tensors[f"{projection}.{part}"] for part in ("weight", "bias"))
        x = functional.conv2d(pixels.to(self.dtype), weight, bias, stride=self.patch).flatten(2).transpose(1, 2)
        class_token = self.tensors["embeddings.cls_token"].expand(len(x), -1, -1)
        x = torch.cat((class_token, x), 1) + self.tensors["embeddings.position_embeddings"]
        for layer in range(self.layers):
            x = self.block(x, f"encoder.layer.{layer}")
        return self.norm(x, "layernorm")[:, 0].float()


def start():
    if missing:
        raise missing
    dump, threads, dtype = sys.argv[1:]
    torch.set_num_threads(int(threads))
    model = Model(*read_safetensors(dump), getattr(torch, dtype))

    def answer(words):
        path, n, side, runs = words[0], *map(int, words[1:])
        pixels = np.fromfile(path, dtype=np.float32, count=n * 3 * side * side).reshape(n, 3, side, side)
        pixels, outputs = torch.from_numpy(pixels), []

        def work():
            with torch.inference_mode():
                for _ in range(runs):
                    outputs[:] = [model(pixels)]

        return *timed(time.process_time, work), *outputs[0][0].tolist()

    return f"torch {torch.__version__}", answer


contend(start)
