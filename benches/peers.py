#!/usr/bin/env python3
"""Other libraries on the same photos.

usage: foveate bench decoders|resizers PHOTOS --peers benches/peers.py
       peers.py read INPUT [WORKERS [ROUNDS]]

Under `foveate bench`, it answers lines: `check NAME CASE N` and `time NAME CASE COUNT`, as crates/foveate-lab's
bench/peers.rs says. A missing module answers `n/a`, with the reason. PyTurboJPEG finds libturbojpeg (3.0 or newer) by the
variable TURBOJPEG_LIBRARY.

`read` prints a CSV: images per second from a folder, a pattern of tars or a Parquet file with decoding, resizing and
cropping, by Pillow, WebDataset, Ray Data and pyarrow. The readers take turns.
"""

import csv
import glob
import importlib.metadata
import io
import multiprocessing
import os
import pathlib
import statistics
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


DECODERS = {
    "Pillow": pillow,
    "Pillow-array": pillow_array,
    "OpenCV-Python": opencv,
    "PyTurboJPEG": pyturbojpeg,
    "simplejpeg": simplejpeg,
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


def one_line(error):
    return " ".join(f"{type(error).__name__}: {error}".split())


def serve(names, open_one, folder):
    """Answers requests until there are no more."""
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

    print(*names, flush=True)
    for line in sys.stdin:
        try:
            print(*answer(*line.split()), flush=True)
        except Exception as error:  # usually a missing module
            print("n/a", one_line(error), flush=True)


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
        case "read":
            read(*rest)
        case _:
            sys.exit(__doc__)
