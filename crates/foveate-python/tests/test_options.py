"""Options are obeyed or refused, and their errors speak Python."""

from __future__ import annotations

import logging
import re
import subprocess
from typing import get_type_hints

import pytest

import foveate
from conftest import MODEL, PHOTOS, PROGRAM
from foveate import _options
from foveate._foveate import Batches
from foveate._options import JobOptions


def command(*args: str) -> str:
    """What the command line says."""
    done = subprocess.run([PROGRAM, "embed", *args], capture_output=True, text=True)
    return done.stdout + done.stderr


def test_the_list_has_every_option_of_the_command():
    known = set(get_type_hints(JobOptions)) - {"retry_for"}
    of_help = {name.replace("-", "_") for name in re.findall(r"^ +(?:-\w, )?--([a-z-]+)", command("--help"), re.M)}
    assert of_help - known == {*_options._OF_COMMAND, "output", "help"}
    for name in known:
        flag = f"--{name.replace('_', '-')}"
        with pytest.raises(ValueError) as raised:
            Batches([flag, "--colour", "x"])
        assert "--colour" in str(raised.value), f"{flag} is unknown"


def test_possible_values_are_the_commands():
    for name, hint in get_type_hints(JobOptions).items():
        possible, flag = _options._possible(hint), f"--{name.replace('_', '-')}"
        said = command("x", "-o", "y", f"{flag}=?")
        of_command = re.search(r"\[possible values: (.*)\]", said)
        assert not of_command or of_command[1].split(", ") == possible
        for value in possible:
            assert "invalid value" not in command("missing", "-o", "y", f"{flag}={value}"), (name, value)


@pytest.mark.parametrize(
    "call, refused, says",
    [
        (foveate.Embedder, {"limit": 3}, "Embedder does not take 'limit'; it is an option of foveate.embed_files"),
        (foveate.Embedder, {"output": "x"}, "Embedder does not take 'output'; it is an option of foveate.embed"),
        (foveate.embed_files, {"columns": "url"}, "does not take 'columns'; it is an option of foveate.embed"),
        (foveate.embed_files, {"out_dtype": "f16"}, "embed_files does not take 'out_dtype'; it is an option of"),
        (foveate.embed_files, {"dry_run": True}, "does not take 'dry_run'; run the command `foveate embed`"),
        (foveate.embed, {"output": "x.npy", "update": True}, "embed does not take 'update'; run the command"),
        (foveate.embed, {"output": "x.npy", "batch_size": 3}, r"'batch_size'; did you mean 'batch'\? its options: "),
        (foveate.embed, {"output": "x.npy", "out_dtype": "f64"}, "out_dtype is 'f64'; possible values: f32, f16$"),
        (foveate.Embedder, {"dtype": "f64"}, "dtype is 'f64'; possible values: f32, f16, bf16, i8$"),
        (foveate.Embedder, {"batch": 0}, "^invalid value '0' for 'batch': expected a whole number from 1$"),
        (foveate.Embedder, {"device": "gpu"}, "^device gpu unavailable: encoder fused runs on cpu$"),
        (foveate.Embedder, {"decoder": "pillow"}, "'pillow'"),
        (foveate.Embedder, {"timeout": -1.0}, "'timeout'"),
        (foveate.embed_files, {"timeout": 1}, "it is an option of foveate.Embedder"),
        (foveate.embed_files, {"shard": "8"}, "^invalid value '8' for 'shard': "),
    ],
)
def test_what_would_be_ignored_or_cannot_work_is_refused(call, refused, says):
    with pytest.raises(ValueError, match=says):
        call(MODEL if call is foveate.Embedder else PHOTOS, **refused)


def test_an_error_says_its_text_once(tmp_path):
    for call in (foveate.embed_files, lambda *args, **options: foveate.embed(*args, output=tmp_path / "v.npy", **options)):
        with pytest.raises(foveate.FoveateError) as raised:
            call("s3://photos/", store_option={"endpoint": "http://127.0.0.1:9", "retry-for": 0}, model=MODEL)
        parts = str(raised.value).split(": ")
        assert len(parts) == len(set(parts)) and "127.0.0.1:9" in str(raised.value), parts


def test_f32_on_a_gpu_is_a_warning(caplog):
    for options, warned in [
        ({"device": "cuda:1"}, True),
        ({"device": "cuda:1", "dtype": "f16"}, False),
        ({"device": "cuda:1", "dtype": "f32"}, False),
        ({}, False),
    ]:
        caplog.clear()
        foveate.Embedder(MODEL, **options)
        said = [(record.name, record.levelno, "dtype='f16'" in record.message) for record in caplog.records]
        assert said == [("foveate", logging.WARNING, True)] * warned
    with pytest.raises(foveate.FoveateError):
        foveate.embed_files(PHOTOS, model=MODEL, device="cuda:1")
    assert "cuda:1 computes in f32" in caplog.text


def test_unknown_models_fail_in_the_constructor(tmp_path):
    for unknown, says in [("dinov2-smal", "neither an existing folder"), ("seeded:dinov2", "dinov2-small")]:
        with pytest.raises(ValueError, match=says):
            foveate.Embedder(unknown)
    # It may be there where the embedder goes, as a GPU may be.
    foveate.Embedder(tmp_path / "missing", device="cuda:9", dtype="f16")


@pytest.mark.parametrize("call", [foveate.embed_files, lambda *args: foveate.embed(*args, output="v.npy")])
def test_no_inputs_are_refused(call):
    with pytest.raises(ValueError, match="^no inputs; pass at least one file"):
        call([])


def test_a_job_without_a_vector_is_an_error(tmp_path):
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"no image")
    for _ in range(2):
        with pytest.raises(foveate.FoveateError, match="none of 1 inputs gave a vector; the reasons are beside .*v.npy"):
            foveate.embed(bad, output=tmp_path / "v.npy", model=MODEL)
