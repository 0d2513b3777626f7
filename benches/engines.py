"""The throughput of foveate in Ray Data, Spark and Daft, against the command line, and against transformers there.

usage: engines.py PHOTOS OUT.csv [IMAGES [ROUNDS]]

All contestants embed the same files into a Parquet file, with the same weights and as many threads as there are cores,
in one process. Each has a process of its own in each round, and all take turns. The first job, of 32 images, tells the
start-up: all its time and that before it, without that of 32 images. A second one like it and one of IMAGES tell the
throughput, that of the additional images. foveate's vectors must be the command line's bits; those of transformers are
compared.
"""

import csv
import itertools
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import pyarrow
import pyarrow.dataset
import pyarrow.parquet

FEW, CORES = 32, os.cpu_count()
COLUMNS = (
    "host cores engine way version images threads rounds status start_up_seconds_median images_per_second_median "
    "images_per_second_min images_per_second_max cpu_ms_per_image_median ratio_to_command_line_median "
    "ratio_to_command_line_min ratio_to_command_line_max cpu_ratio_to_command_line_median least_cosine"
).split()


class Transformers:
    """The usual way: Pillow and the model's processor, one call for each batch."""

    def __init__(self, model):
        import torch
        from transformers import AutoImageProcessor, AutoModel

        torch.set_num_threads(CORES)
        self.torch, self.processor = torch, AutoImageProcessor.from_pretrained(model, backend="pil")
        self.model = AutoModel.from_pretrained(model).eval()

    def embed(self, images):
        import io

        import PIL.Image

        images = [PIL.Image.open(io.BytesIO(image)).convert("RGB") for image in images]
        with self.torch.inference_mode():
            inputs = self.processor(images=images, return_tensors="pt")
            return self.model(**inputs).pooler_output.numpy()

    def __call__(self, table):
        """A batch of Ray Data."""
        vectors = self.embed(table["bytes"].to_pylist())
        return pyarrow.table({"path": table["path"], "embedding": list(vectors)})


def command_line(model, _):
    import foveate

    def job(folder, out):
        program = [sys.executable, "-m", "foveate", "embed", folder, "-o", f"{out}/v.parquet", "--quiet"]
        subprocess.run([*program, f"--model={model}", f"--threads={CORES}"], check=True)

    return foveate.__version__, job


def python(model, is_ours):
    if is_ours:
        import foveate

        embedder = foveate.Embedder(model, threads=CORES)
    else:
        embedder = Transformers(model)

    def job(folder, out):
        files, vectors = sorted(map(str, pathlib.Path(folder).iterdir())), []
        # foveate batches by itself.
        step = len(files) if is_ours else FEW
        for first in range(0, len(files), step):
            images = [pathlib.Path(file).read_bytes() for file in files[first : first + step]]
            vectors.extend(embedder.embed(images))
        pyarrow.parquet.write_table(pyarrow.table({"path": files, "embedding": vectors}), f"{out}/v.parquet")

    return platform.python_version(), job


def ray(model, is_ours):
    import ray

    import foveate.ray

    # Ray's workers give way to other processes by default, the other contestants do not.
    os.environ["RAY_worker_niceness"] = "0"
    ray.data.DataContext.get_current().enable_progress_bars = False
    # Ray counts some more cores than there are, so that reading and writing need not wait for the embedder's.
    ray.init(num_cpus=CORES + 4, include_dashboard=False, log_to_driver=False)

    def job(folder, out):
        files = ray.data.read_binary_files(folder, include_paths=True)
        if is_ours:
            vectors = foveate.ray.embed(files, model, image="bytes", num_cpus=CORES)
        else:
            actors = ray.data.ActorPoolStrategy(size=1)
            options = {"compute": actors, "num_cpus": CORES, "fn_constructor_args": (model,)}
            vectors = files.map_batches(Transformers, batch_format="pyarrow", batch_size=FEW, **options)
        vectors.write_parquet(out)

    return ray.__version__, job


