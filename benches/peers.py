#!/usr/bin/env python3
"""Other libraries on the same photos.

usage: foveate bench decoders|resizers|forward PHOTOS --peers benches/peers.py
       peers.py read INPUT [WORKERS [ROUNDS]]

Under `foveate bench`, it answers lines: `check NAME CASE N` and `time NAME CASE COUNT`, as crates/foveate-lab's
bench/peers.rs says. A missing module answers `n/a`, with the reason. PyTurboJPEG finds libturbojpeg (3.0 or newer) by the
variable TURBOJPEG_LIBRARY. rten and tract run in the program of benches/peers-rs; FOVEATE_PEERS names another place of it.
libjpeg-turbo-rs is the library of benches/peers-rs/jpeg.

`read` prints a CSV: images per second from a folder, a pattern of tars or a Parquet file with decoding, resizing and
cropping, by Pillow, WebDataset, Ray Data and pyarrow. The readers take turns.
"""

import csv
import ctypes
import functools
import glob
import importlib.metadata
import io
import math
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy
from PIL import Image

# Decoders: each returns a function of the file's bytes and the divisor, and one that makes RGB samples of its result.


def divisor(size, min_side):
    """The largest of 8, 4, 2 and 1 that leaves the shorter side long enough, as libjpeg rounds."""
    fits = [n for n in (8, 4, 2) if min_side and -(-min(size) // n) >= min_side]
    return fits[0] if fits else 1


def pillow():
    def decode(data, by):
        image = Image.open(io.BytesIO(data))
        if by > 1:
            image.draft("RGB", (image.width // by, image.height // by))
        return image.convert("RGB")

    return decode, numpy.asarray


def pillow_array():
    decode, array = pillow()
    return lambda data, by: array(decode(data, by)), array


def opencv():
    import cv2

    cv2.setNumThreads(1)
    flags = {1: cv2.IMREAD_COLOR, 2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4, 8: cv2.IMREAD_REDUCED_COLOR_8}

    def decode(data, by):
        return cv2.imdecode(numpy.frombuffer(data, numpy.uint8), flags[by] | cv2.IMREAD_IGNORE_ORIENTATION)

    return decode, lambda image: image[..., ::-1]


def pyturbojpeg():
    import turbojpeg

    library = turbojpeg.TurboJPEG(os.environ.get("TURBOJPEG_LIBRARY"))
    decode = lambda data, by: library.decode(data, pixel_format=turbojpeg.TJPF_RGB, scaling_factor=(1, by))
    return decode, numpy.asarray


def simplejpeg():
    import simplejpeg

    def decode(data, by):
        if by == 1:
            return simplejpeg.decode_jpeg(data, "RGB")
        height, width = (-(-side // by) for side in simplejpeg.decode_jpeg_header(data)[:2])
        return simplejpeg.decode_jpeg(data, "RGB", min_height=height, min_width=width)

    return decode, numpy.asarray


def libjpeg_turbo_rs():
    built = pathlib.Path(__file__).parent / "peers-rs/jpeg/target/peers/libfoveate_peers_jpeg.so"
    if not built.exists():
        raise RuntimeError("it is not built; benches/README.md says how")
    function = ctypes.CDLL(built).decode
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.POINTER(ctypes.c_void_p)]
    function.restype = ctypes.c_size_t

    def decode(data, by):
        pixels = ctypes.c_void_p()
        if not (length := function(data, len(data), by, pixels)):
            raise ValueError("it refuses the photo")
        return pixels.value, length

    return decode, lambda image: numpy.frombuffer(ctypes.string_at(*image), numpy.uint8)


DECODERS = {
    "Pillow": pillow,
    "Pillow-array": pillow_array,
    "OpenCV-Python": opencv,
    "PyTurboJPEG": pyturbojpeg,
    "simplejpeg": simplejpeg,
    "libjpeg-turbo-rs": libjpeg_turbo_rs,
}


def decoder(name, case):
    """Loading a photo, work on what was loaded, and the result's samples."""
    decode, rgb = DECODERS[name]()

    def load(data):
        return data, divisor(Image.open(io.BytesIO(data)).size, int(case))

    return load, lambda photo: decode(*photo), rgb


# Resizers: each returns what it takes for an image, and functions to resize and to crop.


def resized(size, edge):
    """Width and height with a shorter side of `edge`, as `transformers` rounds."""
    return tuple(edge if side == min(size) else edge * side // min(size) for side in size)


def pillow_resizer(recipe, edge, side):
    if recipe == "squash":
        return Image.fromarray, lambda image: image.resize(side, Image.BILINEAR)

    def hf(image):
        size = resized(image.size, edge)
        left, top = ((of - to) // 2 for of, to in zip(size, side))
        return image.resize(size, Image.BICUBIC).crop((left, top, left + side[0], top + side[1]))

    return Image.fromarray, hf


def opencv_resizer(recipe, edge, side):
    import cv2

    cv2.setNumThreads(1)
    if recipe == "squash":
        return numpy.asarray, lambda image: cv2.resize(image, side, interpolation=cv2.INTER_LINEAR)

    def hf(image):
        """As programs with OpenCV do it: the mean of areas."""
        size = resized(image.shape[1::-1], edge)
        left, top = ((of - to) // 2 for of, to in zip(size, side))
        out = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
        return numpy.ascontiguousarray(out[top : top + side[1], left : left + side[0]])

    return numpy.asarray, hf


RESIZERS = {"Pillow": pillow_resizer, "OpenCV-Python": opencv_resizer}


def resizer(name, case):
    recipe, edge, side = case.split(",")
    wrap, resize = RESIZERS[name](recipe, int(edge), tuple(map(int, side.split("x"))))

    def load(data):
        header, pixels = data.split(b"\n", 1)
        _, width, height, _ = header.split()
        return wrap(numpy.frombuffer(pixels, numpy.uint8).reshape(int(height), int(width), 3))

    return load, resize, numpy.asarray


# Encoders: each takes the model's folder, its precision, a number of threads and the batch (u8 [batch, height, width, 3]),
# and returns a function of a batch that computes its vectors.

# Names that `transformers` 5 gives to layers in memory, and those in checkpoints.
RENAMED = {
    "attention.q_proj": "attention.attention.query",
    "attention.k_proj": "attention.attention.key",
    "attention.v_proj": "attention.attention.value",
    "attention.o_proj": "attention.output.dense",
}
# Of DINOv2 and DINOv3. The latter's pixels are floats, which graphs take normalized.
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
HIDDEN_HEADS_LAYERS = {"small": (384, 6, 12), "base": (768, 12, 12), "large": (1024, 16, 24)}


def seeded_values(name, shape):
    """The values of `seeded:` models, by the formula of crates/foveate-model/src/seeded.rs."""
    scaled = lambda gain: (0, gain * 3**0.5 / float(numpy.prod(shape[1:])) ** 0.5)
    if name.endswith("lambda1") or "norm" in name and name.endswith("weight"):
        center, amp = 1, 0.5
    elif "norm" in name and name.endswith("bias"):
        center, amp = 0, 0.35
    elif name.endswith("position_embeddings"):
        center, amp = 0, 0.5
    elif name.endswith(("cls_token", "register_tokens", "mask_token")):
        center, amp = 0, 0.87
    elif name.endswith("bias"):
        center, amp = 0, 0.17
    elif "patch_embeddings" in name:
        center, amp = scaled(1.5)
    elif ".query." in name or ".key." in name:
        center, amp = scaled(1.2)
    else:
        center, amp = scaled(1.4 if ".value." in name or "attention.output.dense" in name else 0.8)
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    index = numpy.arange(1, numpy.prod(shape) + 1, dtype=numpy.uint64)
    z = numpy.uint64(seed) + index * numpy.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    u = ((z ^ (z >> numpy.uint64(31))) >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-53
    return (center + amp * (2 * u - 1)).astype(numpy.float32).reshape(shape)


def seeded_model(name):
    import torch
    import transformers

    registers, size = "-with-registers" in name, name.rpartition("-")[2]
    if size not in HIDDEN_HEADS_LAYERS:
        raise ValueError(f"{name} is none of the sizes {', '.join(HIDDEN_HEADS_LAYERS)}")
    hidden, heads, layers = HIDDEN_HEADS_LAYERS[size]
    kind = "Dinov2WithRegisters" if registers else "Dinov2"
    sizes = {"hidden_size": hidden, "num_attention_heads": heads, "num_hidden_layers": layers}
    config = getattr(transformers, f"{kind}Config")(patch_size=14, image_size=518, **sizes)
    model = getattr(transformers, f"{kind}Model")(config)
    values = {}
    for key, of in model.state_dict().items():
        name = key
        for ours, stored in RENAMED.items():
            name = name.replace(ours, stored)
        values[key] = torch.from_numpy(seeded_values(name, of.shape))
    model.load_state_dict(values)
    return model


def pytorch(folder, dtype, threads, _):
    import torch
    import transformers

    torch.set_num_threads(threads)
    name, mean, std = (folder / "model.txt").read_text(), MEAN, STD
    if name.startswith("seeded:"):
        model = seeded_model(name.removeprefix("seeded:"))
    else:
        model, recipe = transformers.AutoModel.from_pretrained(name), transformers.AutoImageProcessor.from_pretrained(name)
        mean, std = recipe.image_mean, recipe.image_std
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    model = model.eval().to(dtype)
    mean, std = (torch.tensor(values, dtype=torch.float32).reshape(3, 1, 1) for values in (mean, std))

    @torch.inference_mode()
    def forward(batch):
        pixels = (torch.from_numpy(batch).permute(0, 3, 1, 2).float() / 255 - mean) / std
        return model(pixels.to(dtype)).last_hidden_state[:, 0].float().numpy()

    return forward


@functools.cache
def quantized_dynamically(folder):
    """The model with i8 weights by column, whose activations each product quantizes by their range (u8)."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared, quantized = folder / "prepared.onnx", folder / "model.i8.onnx"
    quant_pre_process(folder / "model.onnx", prepared)
    quantize_dynamic(prepared, quantized, op_types_to_quantize=["MatMul"], per_channel=True, weight_type=QuantType.QInt8)
    return quantized


def onnx_model(folder, dtype):
    return quantized_dynamically(folder) if dtype == "i8" else folder / "model.onnx"


def onnxruntime(folder, dtype, threads, _):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(onnx_model(folder, dtype), options, providers=["CPUExecutionProvider"])
    return lambda batch: numpy.concatenate(session.run(None, {session.get_inputs()[0].name: batch}), axis=1)


def openvino(folder, dtype, threads, batch):
    import openvino

    core = openvino.Core()
    model = core.read_model(folder / "model.onnx")
    settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    if dtype == "i8":  # what is not quantized has the precision that OpenVINO chooses
        import nncf

        images = nncf.Dataset([image[None] for image in batch])
        model = nncf.quantize(model, images, model_type=nncf.ModelType.TRANSFORMER, subset_size=len(batch))
    else:
        settings["INFERENCE_PRECISION_HINT"] = dtype
    model.reshape(batch.shape)
    model = core.compile_model(model, "CPU", settings)
    return lambda batch: numpy.concatenate(list(model([batch]).values()), axis=1)


def rust(library):
    """A library in the program of peers-rs, which reads the batch's file when it starts."""

    def opened(folder, dtype, threads, batch):
        built = pathlib.Path(__file__).parent / "peers-rs/target/peers/foveate-peers"
        program = os.environ.get("FOVEATE_PEERS", built)
        if not os.path.exists(program):
            raise RuntimeError("its program is not built; benches/README.md says how")
        arguments = [library, onnx_model(folder, dtype), folder / "0", threads, *batch.shape[:3]]
        # tract leaves some work to rayon's global threads if its own pool has one.
        limits = {**os.environ, "RAYON_NUM_THREADS": str(threads)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen([program, *map(str, arguments)], env=limits, **pipes)

        def forward(_):
            process.stdin.write(b"\n")
            process.stdin.flush()
            answer = process.stdout.readline().decode()
            if not answer.strip().isdigit():
                raise RuntimeError(answer.removeprefix("n/a ") or f"{program} ended")
            return numpy.frombuffer(process.stdout.read(int(answer)), numpy.float32)

        return forward

    return opened


ENCODERS = {
    "PyTorch:f32": pytorch,
    "PyTorch:bf16": pytorch,
    "ONNX-Runtime:f32": onnxruntime,
    "ONNX-Runtime:i8": onnxruntime,
    "OpenVINO:f32": openvino,
    "OpenVINO:bf16": openvino,
    "OpenVINO:i8": openvino,
    "rten:f32": rust("rten"),
    "rten:i8": rust("rten"),
    "tract:f32": rust("tract"),
    "tract:i8": rust("tract"),
}


def encoder(name, case):
    """Loading a batch, its forward, and its vectors."""
    threads, *shape = map(int, case.split(","))
    folder, dtype = pathlib.Path(sys.argv[2]), name.partition(":")[2]

    def load(data):
        is_float = len(data) > 3 * math.prod(shape)
        pixels = numpy.frombuffer(bytearray(data), numpy.float32 if is_float else numpy.uint8).reshape(*shape, 3)
        return numpy.float32((pixels / 255 - MEAN) / STD) if is_float else pixels

    forward = ENCODERS[name](folder, dtype, threads, load((folder / "0").read_bytes()))
    return load, forward, lambda vectors: numpy.ascontiguousarray(vectors, numpy.float32)


def one_line(error):
    return " ".join(f"{type(error).__name__}: {error}".split())


def keep_memory():
    """Keeps freed memory in the process. glibc returns a large array to the system when it is freed, so each photo would
    fault the same pages in anew, which a program that keeps its arrays does not pay."""
    trim_threshold, mmap_max = -1, -4  # M_TRIM_THRESHOLD, M_MMAP_MAX of <malloc.h>
    mallopt = getattr(ctypes.CDLL(None), "mallopt", lambda option, value: 0)
    mallopt(trim_threshold, -1)
    mallopt(mmap_max, 0)


def serve(names, open_one, folder):
    """Answers requests until there are no more."""
    keep_memory()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer
    folder, opened = pathlib.Path(folder), {}
    files = sorted(folder.glob("[0-9]*"), key=lambda file: int(file.name))

    def answer(command, name, case, number):
        if (name, case) not in opened:
            load, work, rgb = open_one(name, case)
            opened[name, case] = [load(file.read_bytes()) for file in files], work, rgb
        photos, work, rgb = opened[name, case]
        if command == "check":
            (folder / "out").write_bytes(rgb(work(photos[int(number)])).tobytes())
            return ["ok"]
        times = []
        for at in range(int(number)):
            started = time.perf_counter()
            work(photos[at % len(photos)])
            times.append((time.perf_counter() - started) * 1e3)
        return times

    print(*names, flush=True, file=answers)
    for line in sys.stdin:
        try:
            print(*answer(*line.split()), flush=True, file=answers)
        except Exception as error:  # usually a missing module
            print("n/a", one_line(error), flush=True, file=answers)


# Readers: each takes an input and a number of workers, and returns the number of images.


def prepare(image):
    """Samples of the image as models take it: what tells that it was decoded."""
    size = resized(image.size, 256)
    left, top = ((side - 224) // 2 for side in size)
    image = image.convert("RGB").resize(size, Image.BICUBIC).crop((left, top, left + 224, top + 224))
    return float(numpy.asarray(image)[::16, ::16].mean())


def prepare_file(path):
    return prepare(Image.open(path))


def read_pillow(folder, workers):
    paths = sorted(file.path for file in os.scandir(folder))
    with multiprocessing.Pool(workers) as pool:
        return len(pool.map(prepare_file, paths, chunksize=16))


def read_pyarrow(path, _):
    import pyarrow.parquet

    count = 0
    for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=100, columns=["image"]):
        for data in batch.column(0).field("bytes"):
            prepare(Image.open(io.BytesIO(data.as_buffer())))
            count += 1
    return count


def read_webdataset(pattern, workers):
    import webdataset

    dataset = webdataset.WebDataset(sorted(glob.glob(pattern)), shardshuffle=False).decode("pil").to_tuple("jpg")
    loader = webdataset.WebLoader(dataset.map_tuple(prepare), num_workers=workers, batch_size=32)
    return sum(len(means) for (means,) in loader)


def read_ray(source, workers):
    import ray

    if not ray.is_initialized():
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    tars = sorted(glob.glob(source)) if source.endswith(".tar") else None
    rows = ray.data.read_webdataset(tars) if tars else ray.data.read_images(source, mode="RGB")
    column = "jpg" if tars else "image"
    rows = rows.map(lambda row: {"mean": prepare(Image.fromarray(row[column]))})
    return sum(len(batch["mean"]) for batch in rows.iter_batches(batch_size=None))


def read(source, workers=2, rounds=3):
    end = source.rpartition(".")[2]
    readers = {"tar": [read_webdataset, read_ray], "parquet": [read_pyarrow]}.get(end, [read_pillow, read_ray])
    rates, failed = {reader: [] for reader in readers}, {}
    for at in range(int(rounds) + 1):
        for reader in readers[:: -1 if at % 2 else 1]:
            started = time.perf_counter()
            try:
                images = reader(source, int(workers)) if reader not in failed else 0
            except Exception as error:
                failed[reader] = f"n/a ({one_line(error)})"
            else:
                rates[reader] += [images / (time.perf_counter() - started)][: at > 0]  # the first round warms up
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow("reader version workers rounds status images_per_second images_per_second_min images_per_second_max".split())
    for reader in readers:
        name = reader.__name__.removeprefix("read_")
        figures = [f"{of(rates[reader]):.3f}" for of in (statistics.median, min, max)] if reader not in failed else [""] * 3
        version = importlib.metadata.version(name) if reader not in failed else ""
        table.writerow([name, version, workers, rounds, failed.get(reader, "ok"), *figures])


if __name__ == "__main__":
    experiment, *rest = sys.argv[1:] or ["help"]
    match experiment:
        case "decoders":
            serve(DECODERS, decoder, *rest)
        case "resizers":
            serve(RESIZERS, resizer, *rest)
        case "forward":
            serve(ENCODERS, encoder, *rest)
        case "read":
            read(*rest)
        case _:
            sys.exit(__doc__)
