"""Tests of the parts that need neither device nor package. `cargo xtask gpu-bundle --check` runs them."""

import re
import tempfile
from pathlib import Path

import bundle
import checks
import table
from common import (CHECKS, FORWARD, HERE, NUMERICS, SHAPES, Cells, Deadline, Failed, Mode, flop_per_image, many, number, one_line,
                    read, reason, spread, steady_rates)


def operations_are_those_of_a_vision_transformer():
    # ViT-S/14 and ViT-B/14 at 224 pixels, 257 tokens: computed by hand.
    small = 256 * 588 * 384 + 12 * (4 * 257 * 384**2 + 2 * 257**2 * 384 + 8 * 257 * 384**2)
    assert flop_per_image(SHAPES["small"]) == 2 * small == 12_247_123_968, flop_per_image(SHAPES["small"])
    assert 3.7 < flop_per_image(SHAPES["base"]) / flop_per_image(SHAPES["small"]) < 4


def numbers_are_finite_or_nothing():
    assert number("1.5") == 1.5 and number("0") == 0.0
    assert [number(text) for text in ("", "nan", "inf", None, "fast")] == [None] * 5


def a_reason_is_the_last_error():
    assert reason("note: x\nerror: no\n  device\nerror: none: cuda:0\n") == "none: cuda:0"
    assert reason("warning\nbroken pipe\n") == "broken pipe" and reason("") == ""
    assert len(one_line("x" * 999)) == 160


def a_cell_that_fails_is_a_row(folder):
    cells = Cells(folder / "cells.csv", NUMERICS)

    def broken(error):
        raise error
    cells.attempt({"check": "a", "dtype": "f32"}, lambda: {"images": 3})
    cells.attempt({"check": "b", "dtype": "f32"}, lambda: broken(Failed("no device")))
    cells.attempt({"check": "c", "dtype": "f32"}, lambda: broken(ValueError("odd")))
    found = [row["status"] for row in read(folder / "cells.csv")]
    assert found == ["ok", "n/a (no device)", "failed (ValueError: odd)"], found
    assert read(folder / "none.csv") == []


def time_runs_out():
    Deadline(60).check(1)
    try:
        Deadline(0).check()
    except Failed as error:
        assert str(error) == "out of time"
    else:
        raise AssertionError("a deadline that is over lets a cell run")


def files_have_many_names(folder):
    seed = folder / "a.jpg"
    seed.write_bytes(b"photo")
    listing = many([seed], folder / "many", 1001)
    names = listing.read_text().split()
    assert len(set(names)) == 1001 and all(Path(name).read_bytes() == b"photo" for name in names)


def tiers_are_judged():
    row = {"dtype": "f32", "one_minus_cosine": "1e-9", "relative_error": "5e-5"}
    assert table.in_tier(row) == "strict: met"
    for name, value in (("one_minus_cosine", "2e-6"), ("relative_error", "2e-4"), ("relative_error", "nan")):
        assert table.in_tier({**row, name: value}) == "strict: NOT MET", (name, value)
    assert table.in_tier({**row, "dtype": "bf16", "one_minus_cosine": "9e-4"}) == "half: met"
    assert table.ceiling_verdict(0.96, "small").endswith(": met")
    assert table.ceiling_verdict(0.94, "small").endswith("not met") and table.ceiling_verdict(None, "small") == ""


def a_table_without_any_results_has_every_row(folder):
    for name in ("smoke", "quick", "full"):
        mode = Mode(name)
        rows = table.table(folder, mode, table.STEPS)
        assert {len(row) for row in rows} == {5} and all(row[-1].startswith("n/a (") for row in rows)
        forwards = [row for row in rows if row[0].startswith("forward ")]
        assert len(forwards) == 3 * len(mode.models) * len(mode.batches)
        assert table.text(rows).count("\n") == len(rows) + 1
        steps = [row[0] for row in rows if row[0] in table.STEPS]
        assert steps == ["tests", "sanitizer", "verify", "decoders", "utilization", "diagnosis"], steps


