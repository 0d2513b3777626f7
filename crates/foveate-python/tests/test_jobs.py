"""Whole jobs: streams, outputs, reports, the command line, and Ctrl-C."""

from __future__ import annotations

import importlib.metadata
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foveate
from conftest import MODEL, PHOTOS, PROGRAM


def test_a_stream_has_the_jobs_rows_in_order(photos, expected, tmp_path):
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"no image")
    with foveate.embed_files([PHOTOS, bad], model=MODEL, batch=4) as stream:
        table = pa.Table.from_batches([pa.record_batch(batch) for batch in stream])
    assert table["id"].to_pylist() == [*map(str, photos), str(bad)]
    vectors = table["embedding"].to_pylist()
    assert [np.array(vector, np.float32).tobytes() for vector in vectors[:-1]] == expected
    assert vectors[-1] is None and table["error"][-1].as_py().startswith("decode: ")
    assert pa.table(foveate.embed_files([PHOTOS, bad], model=MODEL)) == table.combine_chunks()


def test_shards_make_up_the_whole(photos):
    ids = [pa.table(foveate.embed_files(PHOTOS, model=MODEL, shard=f"{n}/3"))["id"].to_pylist() for n in range(3)]
    assert sum(ids, []) == [str(photo) for photo in photos]


def test_a_stream_that_is_left_stops(photos):
    before = threading.active_count()
    stream = foveate.embed_files(PHOTOS, model=MODEL, batch=1)
    assert len(next(stream)) == 1
    stream.close()
    assert list(stream) == []
    for batch in foveate.embed_files(PHOTOS, model=MODEL, batch=1):
        break
    assert threading.active_count() == before


def test_a_stream_says_why_it_cannot_start(tmp_path):
    with pytest.raises(foveate.FoveateError, match="missing"):
        foveate.embed_files("missing", model=MODEL)
    with pytest.raises(foveate.FoveateError, match="no inputs"):
        foveate.embed_files(tmp_path, model=MODEL)
    with pytest.raises(ValueError, match="'colour'"):
        foveate.embed_files(PHOTOS, colour="red")


def test_a_job_returns_its_report_and_is_done_once(photos, expected, tmp_path):
    output, calls = tmp_path / "v.parquet", []
    report = foveate.embed(PHOTOS, output=output, model=MODEL, progress=lambda *counts: calls.append(counts))
    count = len(photos)
    assert (report["status"], report["vectors"], report["failures"]) == ("complete", count, 0)
    assert calls[-1] == (count, count, 0)
    vectors = pq.read_table(output)["embedding"].to_pylist()
    assert [np.array(vector, np.float32).tobytes() for vector in vectors] == expected
    assert foveate.embed(PHOTOS, output=output, model=MODEL)["status"] == "already complete"
    with pytest.raises(foveate.FoveateError, match="another job"):
        foveate.embed(PHOTOS, output=output, model=MODEL, pooling="mean")
    with pytest.raises(foveate.FoveateError, match="missing"):
        foveate.embed("missing", output=output, model=MODEL)


def test_a_bar_shows_images_failures_and_rate(contents, capsys, tmp_path):
    embedder, images = foveate.Embedder(MODEL), [*contents, b"no image"]
    calls = [
        lambda: embedder.embed(images, progress=True),
        lambda: list(foveate.embed_files(PHOTOS, model=MODEL, progress=True)),
        lambda: foveate.embed(PHOTOS, output=tmp_path / "v.npy", model=MODEL, progress=True),
    ]
    for call, count, failures in zip(calls, (len(images), len(contents), len(contents)), (1, 0, 0), strict=True):
        call()
        last = capsys.readouterr().err.rstrip().rsplit("\r", 1)[-1]
        assert "100%" in last and f"{count}/{count}" in last, last
        assert ("failures=1" in last) == bool(failures) and (" images/s" in last or "s/ images" in last), last


def test_progress_without_a_known_number(contents):
    calls = []
    foveate.Embedder(MODEL).embed(iter(contents), progress=lambda *counts: calls.append(counts))
    assert calls[-1] == (len(contents), None, 0)


def test_an_error_in_progress_stops_the_job(tmp_path):
    def raising(*_):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        foveate.embed(PHOTOS, output=tmp_path / "v.npy", model="seeded:dinov2-base", threads=1, progress=raising)


#: A call that takes minutes, interrupted by Ctrl-C after its first batch could be done.
INTERRUPTED = """
import os, signal, sys, threading, foveate
photos, model, kind, output = sys.argv[1:]
files = sorted(os.path.join(photos, name) for name in os.listdir(photos)) * 100
threading.Timer(1.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    if kind == "list":
        foveate.Embedder(model, batch=1, recent_memory="off").embed(files)
    elif kind == "stream":
        for batch in foveate.embed_files([photos] * 100, model=model, batch=1, recent_memory="off"):
            pass
    else:
        foveate.embed([photos] * 100, output=output, model=model, batch=1, commit_every=0, recent_memory="off")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("kind", ["list", "stream", "job"])
def test_ctrl_c_raises_keyboard_interrupt(kind, tmp_path):
    output = tmp_path / "v.npy"
    command = [sys.executable, "-c", INTERRUPTED, str(PHOTOS), "seeded:dinov2-small", kind, str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


def test_ctrl_c_ends_the_command_line_as_its_own(tmp_path):
    command = [PROGRAM, "embed", *[str(PHOTOS)] * 100, "-o", str(tmp_path / "v.npy"), "--model=seeded:dinov2-small"]
    command.append("--recent-memory=off")
    job = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert job.stderr is not None
    next(line for line in job.stderr if "threads:" in line)
    job.send_signal(signal.SIGINT)
    said = job.stderr.read()
    assert job.wait() == 130 and "interrupted" in said and "Traceback" not in said


def test_exit_codes_are_the_command_lines(tmp_path):
    def code(*args: str) -> int:
        return subprocess.run([PROGRAM, *args], capture_output=True).returncode

    assert code("--help") == 0
    assert code("embed", "missing", "-o", str(tmp_path / "v.npy")) == 2
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"no image")
    assert code("embed", str(bad), "-o", str(tmp_path / "v.npy"), "--model", MODEL) == 3
    module = [sys.executable, "-m", "foveate", "--version"]
    assert subprocess.run(module, capture_output=True, text=True).stdout == f"foveate {foveate.__version__}\n"
    shell = subprocess.run([PROGRAM, "completions", "bash"], capture_output=True, text=True)
    assert shell.stdout.endswith("\nfi\n") and shell.returncode == 0


def test_the_wheel_holds_its_licences():
    names = {Path(str(file)).name for file in importlib.metadata.files("foveate")}
    assert {"LICENSE-APACHE", "LICENSE-MIT"} <= names
    assert "How it is built" not in importlib.metadata.metadata("foveate").get_payload()


def test_the_wheel_is_tested_not_the_source_tree():
    assert "site-packages" in foveate.__file__
