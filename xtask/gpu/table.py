"""Makes the check's final table from the CSV files of its steps. Standard library only."""

import sys
from pathlib import Path

from common import DECODERS, DTYPES, SHAPES, Mode, flop_per_image, number, one_line, read
from numerics import GOLDENS, WAYS

HEAD = ("what", "foveate", "PyTorch, ONNX Runtime, Python", "ratio", "verdict")
# Smallest cosine, largest relative error: the tiers of the project's tests.
TIERS = {"f32": ("strict", 1e-6, 1e-4), "f16": ("half", 1e-3, 0.1), "bf16": ("half", 1e-3, 0.1)}
AIM = 0.95
LONGEST = 90
NOT_REACHED = {"status": "n/a (not reached)"}
# Other engines of the forward, by their names in the table.
OTHERS = {"eager": "torch eager", "sdpa": "torch sdpa", "compile": "torch compile", "ORT": "onnx cuda",
          "TensorRT": "onnx tensorrt"}
# In the order in which they run: what is wrong first, then how fast it is.
CHECKED = ("tests", "sanitizer", "verify", "decoders")
STEPS = (*CHECKED, "numerics", "forward", "end-to-end", "python", "utilization", "diagnosis")


class Rows:
    """A step's CSV file, looked up by some of its columns."""

    def __init__(self, *paths):
        self.rows = [row for path in paths for row in read(path)]

    def get(self, **key):
        wanted = {name: str(value) for name, value in key.items()}
        for row in self.rows:
            if all(row.get(name) == value for name, value in wanted.items()):
                return row
        return NOT_REACHED

    def best(self, **key):
        """The fastest measured row, or any."""
        wanted = {name: str(value) for name, value in key.items()}
        rows = [row for row in self.rows if all(row.get(name) == value for name, value in wanted.items())]
        rates = [(number(row.get("images_per_second")) or 0, at) for at, row in enumerate(rows)]
        return rows[max(rates)[1]] if rates else NOT_REACHED


def is_ok(row):
    return row["status"] == "ok"


def rate(text):
    value = number(text)
    return "n/a" if value is None else f"{value:,.0f}/s" if value >= 100 else f"{value:.1f}/s"


def percent(text):
    value = number(text)
    return "n/a" if value is None else f"{100 * value:.1f} %"


def ratio(a, b):
    a, b = number(a), number(b)
    return a / b if a and b else None


def times(value):
    return "" if value is None else f"{value:.2f}"


def far(cosine, error):
    cosine, error = number(cosine), number(error)
    return "n/a" if None in (cosine, error) else f"1−cos {cosine:.1e}, rel {error:.1e}"


def in_tier(row):
    """NaN must fail this comparison."""
    name, cosine, error = TIERS[row["dtype"]]
    found = number(row["one_minus_cosine"]), number(row["relative_error"])
    met = None not in found and found[0] <= cosine and found[1] <= error
    return f"{name}: met" if met else f"{name}: NOT MET"


def numerics(rows, mode):
    plan = [("committed vectors", model) for model, (spec, *_) in GOLDENS.items()
            if mode.name != "smoke" or not spec.startswith("seeded:")]
    plan += [("transformers here", model) for model in ("small-random", "giant-shaped")]
    for check, model in plan:
        for dtype in DTYPES:
            row = rows.get(check=check, model=model, dtype=dtype)
            what = f"{check}: {model} {dtype}"
            if not is_ok(row):
                yield what, "", "", "", row["status"]
                continue
            torch = far(row["torch_one_minus_cosine"], row["torch_relative_error"])
            yield (what, far(row["one_minus_cosine"], row["relative_error"]), "" if torch == "n/a" else torch, "",
                   in_tier(row))
    for dtype in ("f16", "bf16"):
        row = rows.get(check="nearest neighbours", dtype=dtype)
        what = f"ViT-Tiny, {row.get('images', '')} labelled photos: {dtype} beside f32".replace("  ", " ")
        if is_ok(row):
            recall = f"recall@1 {percent(row['recall'])}, f32 {percent(row['recall_other'])}"
            yield what, f"same neighbour {percent(row['share'])}; {recall}", "", "", in_tier(row)
        else:
            yield what, "", "", "", row["status"]
    model = "tiny" if mode.name == "smoke" else "dinov2-small"
    for way, (_, exact) in WAYS.items():
        for dtype in DTYPES if way != "tf32" else ("f32",):
            row = rows.get(check=way, model=model, dtype=dtype)
            what = f"{way} beside usual: {model} {dtype}"
            if not is_ok(row):
                yield what, "", "", "", row["status"]
                continue
            same = row["same_bits"] == "yes"
            found = "the same bits" if same else far(row["one_minus_cosine"], row["relative_error"])
            tier = "half" if way == "tf32" else None
            verdict = in_tier({**row, "dtype": "f16"}) if tier else in_tier(row)
            yield what, found, "", "", "same bits: met" if same else "same bits: NOT MET" if exact else verdict