def the_steps_are_those_of_the_script_and_fit_ten_minutes():
    script = (HERE / "check.sh").read_text()
    assert re.search(r"^steps=\((.*)\)$", script, re.M)[1].split() == list(table.STEPS)
    limits = dict(re.findall(r"\[([a-z-]+)\]=(\d+)", script.split("quick=(")[1].split(")")[0]))
    assert list(limits) == list(table.STEPS)
    grace = int(re.search(r"^grace=(\d+)$", script, re.M)[1])
    # A step that hangs takes its limit and the grace; the rest is for versions and the table.
    assert sum(map(int, limits.values())) + grace * len(limits) <= 600 - 10


def checks_are_rows(folder):
    for step in ("verify", "decoders"):
        cells = Cells(folder / "checks.csv", CHECKS, append=True)
        cells.attempt({"step": step, "what": "a"}, lambda: {"found": "x", "verdict": checks.judged(step == "verify")})
    rows = table.table(folder, Mode("quick"), ["verify", "decoders"])
    assert rows == [("verify: a", "x", "", "", "met"), ("decoders: a", "x", "", "", "NOT MET")], rows


def a_step_that_was_stopped_says_so(folder):
    Cells(folder / "checks.csv", CHECKS, append=True).attempt({"step": "verify", "what": "a"}, lambda: {"found": "x"})
    (folder / "stopped.txt").write_text("verify\n")
    rows = table.table(folder, Mode("quick"), ["verify", "decoders"])
    assert [row[0] for row in rows] == ["verify: a", "verify: the rest", "decoders"], rows
    assert rows[1][-1].startswith("n/a ("), rows


def ratios_and_shares_are_computed(folder):
    mode = Mode("full")
    cells = Cells(folder / "forward.csv", FORWARD)
    key = {"model": "small", "dtype": "f16", "batch": 256}
    cells.add(engine="foveate", **key, images_per_second=20000.0, call_images_per_second=18000.0)
    cells.add(engine="torch sdpa", **key, **spread([9000.0, 10000.0, 11000.0]))
    cells.add(engine="torch compile", **key, **spread([16000.0]))
    cells.add(engine="peak", model="product 8192", dtype="f16", **spread([500e12 / (2 * 8192**3)]))
    found = {row[0]: row for row in table.table(folder, mode, ["forward"])}
    what, ours, theirs, ratio, verdict = found["forward small f16 batch 256"]
    assert ours == "20,000/s, 245 TFLOP/s, 49 % of peak; calls 18,000/s", ours
    assert theirs == "sdpa 10,000/s, compile 16,000/s" and (ratio, verdict) == ("1.25", "the fastest"), theirs
    cells.add(engine="onnx tensorrt", **key, **spread([25000.0]))
    found = {row[0]: row for row in table.table(folder, mode, ["forward"])}
    assert found["forward small f16 batch 256"][-1] == "SLOWER than TensorRT", found
    assert found["forward small f16 batch 1"][-1] == "n/a (not reached)"


def a_loader_is_measured_under_way():
    # Two workers: the first batches come after 10 s, then two batches of 8 each second.
    time = 0.0

    def batches():
        nonlocal time
        for at in range(100):
            if at % 2 == 0:
                time += 10 if at == 0 else 1
            yield range(8)
    rates = steady_rates(batches(), len, lambda: None, 2, 3, 2, now=lambda: time)
    assert rates == [16.0, 16.0], rates
    try:
        steady_rates([range(8)] * 4, len, lambda: None, 2, 3, 1, now=lambda: 0.0)
    except Failed as error:
        assert "ended" in str(error)
    else:
        raise AssertionError("a window that never ends has a rate")


def an_archive_depends_on_its_files_alone(folder):
    def packed(content):
        source = folder / "source"
        source.mkdir(exist_ok=True)
        (source / "b").write_text("b")
        (source / "a").write_text(content)
        bundle.pack(source, folder / "archive.tar.gz")
        return (folder / "archive.tar.gz").read_bytes()

    assert packed("a") == packed("a") != packed("c")


def main():
    tests = [test for name, test in globals().items() if callable(test) and getattr(test, "__module__", "") == __name__
             and name != "main"]
    for test in tests:
        with tempfile.TemporaryDirectory() as folder:
            test(*[Path(folder)] * test.__code__.co_argcount)
    print(f"{len(tests)} tests pass")


if __name__ == "__main__":
    main()
