"""Calls that wait for a network can be interrupted, and say what they wait for. Iterators are read as they are needed."""

from __future__ import annotations

import asyncio
import hashlib
import http.server
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import foveate
from conftest import MODEL, PHOTOS, ROOT

TINY = ROOT / "tests/fixtures/models/tiny"


class Server(http.server.ThreadingHTTPServer):
    """A hub whose weights come slowly, and a store that does not answer, until it may :attr:`go_on`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.is_asked, self.go_on = threading.Event(), threading.Event()
        self.asked: list[object] = []
        self.address = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_: object) -> None:
        """Clients may go."""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None: ...

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        file = TINY / self.path.rsplit("/", 1)[-1]
        if file.name == "busy.jpg":
            self.server.asked.append(file)
            return self.send_error(503)
        if file.name == "listed.jpg" and self.path not in self.server.asked:
            # To list it, only the answer's head is read.
            self.server.asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            return self.end_headers()
        if not file.is_file():
            self.server.is_asked.set()
            self.server.go_on.wait()
            return self.send_error(404)
        content = file.read_bytes()
        self.send_response(200)
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "HEAD":
            return
        sent = 0
        while file.suffix == ".safetensors" and not self.server.go_on.wait(0.2):
            # A little, so that no client loses its patience.
            self.wfile.write(content[sent : sent + 1])
            sent += 1
            self.server.is_asked.set()
        self.wfile.write(content[sent:])


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server
        server.go_on.set()
        server.shutdown()


#: A call that Ctrl-C interrupts; then it may exit in peace.
INTERRUPTED = """
import signal, sys, foveate
photos, model, address, output = sys.argv[1:]
store = {{"endpoint": address, "anonymous": "true", "region": "r"}}
try:
    {call}
except KeyboardInterrupt:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("interrupted")
"""

CALLS = {
    "download for a list": 'foveate.Embedder("org/slow").embed([photos])',
    "download for a stream": 'next(foveate.embed_files(photos, model="org/slow"))',
    "download for a job": 'foveate.embed(photos, output=output, model="org/slow")',
    "listing of a stream": 'foveate.embed_files("s3://bucket/", store_option=store, model=model)',
    "listing of a job": 'foveate.embed("s3://bucket/", output=output, store_option=store, model=model)',
    "reading of a list": 'foveate.Embedder(model).embed([address + "/x.jpg"])',
    "reading of a stream": 'next(foveate.embed_files(address + "/listed.jpg", model=model))',
    "reading of a job": 'foveate.embed(address + "/listed.jpg", output=output, model=model)',
}


def started(program: str, server: Server, *args: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "HF_ENDPOINT": server.address, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", program, *args]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_ends_a_call_that_waits_for_a_network(call, server, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    program = INTERRUPTED.format(call=CALLS[call])
    process = started(program, server, str(PHOTOS), MODEL, server.address, str(tmp_path / "v.npy"))
    assert server.is_asked.wait(60), "the call waits"
    process.send_signal(signal.SIGINT)
    if call == "reading of a job":
        # The first one waits a while for the batches in flight.
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "interrupted\n"), errors


@pytest.mark.parametrize("call", [call for call in CALLS if "download" in call])
def test_a_download_shows_its_progress(call, server, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    program, args = INTERRUPTED.format(call=CALLS[call]), (str(PHOTOS), MODEL, server.address)
    process = started(program, server, *args, str(tmp_path / "v.npy"))
    said = ""
    while not re.search(r"model.safetensors: +0%\|.*1.1\d?M", said):
        letter = process.stderr.read(1)
        assert letter, said
        said += letter
    server.go_on.set()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and "model.safetensors: 100%" in errors, errors
    quiet = started(program, server, *args, str(tmp_path / "w.npy"))
    assert quiet.communicate(timeout=60)[1] == "", "it is downloaded once"


STREAMED = """
import resource, sys, numpy as np, foveate
embedder = foveate.Embedder(sys.argv[1], batch=8, recent_memory="off")
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
def images(count):
    for number in range(count):
        yield np.full((600, 800, 3), number % 256, np.uint8)
