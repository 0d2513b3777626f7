"""The forward alone, pixels on the device to vectors: foveate, and beside it PyTorch in a process of its own."""

import subprocess
import sys

from common import (DTYPES, FORWARD, HERE, Cells, Deadline, Failed, Mode, arguments, bench_rows, encoders, number, why)


# Encoders to sweep, where the device runs them: with the feature `ort-cuda`, ONNX Runtime's or TensorRT's.
SWEPT = ("fused", "ort")


class Forward:
    def __init__(self, args):
        self.args, self.mode, self.deadline = args, Mode(args.mode), Deadline(args.seconds)
        self.scratch = args.scratch / "forward"
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.cells = Cells(args.out / "forward.csv", FORWARD)

    def bench(self, experiment, file, model, *more):
        options = ("--model", self.mode.spec(model), "--device", self.args.device, "--n", "32", "--quick", *more)
        return bench_rows(experiment, file, HERE / "photos", *options, out=self.scratch,
                          seconds=min(150, self.deadline.left()))

    def foveate(self, model, batch):
        """A row for each precision. `images_per_second` is by the device's clock, from pixels on it to vectors on it;
        `call_images_per_second` by the host's, from its memory to its memory, one batch at a time."""
        # One second per sample, or at least eight batches if that is too long.
        images = {"smoke": ("--images", "4"), "quick": ("--images", max(256, 8 * batch)), "full": ()}[self.mode.name]
        try:
            rows = self.bench("forward", "forward.csv", model, "--batches", batch, *images)
            found = {row["dtype"]: row for row in rows if row["encoder"] == "fused"}
        except Failed as error:
            found, reason = {}, str(error)
        for dtype in DTYPES:
            def measure():
                if dtype not in found:
                    raise Failed(reason if not found else "not measured")
                row = found[dtype]
                if row["status"] != "ok":
                    raise Failed(why(row))
                return {"images_per_second": number(row["forward_images_per_second"]),
                        "samples": row["samples"], "call_images_per_second": number(row["images_per_second"])}
            self.cells.attempt({"engine": "foveate", "model": model, "dtype": dtype, "batch": batch}, measure)

    def sweep(self, model, dtype, encoder):
        """Calls, from host memory to host memory, at growing batches, and the process's memory on the device,
        including the driver's part, as nvidia-smi reports it."""
        key = {"engine": f"{encoder} sweep", "model": model, "dtype": dtype}
        try:
            rows = self.bench("batch-sweep", "batch_sweep.csv", model, "--dtype", dtype, "--encoder", encoder,
                              *(("--images", 4) if self.mode.name == "smoke" else ()))
        except Failed as error:
            self.cells.add(**key, status=f"n/a ({error})")
            return
        for row in rows:
            self.cells.add(**key, batch=row["batch"], memory_mb=number(row["peak_memory_mb"]),
                           memory_of=row["memory_of"], call_images_per_second=number(row["images_per_second"]),
                           status=row["status"])

    def pytorch(self, seconds):
        """Gets PyTorch's rows from a separate process, which may crash or hang."""
        args = self.args
        options = ["--mode", args.mode, "--device", args.device, "--seconds", str(seconds), "--out", str(args.out),
                   "--scratch", str(args.scratch)]
        try:
            done = subprocess.run([sys.executable, str(HERE / "torch_forward.py"), *options], timeout=seconds + 10)
            if done.returncode != 0:
                print(f"torch_forward.py: exit code {done.returncode}")
        except subprocess.TimeoutExpired:
            print("torch_forward.py: out of time")


def main():
    forward = Forward(arguments(__doc__))
    mode, whole = forward.mode, forward.deadline.left()
    # PyTorch and ONNX Runtime get the remaining time: they compile.
    end, forward.deadline = forward.deadline, Deadline(0.5 * whole)
    for batch in mode.batches:
        for model in mode.models:
            forward.foveate(model, batch)
    dtype = "f32" if forward.args.device == "cpu" else "f16"
    present = encoders(forward.args.device, forward.deadline.left())
    for encoder in [name for name in SWEPT if name in present]:
        for model in mode.swept:
            forward.sweep(model, dtype, encoder)
    forward.pytorch(end.left() - 5)


if __name__ == "__main__":
    main()
