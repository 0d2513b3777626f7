"""Makes the graphs beside it: one for each way that images can go in and vectors come out. Needs the `onnx` package.

The model is the smallest that can be checked by hand: of images 8 wide and 6 high, `patch_mean` is the mean of each
channel, and `cls` is twice that. Tokens are the class token, a register of hundreds, and the means of 2 x 2 patches.
"""

from pathlib import Path

import numpy
from onnx import TensorProto, checker, helper, numpy_helper

WIDTH, HEIGHT = 8, 6
TYPES = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "u8": TensorProto.UINT8}


def graph(name, element, layout, outputs, batch="batch", sizes=(HEIGHT, WIDTH)):
    out = TypeOf(element)
    nodes, constants = [], []

    def node(operator, *inputs, **attributes):
        nodes.append(helper.make_node(operator, inputs, [f"t{len(nodes)}"], **attributes))
        return f"t{len(nodes) - 1}"

    def constant(value, dtype):
        constants.append(numpy_helper.from_array(numpy.array(value, dtype), f"c{len(constants)}"))
        return f"c{len(constants) - 1}"

    images = "images"
    if element == "u8":
        images = node("Div", node("Cast", images, to=TensorProto.FLOAT), constant(255, numpy.float32))
    if layout == "nhwc":
        images = node("Transpose", images, perm=[0, 3, 1, 2])
    mean = node("Flatten", node("GlobalAveragePool", images))
    results = {"patch_mean": mean, "cls": node("Add", mean, mean)}
    results["output"] = results["cls"]
    if "tokens" in outputs:
        shape = constant([0, 3, -1], numpy.int64)
        patches = node("Reshape", node("AveragePool", images, kernel_shape=[2, 2], strides=[2, 2]), shape)
        axis = constant([2], numpy.int64)
        first = node("Unsqueeze", results["cls"], axis)
        register = node("Add", node("Sub", first, first), constant(300, out.numpy))
        results["tokens"] = node("Transpose", node("Concat", first, register, patches, axis=2), perm=[0, 2, 1])
    for output in outputs:
        nodes.append(helper.make_node("Identity", [results[output]], [output]))
    ends = [(output, out.onnx, [batch, 14, 3] if output == "tokens" else [batch, 3]) for output in outputs]
    shape = [batch, 3, *sizes] if layout == "nchw" else [batch, *sizes, 3]
    body = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("images", TYPES[element], shape)],
        [helper.make_tensor_value_info(*end) for end in ends],
        constants,
    )
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model, full_check=True)
    Path(__file__).with_name(f"{name}.onnx").write_bytes(model.SerializeToString())


class TypeOf:
    """What a graph computes in when its images are of a type."""

    def __init__(self, element):
        half = element == "f16"
        self.onnx, self.numpy = (TensorProto.FLOAT16, numpy.float16) if half else (TensorProto.FLOAT, numpy.float32)


BOTH = ["cls", "patch_mean"]
for element in TYPES:
    for layout in ["nchw", "nhwc"]:
        graph(f"{element}-{layout}", element, layout, BOTH)
graph("any-size", "f32", "nchw", BOTH, sizes=("height", "width"))
graph("one-image", "f32", "nchw", BOTH, batch=1)
graph("three-images", "u8", "nhwc", BOTH, batch=3)
graph("three-floats", "f32", "nhwc", BOTH, batch=3)
graph("tokens", "f32", "nchw", ["output", "tokens"])
graph("half-tokens", "f16", "nchw", ["tokens"])
graph("vectors-only", "f32", "nchw", ["output"])
