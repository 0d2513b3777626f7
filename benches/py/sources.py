"""Python's readers for benches/sources: `pixels INPUT` and `check INPUT IMAGES FILE`.

usage: sources.py Pillow|pyarrow|WebDataset|Ray WORKERS

Each decodes with Pillow, resizes to a shorter side of 256 with the bicubic filter, and crops the 224 x 224 pixels in the
middle, in the processes where its library does that. `pixels` answers wall time, processor time of all its processes,
images, and the mean of some samples of every image. `check` writes the pixels of the first images, by name.
"""

import glob
import io
import itertools
import multiprocessing
import os
import pathlib
import sys
import time

import numpy
import PIL
from PIL import Image

from contest import contend, timed

EDGE, CROP, GRID = 256, 224, 16


def pixels(image):
    width, height = image.size
    size = (EDGE, EDGE * height // width) if width <= height else (EDGE * width // height, EDGE)
    image = image.convert("RGB").resize(size, Image.BICUBIC)
    left, top = (size[0] - CROP) // 2, (size[1] - CROP) // 2
    return numpy.asarray(image.crop((left, top, left + CROP, top + CROP)))


def sample(image):
    """The mean of the samples at every 16th row and column: what tells that the image was decoded, at little cost."""
    return float(pixels(image)[::GRID, ::GRID].mean())


def shards(pattern):
    return sorted(glob.glob(pattern))


class Reader:
    """`work` is applied to images of `input`; `named` are the images with names, in any order, for the comparison."""

    version = f"Pillow {PIL.__version__}"

    def __init__(self, workers):
        self.workers = workers


def sample_file(path):
    return sample(Image.open(path))


class Pillow(Reader):
    def samples(self, folder):
        files = sorted(os.scandir(folder), key=lambda entry: entry.name)
        paths = [file.path for file in files]
        if self.workers == 0:
            return [sample_file(path) for path in paths]
        with multiprocessing.Pool(self.workers) as pool:
            return pool.map(sample_file, paths, chunksize=16)

    def named(self, folder, count):
        return [(path.name, pixels(Image.open(path))) for path in sorted(pathlib.Path(folder).iterdir())[:count]]


class PyArrow(Reader):
    def __init__(self, workers):
        import pyarrow.parquet

        super().__init__(workers)
        self.open = pyarrow.parquet.ParquetFile
        self.version = f"pyarrow {pyarrow.__version__}; {self.version}"

    def images(self, path):
        for batch in self.open(path).iter_batches(batch_size=100, columns=["image"]):
            column = batch.column(0)
            for data, name in zip(column.field("bytes"), column.field("path")):
                yield str(name), Image.open(io.BytesIO(data.as_buffer()))

    def samples(self, path):
        return [sample(image) for _, image in self.images(path)]

    def named(self, path, count):
        return [(name, pixels(image)) for name, image in itertools.islice(self.images(path), count)]


class WebDataset(Reader):
    def __init__(self, workers):
        import torch
        import webdataset

        super().__init__(workers)
        self.wds = webdataset
        torch.set_num_threads(1)
        self.version = f"webdataset {webdataset.__version__}; torch {torch.__version__}; {self.version}"

    def dataset(self, pattern):
        return self.wds.WebDataset(shards(pattern), shardshuffle=False).decode("pil").to_tuple("__key__", "jpg")

    def samples(self, pattern):
        dataset = self.dataset(pattern).map_tuple(str, sample)
        loader = self.wds.WebLoader(dataset, num_workers=self.workers, batch_size=32)
        return [float(mean) for _, means in loader for mean in means]

    def named(self, pattern, count):
        return [(key, pixels(image)) for key, image in itertools.islice(self.dataset(pattern), count)]


class Ray(Reader):
    def __init__(self, workers):
        import ray

        super().__init__(workers)
        self.ray = ray
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        ray.data.DataContext.get_current().enable_progress_bars = False
        self.version = f"ray {ray.__version__}; {self.version}"

    def read(self, source, count=None):
        """Images, and the names of their columns of pixels and of names."""
        if "*" in source:
            return self.ray.data.read_webdataset(shards(source)[: 1 if count else None]), "jpg", "__key__"
        files = [str(path) for path in sorted(pathlib.Path(source).iterdir())[:count]] if count else source
        return self.ray.data.read_images(files, mode="RGB", include_paths=True), "image", "path"

    def samples(self, source):
        rows, image, _ = self.read(source)
        rows = rows.map(lambda row: {"mean": sample(Image.fromarray(row[image]))})
        return [float(mean) for batch in rows.iter_batches(batch_size=None) for mean in batch["mean"]]

    def named(self, source, count):
        rows, image, name = self.read(source, count)
        rows = rows.map(lambda row: {"name": row[name], "pixels": pixels(Image.fromarray(row[image]))})
        return sorted(((row["name"], row["pixels"]) for row in rows.take_all()), key=lambda row: row[0])[:count]


READERS = {
    "Pillow": Pillow,
    "pyarrow": PyArrow,
    "WebDataset": WebDataset,
    "Ray": Ray,
}


def processor_time():
    """Processor time in seconds of this process and of all below it, ended ones included."""
    tick, children, seconds = os.sysconf("SC_CLK_TCK"), {}, {}
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            fields = open(stat).read().rpartition(")")[2].split()
        except OSError:
            continue  # it ended
        process = int(stat.split("/")[2])
        children.setdefault(int(fields[1]), []).append(process)
        seconds[process] = sum(map(int, fields[11:15])) / tick
    times = os.times()
    total, below = time.process_time() + times.children_user + times.children_system, [os.getpid()]
    while below:
        of = children.get(below.pop(), [])
        total += sum(seconds[process] for process in of)
        below += of
    return total


def start():
    reader = READERS[sys.argv[1]](int(sys.argv[2]))

    def answer(words):
        command, source, *rest = words
        if command == "pixels":
            means = []
            times = timed(processor_time, lambda: means.extend(reader.samples(source)))
            return *times, len(means), sum(means) / len(means)
        count, file = int(rest[0]), rest[1]
        named = reader.named(source, count)
        with open(file, "wb") as out:
            for _, image in named:
                out.write(image.tobytes())
        return (len(named),)

    return reader.version, answer


if __name__ == "__main__":
    contend(start)