def forward(rows, mode):
    peaks = {}
    for dtype in DTYPES:
        row = rows.get(engine="peak", dtype=dtype)
        products = number(row.get("images_per_second"))
        peaks[dtype] = products and products * 2 * 8192**3 / 1e12
        found = f"{peaks[dtype]:.0f} TFLOP/s" if products and mode.name != "smoke" else ""
        yield f"peak: product of 8192³, {dtype}", "", found, "", "" if is_ok(row) else row["status"]
    for model in mode.models:
        for dtype in DTYPES:
            for batch in sorted(mode.batches):
                key = {"model": model, "dtype": dtype, "batch": batch}
                row = rows.get(engine="foveate", **key)
                ways = {way: rows.get(engine=engine, **key) for way, engine in OTHERS.items()}
                found = {way: number(row.get("images_per_second")) for way, row in ways.items()}
                best = max((rate, way) for way, rate in {**found, "n/a": 0}.items() if rate is not None)
                theirs = ", ".join(f"{way} {rate(value)}" for way, value in found.items() if value)
                theirs = theirs or ways["sdpa"]["status"]
                value = ratio(row.get("images_per_second"), best[0])
                ours = performance(row, model, peaks[dtype]) if is_ok(row) else ""
                verdict = row["status"] if not is_ok(row) else "" if not value else \
                    "the fastest" if value >= 1 else f"SLOWER than {best[1]}"
                yield f"forward {model} {dtype} batch {batch}", ours, theirs, times(value), verdict
    yield from sweeps(rows, mode)


def sweeps(rows, mode):
    """Calls of each encoder at growing batches beside PyTorch's forward, which copies nothing."""
    for engine in ("fused sweep", "ort sweep"):
        for model in mode.swept:
            measured = [row for row in rows.rows if row["engine"] == engine and row["model"] == model]
            if not measured and engine == "fused sweep":
                yield f"calls {model}", "", "", "", NOT_REACHED["status"]
            for row in measured:
                what = f"calls {engine.split()[0]} {model} {row['dtype']} batch {row['batch'] or '?'}"
                if not is_ok(row):
                    yield what, "", "", "", row["status"]
                    continue
                theirs = rows.get(engine="torch sdpa", model=model, dtype=row["dtype"], batch=row["batch"])
                memory = number(row["memory_mb"])
                value = ratio(row["call_images_per_second"], theirs.get("images_per_second"))
                yield (what, rate(row["call_images_per_second"]) + (f", {memory:,.0f} MB" if memory else ""),
                       f"sdpa {rate(theirs['images_per_second'])}" if is_ok(theirs) else "", times(value), "")


def performance(row, model, peak):
    tera = number(row["images_per_second"]) * flop_per_image(SHAPES[model]) / 1e12
    share = f", {100 * tera / peak:.0f} % of peak" if peak else ""
    calls = number(row["call_images_per_second"])
    return f"{rate(row['images_per_second'])}, {tera:.0f} TFLOP/s{share}" + (f"; calls {rate(calls)}" if calls else "")


