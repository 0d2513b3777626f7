"""The files of examples/distributed do what docs/distributed.md says: their shards together are the single run.

Schedulers are not here. Each test runs a file's own commands or functions, shard by shard. The schemas of Kubernetes
and Argo come from ``kubernetes-validate`` and ``hera``; Flyte's and Modal's functions run in their own SDKs.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy
import numpy as np
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from conftest import MODEL, PHOTOS, PROGRAM, ROOT

EXAMPLES = ROOT / "examples/distributed"
SHARDS = 3


def check(output: Path, photos: list[Path], expected: list[bytes]) -> None:
    """The folder's rows, in the order of its files' names, are those of a single run."""
    parts = sorted(output.glob("part-*.parquet"))
    table = pq.read_table(parts)
    assert table["id"].to_pylist() == [str(photo) for photo in photos]
    assert [np.array(row, np.float32).tobytes() for row in table["embedding"].to_pylist()] == expected
    assert len(parts) == SHARDS


def run(command: list[str], **variables: str) -> None:
    path = f"{Path(PROGRAM).parent}:{os.environ['PATH']}"
    subprocess.run(command, env={**os.environ, "PATH": path, **variables}, check=True, stdout=subprocess.DEVNULL)


def manifest(name: str) -> dict:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((EXAMPLES / name).read_text())


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_guide_reads_shards_as_one(photos, expected, tmp_path, monkeypatch):
    """Runs the Python lines of docs/distributed.md on shards."""
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    tables, arrays = re.findall(r"```python\n(.*?)```", (ROOT / "docs/distributed.md").read_text(), re.DOTALL)
    read = {"glob": glob, "numpy": numpy, "pyarrow": pyarrow, "polars": polars, "duckdb": duckdb}
    for sink, lines in [("parquet", tables), ("npy", arrays)]:
        folder = tmp_path / sink
        for index in [2, 0, 1]:
            command = [PROGRAM, "embed", str(PHOTOS), f"--output={folder}/run/", f"--sink={sink}", f"--model={MODEL}"]
            run([*command, f"--shard={index}/{SHARDS}", "--quiet"])
        monkeypatch.chdir(folder)
        exec(lines, read)
    names, rows = zip(*read["rows"])
    for ids in [read["table"]["id"].to_pylist(), read["frame"]["id"].to_list(), list(read["ids"]), list(names)]:
        assert ids == [str(photo) for photo in photos]
    tables = [read["table"]["embedding"].to_pylist(), read["frame"]["embedding"].to_list()]
    for vectors in [*tables, read["vectors"], rows]:
        assert [np.array(row, np.float32).tobytes() for row in vectors] == expected


def test_slurm(photos, expected, tmp_path):
    output = tmp_path / "out"
    count = {"SLURM_ARRAY_TASK_COUNT": str(SHARDS), "SLURM_ARRAY_TASK_MIN": "0"}
    given = {"INPUTS": str(PHOTOS), "OUTPUT": str(output), "MODEL": MODEL, **count}
    for index in [2, 0, 1, 0]:
        run(["bash", str(EXAMPLES / "slurm.sh")], SLURM_ARRAY_TASK_ID=str(index), **given)
    check(output, photos, expected)
    missing = subprocess.run(["bash", EXAMPLES / "slurm.sh"], env={"PATH": os.environ["PATH"]}, capture_output=True)
    assert missing.returncode and b"INPUTS: the photos" in missing.stderr


def test_kubernetes(photos, expected, tmp_path):
    job = manifest("kubernetes.yaml")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    local = {"s3://photos/": str(PHOTOS), "--output=s3://vectors/run/": f"--output={tmp_path / 'out'}"}
    local |= {"--shard=auto/8": f"--shard=auto/{SHARDS}", "--model=facebook/dinov2-small": f"--model={MODEL}"}
    assert local.keys() <= set(container["args"]) and job["spec"]["completions"] == 8
    for index in range(SHARDS):
        command = [*container["command"], *(local.get(argument, argument) for argument in container["args"])]
        run(command, JOB_COMPLETION_INDEX=str(index))
    check(tmp_path / "out", photos, expected)
    pytest.importorskip("kubernetes_validate").validate(job, "1.31", strict=True)


def test_argo(photos, expected, tmp_path):
    workflow = manifest("argo.yaml")
    templates = {template["name"]: template for template in workflow["spec"]["templates"]}
    values = {"inputs": str(PHOTOS), "output": str(tmp_path / "out"), "model": MODEL, "shards": str(SHARDS)}
    names = {parameter["name"] for parameter in workflow["spec"]["arguments"]["parameters"]}
    assert values.keys() == names and templates["shards"]["steps"][0][0]["template"] == "embed"
    container = templates["embed"]["container"]
    for index in range(SHARDS):
        command = [*container["command"], *container["args"]]
        parameters = {f"workflow.parameters.{name}": value for name, value in values.items()}
        for name, value in {**parameters, "inputs.parameters.index": str(index)}.items():
            command = [argument.replace("{{" + name + "}}", value) for argument in command]
        run(command)
    check(tmp_path / "out", photos, expected)
    pytest.importorskip("hera.workflows.models").Workflow.model_validate(workflow)


def test_flyte(photos, expected, tmp_path):
    pytest.importorskip("flytekit")
    flyte = program("flyte")
    counts = flyte.embed_all(inputs=str(PHOTOS), output=str(tmp_path / "out"), shards=SHARDS, model=MODEL)
    assert sum(counts) == len(photos)
    check(tmp_path / "out", photos, expected)


def test_modal(photos, expected, tmp_path):
    pytest.importorskip("modal")
    modal_app = program("modal_app")
    shards = [f"{index}/{SHARDS}" for index in range(SHARDS)]
    counts = [modal_app.embed_shard.local(shard, str(PHOTOS), str(tmp_path / "out"), MODEL) for shard in shards]
    assert sum(counts) == len(photos)
    check(tmp_path / "out", photos, expected)
