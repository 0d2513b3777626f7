"""Profiles and plans are the command line's, as dictionaries."""

from __future__ import annotations

import csv
import json
import subprocess

import pytest

import foveate
from conftest import MODEL, PHOTOS, PROGRAM


def test_a_plan_is_the_command_lines():
    costs = {"sample_bytes": "300K", "cpu_ms": 4.4, "workers": 16, "overhead_ms": 5, "item_ms": 0.03, "batch": 256}
    plan = foveate.plan(**costs, storage="3G", images="10M", machines=4)
    given = [f"--{name.replace('_', '-')}={value}" for name, value in costs.items()]
    command = [PROGRAM, "plan", *given, "--storage=3G", "--images=10M", "--machines=4", "--json"]
    assert plan == json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    assert plan["state"]["bound"] == "cpu" and plan["job"]["machines"] == 4
    with pytest.raises(foveate.FoveateError, match="--colour"):
        foveate.plan(colour="red")


def test_a_profile_is_measured_and_planned_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = {"model": MODEL, "as_given": True, "n": 4, "images": 8, "batch": 4}
    profile = foveate.profile(PHOTOS, out=tmp_path / "run", **few)
    assert {"read", "decode", "resize", "forward"} <= {row["stage"] for row in profile["profile"]}
    with open(tmp_path / "run/profile.csv", newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["stage"] for row in written] == [row["stage"] for row in profile["profile"]]
    with pytest.raises(foveate.FoveateError, match="foveate bench batch-sweep"):
        foveate.plan(from_=tmp_path / "run")
    with pytest.raises(foveate.FoveateError, match="missing"):
        foveate.profile("missing", model=MODEL)
    assert [path.name for path in tmp_path.iterdir()] == ["run"], "nothing is left behind"
