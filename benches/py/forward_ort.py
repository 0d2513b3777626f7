"""The ONNX Runtime contestant of benches/forward.rs: DINOv2 in f32 from a dump of its weights.

usage: forward_ort.py DUMP.safetensors THREADS plain|mha
A request is `PIXELS N SIDE RUNS`: a file of f32 `[n, 3, side, side]` normalized pixels, and how often to run it. The
answer is the wall and the CPU seconds of all runs, over all threads, and the first image's vector (CLS).
"""

import sys
import time

import numpy as np
from contest import contend, timed
from dump import read_safetensors

try:
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    missing = error
else:
    missing = None


class Graph:
    """Collects nodes and weights; every method returns the name of its output."""

    def __init__(self, tensors, hidden, heads, eps, attention):
        self.tensors, self.hidden, self.heads, self.eps, self.attention_kind = tensors, hidden, heads, eps, attention
        self.nodes, self.weights, self.count = [], [], 0

    def node(self, kind, *inputs, domain="", **attributes):
        self.count += 1
        out = f"t{self.count}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], domain=domain, **attributes))
        return out

    def constant(self, value, dtype=np.float32):
        self.count += 1
        name = f"w{self.count}"
        self.weights.append(numpy_helper.from_array(np.array(value, dtype, order="C"), name))
        return name

    def norm(self, x, name):
        scale, shift = (self.constant(self.tensors[f"{name}.{part}"]) for part in ("weight", "bias"))
        return self.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=self.eps)

    def linear(self, x, name):
        y = self.node("MatMul", x, self.constant(self.tensors[f"{name}.weight"].T))
        return self.node("Add", y, self.constant(self.tensors[f"{name}.bias"]))

    def attention(self, x, name):
        q, k, v = (self.linear(x, f"{name}.attention.{part}") for part in ("query", "key", "value"))
        if self.attention_kind == "mha":
            y = self.node("MultiHeadAttention", q, k, v, domain="com.microsoft", num_heads=self.heads)
        else:
            width = self.hidden // self.heads
            shape = self.constant([0, 0, self.heads, width], np.int64)
            q, k, v = (self.node("Reshape", part, shape) for part in (q, k, v))
            q = self.node("Transpose", q, perm=[0, 2, 1, 3])
            k = self.node("Transpose", k, perm=[0, 2, 3, 1])
            v = self.node("Transpose", v, perm=[0, 2, 1, 3])
            scores = self.node("Mul", self.node("MatMul", q, k), self.constant(width**-0.5))
            y = self.node("MatMul", self.node("Softmax", scores, axis=-1), v)
            y = self.node("Transpose", y, perm=[0, 2, 1, 3])
            y = self.node("Reshape", y, self.constant([0, 0, self.hidden], np.int64))
        return self.linear(y, f"{name}.output.dense")

    def block(self, x, name):
        y = self.attention(self.norm(x, f"{name}.norm1"), f"{name}.attention")
        x = self.node("Add", x, self.node("Mul", y, self.constant(self.tensors[f"{name}.layer_scale1.lambda1"])))
        y = self.linear(self.norm(x, f"{name}.norm2"), f"{name}.mlp.fc1")
        y = self.linear(self.node("Gelu", y, approximate="none"), f"{name}.mlp.fc2")
        return self.node("Add", x, self.node("Mul", y, self.constant(self.tensors[f"{name}.layer_scale2.lambda1"])))

    def tokens(self, patch):
        projection = "embeddings.patch_embeddings.projection"
        weight, bias = (self.constant(self.tensors[f"{projection}.{part}"]) for part in ("weight", "bias"))
        x = self.node("Conv", "pixels", weight, bias, kernel_shape=[patch, patch], strides=[patch, patch])
        x = self.node("Transpose", self.node("Reshape", x, self.constant([0, self.hidden, -1], np.int64)), perm=[0, 2, 1])
        batch = self.node("Slice", self.node("Shape", x), *(self.constant([i], np.int64) for i in (0, 1)))
        shape = self.node("Concat", batch, self.constant([1, self.hidden], np.int64), axis=0)
        class_token = self.node("Expand", self.constant(self.tensors["embeddings.cls_token"]), shape)
        x = self.node("Concat", class_token, x, axis=1)
        return self.node("Add", x, self.constant(self.tensors["embeddings.position_embeddings"]))


def build(meta, tensors, attention):
    """The model as its users export it: normalized pixels in, the class token after the final LayerNorm out."""
    graph = Graph(tensors, int(meta["hidden"]), int(meta["heads"]), float(meta["eps"]), attention)
    x = graph.tokens(int(meta["patch"]))
    for layer in range(int(meta["layers"])):
        x = graph.block(x, f"encoder.layer.{layer}")
    x = graph.node("Gather", graph.norm(x, "layernorm"), graph.constant(0, np.int64), axis=1)
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, "h", "w"])
    out = helper.make_tensor_value_info(x, TensorProto.FLOAT, ["n", graph.hidden])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    body = helper.make_graph(graph.nodes, "dinov2", [pixels], [out], graph.weights)
    return helper.make_model(body, opset_imports=opsets, ir_version=10).SerializeToString()


def start():
    if missing:
        raise missing
    dump, threads, attention = sys.argv[1:]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(threads)
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(build(*read_safetensors(dump), attention), options, ["CPUExecutionProvider"])

    def answer(words):
        path, n, side, runs = words[0], *map(int, words[1:])
        pixels = np.fromfile(path, dtype=np.float32, count=n * 3 * side * side).reshape(n, 3, side, side)
        outputs = []

        def work():
            for _ in range(runs):
                outputs[:] = session.run(None, {"pixels": pixels})

        return *timed(time.process_time, work), *outputs[0][0].tolist()

    return f"onnxruntime {onnxruntime.__version__} onnx {onnx.__version__}", answer


contend(start)