embedder.embed(images(80))
before = peak()
assert embedder.encode(images(500)).shape[0] == 500
print(peak() - before)
"""


def test_an_iterator_is_read_as_it_is_needed():
    done = subprocess.run([sys.executable, "-c", STREAMED, MODEL], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100_000, "kB; all arrays have 720 000"


def test_an_arrow_stream_is_read_as_it_is_needed():
    image = b"BM" + bytes(2_000_000)
    most = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for _ in range(100):
            yield pa.record_batch({"image": pa.array([image], pa.binary())})
            most = max(most, pa.total_allocated_bytes())

    reader = pa.RecordBatchReader.from_batches(pa.schema({"image": pa.binary()}), batches())
    batch = foveate.Embedder(MODEL, workers=1).embed_arrow(reader)
    assert len(batch) == 100 and most < 120_000_000, "bytes; all images have 200 000 000"


def test_batches_of_an_iterator(contents, expected):
    embedder = foveate.Embedder(MODEL)
    read = []
    images = (read.append(number) or content for number, content in enumerate([*contents[:5], b"no image"]))
    batches = embedder.embed_iter(images, rows=2)
    first = pa.record_batch(next(batches))
    assert len(first) == 2 and len(read) == 2, "no further than needed"
    table = pa.Table.from_batches([first, *map(pa.record_batch, batches)])
    assert [np.array(row, np.float32).tobytes() for row in table["embedding"].to_pylist()[:5]] == expected[:5]
    assert [error and error.split(":")[0] for error in table["error"].to_pylist()] == [None] * 5 + ["decode"]


def test_an_iterators_error_ends_the_call(contents, expected):
    def images() -> Iterator[bytes]:
        yield from contents
        raise RuntimeError("enough")

    embedder = foveate.Embedder(MODEL)
    with pytest.raises(RuntimeError, match="enough"):
        embedder.embed(images())
    assert [row.tobytes() for row in embedder.encode(iter(contents))] == expected
    assert embedder.encode(iter([])).shape == (0, embedder.dim)
    assert np.isnan(embedder.encode(iter([None]))).all()


def test_a_stream_is_closed_from_another_thread(server):
    stream = foveate.embed_files([f"{server.address}/{n}/listed.jpg" for n in range(100)], model=MODEL, batch=1)
    threading.Thread(target=lambda: (server.is_asked.wait(), stream.close())).start()
    assert list(stream) == []


def test_asyncios_cancellation_closes_a_stream(server):
    read = []

    async def job() -> None:
        with foveate.embed_files(f"{server.address}/listed.jpg", model=MODEL) as stream:
            await asyncio.to_thread(lambda: read.append(next(stream, None)))

    async def main() -> None:
        task = asyncio.create_task(job())
        await asyncio.to_thread(server.is_asked.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert read == [None], "its end, not the failure of an image"


def test_an_address_is_given_up_after_the_timeout(server, contents, expected):
    embedder = foveate.Embedder(MODEL, timeout=0.5)
    vectors, errors = embedder.embed([f"{server.address}/x.jpg", contents[0]])
    assert vectors[1].tobytes() == expected[0] and (errors[0].stage, errors[1]) == ("read", None)
    assert not server.go_on.is_set(), "the store has not answered"


def test_requests_are_repeated_for_some_time(server):
    asked = server.asked
    (error,) = foveate.Embedder(MODEL, retry_for=0).embed([f"{server.address}/busy.jpg"]).errors
    assert error.stage == "read" and "503" in error.reason
    first = len(asked)
    foveate.Embedder(MODEL, retry_for=1).embed([f"{server.address}/busy.jpg"])
    assert len(asked) > 2 * first