def end_to_end(rows, baselines, mode):
    ceilings = {row["model"]: row for row in rows.rows if row["photos"] == "pixels on the device"}
    for model in mode.models:
        row = ceilings.get(model, NOT_REACHED)
        what = f"ceiling {model}: pixels on the device"
        if is_ok(row):
            yield what, f"{rate(row['images_per_second'])}, {row['dtype']}, batch {row['batch']}", "", "", ""
        else:
            yield what, "", "", "", row["status"]
    for photos in ("small", "large"):
        theirs = baselines.best(photos=photos)
        for model, decoder, scale, workers in planned_jobs(mode):
            key = {"photos": photos, "model": model, "decoder": decoder, "scale": scale, "workers": workers}
            row = rows.get(**key)
            beside = theirs if (model, workers) == (mode.models[0], max(mode.workers)) else NOT_REACHED
            named = f"{photos}, {model}: {decoder}" + (" fast" if scale == "fast" else "") + f", {workers} workers"
            if not is_ok(row):
                yield named, "", "", "", row["status"]
                continue
            share = ratio(row["images_per_second"], row["ceiling"])
            ours = f"{rate(row['images_per_second'])}, GPU busy {percent(row['gpu_busy'])}"
            yield (named, ours, f"{beside['loader']} {beside['dtype']} {rate(beside['images_per_second'])}"
                   if is_ok(beside) else "", times(ratio(row["images_per_second"], beside.get("images_per_second"))),
                   ceiling_verdict(share, photos))


def ceiling_verdict(share, photos):
    """The target applies to small photos; on large ones a machine's decoders may be the limit."""
    if share is None:
        return ""
    met = "met" if share >= AIM else "not met" if photos == "small" else "CPU-bound"
    return f"{share:.2f} of the ceiling: {met}"


def planned_jobs(mode):
    """Model, decoder, scale and workers, in the table's order."""
    most, first = max(mode.workers), mode.models[0]
    yield from ((first, *decoder, most) for decoder in DECODERS)
    yield from ((model, "turbojpeg", "exact", most) for model in mode.models[1:])
    swept = DECODERS if mode.name == "full" else DECODERS[:2]
    for decoder in swept:
        yield from ((first, *decoder, workers) for workers in mode.workers if workers != most)


def python(rows):
    for row in rows.rows:
        what = f"DataLoader: {row['photos']}, {row['loader']}, {row['dtype']}, {row['workers']} workers"
        yield what, "", rate(row["images_per_second"]) if is_ok(row) else "", "", "" if is_ok(row) else row["status"]
    if not rows.rows:
        yield "DataLoader", "", "", "", NOT_REACHED["status"]


def checks(rows, step):
    found = [row for row in rows.rows if row["step"] == step]
    for row in found:
        yield (f"{step}: {row['what']}", row["found"], row["beside"], "",
               row["verdict"] if is_ok(row) else row["status"])
    if not found:
        yield step, "", "", "", NOT_REACHED["status"]


def table(out, mode, only):
    """All rows of the requested steps."""
    baselines = Rows(out / "baseline.csv")
    checked = Rows(out / "checks.csv")
    steps = {step: lambda step=step: checks(checked, step) for step in (*CHECKED, "utilization", "diagnosis")}
    steps |= {
        "numerics": lambda: numerics(Rows(out / "numerics.csv"), mode),
        "forward": lambda: forward(Rows(out / "forward.csv", out / "torch_forward.csv"), mode),
        "end-to-end": lambda: end_to_end(Rows(out / "end_to_end.csv"), baselines, mode),
        "python": lambda: python(baselines),
    }
    stopped = out / "stopped.txt"
    stopped = stopped.read_text().split() if stopped.exists() else []
    rest = {step: [(f"{step}: the rest", "", "", "", "n/a (the step was stopped at its limit)")] for step in stopped}
    return [row for step in STEPS if step in only for row in (*steps[step](), *rest.get(step, []))]


def text(rows):
    """Aligns the rows in columns of the least width; the CSV file has long reasons in full."""
    rows = [HEAD, *(tuple(one_line(field, LONGEST) for field in row) for row in rows)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
    lines = ["  ".join(field.ljust(width) for field, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * min(200, sum(widths) + 2 * len(widths)), *lines[1:]])


def main():
    out, mode, only, card = Path(sys.argv[1]), Mode(sys.argv[2]), sys.argv[3].split(","), sys.argv[4]
    rows = table(out, mode, only)
    failed = [row for row in rows if "NOT MET" in row[-1] or row[-1].startswith("failed")]
    missing = [row for row in rows if row[-1].startswith("n/a")]
    said = f"{card}\n{text(rows)}" + f"\n\n{len(rows)} rows: {len(failed)} failed, {len(missing)} n/a ({mode.name})"
    (out / "table.txt").write_text(said + "\n")
    print(said)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
