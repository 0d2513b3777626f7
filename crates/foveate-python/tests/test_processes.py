"""Embedders in other processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading

import pytest

import foveate
from conftest import MODEL


def embed(embedder: foveate.Embedder, contents: list[bytes]) -> list[bytes]:
    return [row.tobytes() for row in embedder.encode(contents)]


def test_an_embedder_pickles_as_its_options(contents, expected):
    embedder = foveate.Embedder(MODEL, batch=5, on_error="raise")
    assert embed(embedder, contents) == expected
    data = pickle.dumps(embedder)
    assert len(data) < 1000
    copy = pickle.loads(data)
    assert repr(copy) == repr(embedder) and embed(copy, contents) == expected
    with pytest.raises(foveate.ItemError) as raised:
        copy.embed([b"no image"])
    error = pickle.loads(pickle.dumps(raised.value))
    assert (error.item, error.stage, str(error)) == ("image 0", "decode", str(raised.value))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_embedders_work_in_other_processes(method, contents, expected):
    # Open, and with a model whose weights were generated in parallel.
    embedder, seeded = foveate.Embedder(MODEL), foveate.Embedder("seeded:dinov2-small")
    assert embed(embedder, contents) == expected
    vectors = embed(seeded, contents[:1])
    with multiprocessing.get_context(method).Pool(2) as pool:
        results = [pool.apply_async(embed, (embedder, contents)) for _ in range(4)]
        assert all(result.get(timeout=120) == expected for result in results)
        assert pool.apply_async(embed, (seeded, contents[:1])).get(timeout=120) == vectors
    assert embed(embedder, contents) == expected


@pytest.mark.parametrize("cache", [False, True])
def test_a_fork_in_the_middle_of_a_call_works(contents, expected, cache, tmp_path):
    embedder = foveate.Embedder(MODEL, batch=1, cache=tmp_path if cache else None)
    calls = [threading.Thread(target=embed, args=(embedder, contents * 4)) for _ in range(2)]
    for call in calls:
        call.start()
    child = os.fork()
    if child == 0:
        os._exit(0 if embed(embedder, contents) == expected else 1)
    assert os.waitpid(child, 0)[1] == 0
    for call in calls:
        call.join()
