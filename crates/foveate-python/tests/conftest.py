"""Tests of the installed wheel. ``cargo xtask wheel --test`` runs them in a fresh virtual environment."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[3]
PHOTOS = ROOT / "examples/photos"
MODEL = str(ROOT / "tests/fixtures/models/tiny")
#: The console script that the wheel installed.
PROGRAM = str(Path(sys.executable).with_name("foveate"))

Vector = bytes


def needs(*modules: str) -> None:
    """Skip a file of tests without these modules. In the long form they are there, and a missing one is an error."""
    for module in modules:
        if os.environ.get("FOVEATE_TESTS") == "full":
            importlib.import_module(module)
        else:
            pytest.importorskip(module, reason=f"{module} is missing; FOVEATE_TESTS=full installs it")


@pytest.fixture(scope="session")
def photos() -> list[Path]:
    return sorted(PHOTOS.iterdir())


@pytest.fixture(scope="session")
def contents(photos: list[Path]) -> list[bytes]:
    return [photo.read_bytes() for photo in photos]


@pytest.fixture(scope="session")
def by_command(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Vector]]:
    """The command line's vectors of the photos, as bytes, by id."""

    def run(*options: str) -> dict[str, Vector]:
        output = tmp_path_factory.mktemp("command") / "v.parquet"
        command = [PROGRAM, "embed", str(PHOTOS), "-o", str(output), "--model", MODEL, "--quiet", *options]
        subprocess.run(command, check=True)
        table = pq.read_table(output)
        vectors = table["embedding"].combine_chunks().flatten().to_numpy().reshape(table.num_rows, -1)
        return {id: vector.tobytes() for id, vector in zip(table["id"].to_pylist(), vectors)}

    return run


@pytest.fixture(scope="session")
def expected(by_command: Callable[..., dict[str, Vector]], photos: list[Path]) -> list[Vector]:
    """The command line's vector of each photo."""
    vectors = by_command()
    return [vectors[str(photo)] for photo in photos]
