"""One check per call (`--step`): device tests, sanitizer, verify, decoders, utilization, diagnosis."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from common import (CHECKS, DTYPES, HERE, Cells, Deadline, Failed, Mode, arguments, encoders, foveate, many, number,
                    one_line, photos, reason)

# Largest 1 - cosine and relative error: the tiers of the project's tests.
TIERS = {"f32": ("strict", 1e-6, 1e-4), "f16": ("half", 1e-3, 0.1), "bf16": ("half", 1e-3, 0.1)}
# What may differ between two right decoders of one JPEG, as the cosine of a network's vectors.
DECODER_COSINE = 0.99
SANITIZERS = ("memcheck", "racecheck")
SUMMARY = re.compile(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored")


def run(command, seconds, **environment):
    """The output of a program, both streams together, and its exit code."""
    if seconds <= 0:
        raise Failed("out of time")
    print("$", *command, flush=True)
    try:
        done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=seconds, env={**os.environ, **environment})
    except subprocess.TimeoutExpired:
        raise Failed(f"out of time after {seconds:.0f} s") from None
    except OSError as error:
        raise Failed(one_line(error)) from None
    print(done.stdout[-4000:], flush=True)
    return done.stdout, done.returncode


def judged(good):
    return "met" if good else "NOT MET"


class Check:
    def __init__(self, args):
        self.args, self.mode, self.deadline = args, Mode(args.mode), Deadline(args.seconds)
        self.scratch = args.scratch / args.step
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.cells = Cells(args.out / "checks.csv", CHECKS, append=True)
        self.model = self.mode.spec(self.mode.models[0])

    def attempt(self, what, measure):
        self.cells.attempt({"step": self.args.step, "what": what}, measure)

    def tests(self):
        """The device tests of three crates, as the project's own programs."""
        # nvJPEG's come last: they open it again and again, which takes longer than all of the others.
        programs = sorted((HERE / "tests").glob("*"), key=lambda path: ("nvjpeg" in path.name, path.name))
        for program in programs:
            def measure():
                said, code = run([program, "--test-threads=1"], self.deadline.left(), FOVEATE_CUDA_TESTS="device")
                found = SUMMARY.search(said)
                if not found:
                    raise RuntimeError(reason(said) or f"exit code {code}")
                passed, failed, ignored = map(int, found.groups())
                return {"found": f"{passed} passed, {failed} failed, {ignored} ignored",
                        "verdict": judged(code == 0 and failed == 0 and passed > 0)}
            self.attempt(program.name, measure)
        if not programs:
            self.attempt("device tests", missing("not in this bundle"))

    def sanitizer(self):
        """A small run under NVIDIA's checkers of memory and of races."""
        program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        for tool in SANITIZERS:
            def measure():
                if not Path(program).exists():
                    raise Failed("no compute-sanitizer")
                job = self.embed("f16", *photos(HERE / "photos")[:4])
                said, code = run([program, "--tool", tool, "--print-limit", "3", "--error-exitcode", "9", *job],
                                 self.deadline.left())
                found = re.search(r"(?:ERROR|RACECHECK) SUMMARY: .*", said)
                if not found:
                    raise Failed(f"the sanitizer said nothing: {one_line(said[-100:])}")
                return {"found": one_line(found[0]), "verdict": judged(code == 0)}
            self.attempt(tool, measure)

    def embed(self, dtype, *inputs):
        program = os.environ.get("FOVEATE", str(HERE / "bin/foveate"))
        return [program, "embed", *inputs, "--model", HERE / "models/tiny", "--device", self.args.device, "--dtype",
                dtype, "--batch", "2", "-o", self.scratch / "vectors.npy", "--overwrite", "--quiet"]

    def compare(self, folder, *options):
        """What `foveate verify` says of the images of a folder."""
        said = foveate("verify", folder, "--model", self.model, "--device", self.args.device, "--batch", "8", "--json",
                       *options, seconds=min(90, self.deadline.left()))
        return json.loads(said)

    def verify(self):
        """The encoder on the device beside the same one on the CPU, and beside candle's where it is compiled in."""
        crops = HERE / "goldens/crop_hf_pil"
        sample = ("--preprocess", "squash", "--sample", "8" if self.mode.name == "smoke" else "32")
        seconds = ["device=cpu,dtype=f32"] + ["encoder=candle"] * ("candle" in encoders(self.args.device, self.deadline.left()))
        for other in seconds:
            for dtype in DTYPES:
                def measure():
                    found = self.compare(crops, *sample, "--dtype", dtype, "--against", other)
                    name, cosine, error = TIERS[dtype]
                    apart = 1 - found["cosine"]["min"], found["relative_error"]["max"]
                    return {"found": f"1−cos {apart[0]:.1e}, rel {apart[1]:.1e}, {found['compared']} images",
                            "verdict": f"{name}: {judged(apart[0] <= cosine and apart[1] <= error)}"}
                self.attempt(f"fused {dtype} beside {other}", measure)

    def decoders(self):
        """nvJPEG beside the CPU's decoders, on whole, unusual and damaged files: the same outcomes, near vectors."""
        for folder in ("photos", "conformance"):
            for other in ("exact", "turbojpeg"):
                def measure():
                    if not (HERE / folder).is_dir():
                        raise Failed("not in this bundle")
                    found = self.compare(HERE / folder, "--decoder", "nvjpeg", "--decode-scale", "exact", "--sample",
                                         "200", "--against", f"decoder={other}")
                    cosine, one = found["cosine"]["p1"], found["failed_under_one"]
                    first = f" ({one_line(one[0]['reason'], 60)})" if one else ""
                    return {"found": f"{found['compared']} images, {len(one)} fail under one{first}; cosine p1 "
                                     f"{cosine:.5f}, min {found['cosine']['min']:.5f}",
                            "verdict": judged(not one and cosine >= DECODER_COSINE)}
                self.attempt(f"nvjpeg beside {other}: {folder}", measure)

    def utilization(self):
        """What the card's own counters say while a job runs."""
        def measure():
            if not shutil.which("nvidia-smi"):
                raise Failed("no nvidia-smi")
            count = 64 if self.mode.name == "smoke" else 32768
            listing = many(photos(HERE / "photos"), self.scratch / "many", count)
            query = "utilization.gpu,utilization.memory,utilization.decoder,power.draw,clocks.sm,memory.used"
            card = self.args.device.partition(":")[2] or "0"
            watch = subprocess.Popen(["nvidia-smi", "-i", card, f"--query-gpu={query}", "--format=csv,noheader,nounits",
                                      "-lms", "100"], stdout=subprocess.PIPE, text=True)
            try:
                foveate("embed", "--from-list", listing, "--model", self.model, "--device", self.args.device, "--dtype",
                        "f16", "--batch", "256", "-o", self.scratch / "vectors.npy", "--overwrite", "--quiet",
                        seconds=self.deadline.left() - 2)
            finally:
                watch.terminate()
            samples = [[number(field) for field in line.split(",")] for line in watch.communicate()[0].splitlines()]
            # The start, which compiles and loads, is not the job.
            samples = samples[len(samples) // 3:]
            if not samples:
                raise Failed("nvidia-smi said nothing")
            means = [sum(column) / len(column) if column else None
                     for column in ([value for value in values if value is not None] for values in zip(*samples))]
            units = ("% GPU", "% memory", "% decoder", "W", "MHz", "MB")
            return {"found": ", ".join(f"{mean:.0f} {unit}" for mean, unit in zip(means, units) if mean is not None)}
        self.attempt("a job of photos, f16, batch 256", measure)

    def diagnosis(self):
        def measure():
            options = ("--n", "32") if self.mode.name != "smoke" else ("--limit", "8")
            said = json.loads(foveate("diagnose", HERE / "photos", "--model", self.model, "--device", self.args.device,
                                      "--dtype", "f16", "--quick", "--json", "--quiet", *options, "-o", self.scratch,
                                      seconds=self.deadline.left()))
            tried = (said.get("next") or said.get("tried") or [""])[0]
            return {"found": one_line(f"{said['culprit']}: {said['why']}"), "beside": one_line(str(tried))}
        self.attempt("photos, f16", measure)


def missing(why):
    def measure():
        raise Failed(why)
    return measure


def main():
    args = arguments(__doc__)
    getattr(Check(args), args.step)()


if __name__ == "__main__":
    main()