def spark(model, is_ours):
    import pandas
    import pyspark
    from pyspark.sql import SparkSession

    import foveate.spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.task.cpus", CORES)
    builder = builder.config("spark.ui.enabled", False).config("spark.driver.host", "localhost")
    session = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", 256 if is_ours else FEW).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")

    def usual(batches):
        embedder = Transformers(model)
        for batch in batches:
            yield pandas.DataFrame({"path": batch["path"], "embedding": list(embedder.embed(batch["content"]))})

    def job(folder, out):
        files = session.read.format("binaryFile").load(folder).select("path", "content").coalesce(1)
        if is_ours:
            vectors = foveate.spark.embed(files, model)
        else:
            vectors = files.mapInPandas(usual, "path string, embedding array<float>")
        vectors.write.mode("overwrite").parquet(out)

    return pyspark.__version__, job


def daft(model, is_ours):
    import daft

    import foveate.daft

    @daft.cls(use_process=False)
    class Usual:
        def __init__(self):
            self.embedder = Transformers(model)

        @daft.method.batch(return_dtype=daft.DataType.embedding(daft.DataType.float32(), 384), batch_size=FEW)
        def __call__(self, images):
            return list(self.embedder.embed(images.to_pylist()))

    usual = Usual()

    def job(folder, out):
        files = daft.from_glob_path(f"{folder}/*").select("path").with_column("image", daft.col("path").download())
        if is_ours:
            v = foveate.daft.embed(daft.col("image"), model, dim=384, cpus=CORES).get("embedding")
        else:
            v = usual(daft.col("image"))
        files.select("path", v.alias("embedding")).write_parquet(out)

    return daft.__version__, job


CONTESTANTS = [
    (command_line, True),
    *((engine, is_ours) for engine in (python, ray, spark, daft) for is_ours in (True, False)),
]


def contestant(engine, is_ours, model):
    """Prints `ready VERSION`, then answers `FOLDER OUT` with the wall and processor time of the job, or `n/a REASON`."""
    try:
        version, job = globals()[engine](model, is_ours == "True")
        print("ready", version, flush=True)
        for line in sys.stdin:
            wall, cpu = time.perf_counter(), processor_time()
            job(*line.split())
            print(time.perf_counter() - wall, processor_time() - cpu, flush=True)
    except Exception as error:
        print("n/a", " ".join(f"{type(error).__name__}: {error}".split()), flush=True)


def processor_time():
    """Seconds that this process, its children and all that these waited for have taken."""
    stats = [line for stat in pathlib.Path("/proc").glob("[0-9]*/stat") if (line := read(stat))]
    # Behind the name in brackets come state and parent; the times are fields 14 to 17.
    processes = {int(line.split()[0]): line.rpartition(")")[2].split() for line in stats}
    ours = {os.getpid()}
    while more := {pid for pid, fields in processes.items() if int(fields[1]) in ours} - ours:
        ours |= more
    return sum(int(ticks) for pid in ours for ticks in processes[pid][11:15]) / os.sysconf("SC_CLK_TCK")


def read(path):
    try:
        return path.read_text()
    except OSError:
        return ""


def vectors(out):
    table = pyarrow.dataset.dataset([str(path) for path in pathlib.Path(out).rglob("*.parquet")]).to_table()
    names = table["path" if "path" in table.column_names else "id"].to_pylist()
    return {pathlib.Path(name).name: numpy.array(row, "f4") for name, row in zip(names, table["embedding"].to_pylist())}


def measure(engine, is_ours, model, few, many, images):
    """Start-up, images per second, processor time of an image, and the vectors."""
    started = time.perf_counter()
    command = [sys.executable, __file__, "--contestant", engine.__name__, str(is_ours), model]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, text=True)

    def heard():
        for line in process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "n/a":
                raise RuntimeError(rest)
            if word == "ready" or word.replace(".", "").isdigit():
                return word, rest
        raise RuntimeError("it ended")

    def job(folder):
        out = tempfile.mkdtemp()
        process.stdin.write(f"{folder} {out}\n")
        process.stdin.flush()
        wall, cpu = heard()
        found = vectors(out)
        shutil.rmtree(out)
        return float(wall), float(cpu), found

    try:
        version = heard()[1]
        ready = time.perf_counter() - started
        wall_first, *_ = job(few)
        wall_few, cpu_few, _ = job(few)
        wall, cpu, found = job(many)
    finally:
        process.stdin.close()
        process.wait(60)
    more = images - FEW
    per_image = (wall - wall_few) / more
    return version, ready + wall_first - FEW * per_image, 1 / per_image, 1000 * (cpu - cpu_few) / more, found


def least_cosine(found, expected):
    assert found.keys() == expected.keys(), f"{len(found)} vectors of {len(expected)}"
    unit = lambda row: row / numpy.linalg.norm(row)
    return min(float(unit(found[name]) @ unit(row)) for name, row in expected.items())


def seeded(folder):
    """DINOv2-small with random weights, as a folder that transformers and foveate read."""
    import torch
    from transformers import BitImageProcessor, Dinov2Config, Dinov2Model

    torch.manual_seed(0)
    config = Dinov2Config(hidden_size=384, num_attention_heads=6, image_size=518, patch_size=14)
    Dinov2Model(config).save_pretrained(folder)
    processor = BitImageProcessor(
        size={"shortest_edge": 256},
        crop_size={"height": 224, "width": 224},
        image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
    )
    processor.save_pretrained(folder)
    return folder


def folder_of(photos, images, folder):
    """`images` files: the photos, again and again, each with other bytes behind its end: none is computed only once."""
    os.makedirs(folder)
    for n, photo in zip(range(images), itertools.cycle(sorted(pathlib.Path(photos).glob("*.jpg")))):
        pathlib.Path(f"{folder}/{n:05}.jpg").write_bytes(photo.read_bytes() + n.to_bytes(4, "little"))
    return folder


def main(photos, out, images=96, rounds=3):
    images, rounds, work = int(images), int(rounds), tempfile.mkdtemp()
    model = seeded(f"{work}/model")
    few, many = folder_of(photos, FEW, f"{work}/few"), folder_of(photos, images, f"{work}/many")
    found, failed = {}, {}
    for _ in range(rounds):
        for one in CONTESTANTS:
            try:
                found.setdefault(one, []).append(measure(*one, model, few, many, images))
                print(one[0].__name__, "foveate" if one[1] else "transformers", *found[one][-1][:-1], flush=True)
            except Exception as error:
                failed[one] = f"n/a ({' '.join(str(error).split())})"
                print(one[0].__name__, one[1], failed[one], flush=True)
    shutil.rmtree(work)
    write(out, images, rounds, found, failed)


def write(out, images, rounds, found, failed):
    _, _, reference_rates, reference_costs, (expected, *_) = zip(*found[CONTESTANTS[0]])
    with open(out, "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for one in CONTESTANTS:
            engine, is_ours = one
            named = [host(), CORES, engine.__name__.replace("_", " "), "foveate" if is_ours else "transformers"]
            if one in failed:
                table.writerow([*named, "", images, CORES, rounds, failed[one], *[""] * 10])
                continue
            versions, starts, rates, costs, all_found = zip(*found[one])
            cosine = least_cosine(all_found[-1], expected)
            if is_ours:
                same = all((all_found[-1][name] == row).all() for name, row in expected.items())
                assert same, f"{engine.__name__}: vectors differ from the command line's"
            # Both of a ratio are of one round: what else the machine does changes between rounds.
            ratios = [rate / reference for rate, reference in zip(rates, reference_rates)]
            cpu_ratios = [cost / reference for cost, reference in zip(costs, reference_costs)]
            median = statistics.median
            figures = [median(starts), median(rates), min(rates), max(rates), median(costs)]
            figures += [median(ratios), min(ratios), max(ratios), median(cpu_ratios)]
            figures = [f"{figure:.3f}" for figure in figures]
            table.writerow([*named, versions[0], images, CORES, rounds, "ok", *figures, f"{cosine:.7f}"])


def host():
    with open("/proc/cpuinfo") as file:
        return next(line.split(": ")[1].strip() for line in file if line.startswith("model name"))


if __name__ == "__main__":
    if sys.argv[1] == "--contestant":
        contestant(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
