"""Whole jobs, files to a finished .npy: small and large photos, every decoder, one to sixteen workers."""

import os
import statistics

from common import (DECODERS, END_TO_END, HERE, Cells, Deadline, Failed, Mode, arguments, bench_rows, embed_json,
                    many, number, photo_sets, spread, why)

# Initial estimates of images per second and worker; measured rates replace them.
GUESS = {"small": 1500, "large": 110}
# Most files with distinct names that a run reads.
FILES = {"small": 131072, "large": 16384}
SMOKE_FILES = 64


class Jobs:
    def __init__(self, args):
        self.args, self.mode, self.deadline = args, Mode(args.mode), Deadline(args.seconds)
        self.smoke = self.mode.name == "smoke"
        self.dtype = "f32" if args.device == "cpu" else "f16"
        self.scratch = args.scratch / "end-to-end"
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.cells = Cells(args.out / "end_to_end.csv", END_TO_END)
        self.rates, self.ceilings = {}, {}

    def prepare(self):
        self.lists = {}
        for name, originals in photo_sets(self.scratch).items():
            if isinstance(originals, Failed):
                self.lists[name] = originals
            else:
                count = SMOKE_FILES if self.smoke else FILES[name]
                self.lists[name] = many(originals, self.scratch / f"many-{name}", count), count

    def ceiling(self, model):
        """Images per second of the forward alone, by the device's clock, at these jobs' batch size."""
        def measure():
            rows = bench_rows("forward", "forward.csv", HERE / "photos", "--model", self.mode.spec(model), "--device",
                              self.args.device, "--n", "32", "--quick", "--batches", self.mode.batch, "--images",
                              10 * self.mode.batch, out=self.scratch, seconds=min(90, self.deadline.left()))
            row = next(row for row in rows if (row["encoder"], row["dtype"]) == ("fused", self.dtype))
            rate = number(row["forward_images_per_second"])
            if rate is None:
                raise Failed(why(row))
            self.ceilings[model] = rate
            return {"images_per_second": rate, "samples": row["samples"]}
        key = {"photos": "pixels on the device", "model": model, "dtype": self.dtype, "batch": self.mode.batch}
        self.cells.attempt(key, measure)

    def job(self, photos, model, decoder, scale, workers):
        key = {"photos": photos, "model": model, "dtype": self.dtype, "decoder": decoder, "scale": scale,
               "workers": workers, "batch": self.mode.batch}
        self.cells.attempt(key, lambda: self.measure(**key))

    def measure(self, photos, model, dtype, decoder, scale, workers, batch):
        if isinstance(self.lists[photos], Failed):
            raise self.lists[photos]
        listing, most = self.lists[photos]
        if workers > (os.cpu_count() or 1):
            raise Failed(f"this machine has {os.cpu_count()} cores")

        name, _, backend = decoder.partition(" ")
        option = ("--decoder-option", f"backend={backend}") if backend else ()

        def run(images):
            options = ("--decoder", name, *option, "--decode-scale", scale, "--workers", workers, "--readers", 4,
                       "--prefetch", 4, "--batch", batch, "--model", self.mode.spec(model), "--device",
                       self.args.device, "--dtype", dtype, "--strict", "--limit", images)
            self.deadline.check(2)
            said = embed_json("--from-list", listing, *options, "-o", self.scratch / "vectors.npy",
                              seconds=min(90, self.deadline.left()))
            if said["vectors"] != images:
                raise Failed(f"{said['vectors']} vectors of {images} images")
            busy = sum(part["busy_seconds"] for part in said["encode_parts"] if part["part"] == "forward")
            seconds = said["session"]["seconds"]
            return images / seconds, busy / seconds, seconds

        def images_at(rate):
            return min(most, max(4 * batch, int(rate * self.mode.job_seconds) // batch * batch))

        images = images_at(self.guess(photos, decoder, scale, workers))
        rate, busy, seconds = run(images)
        if seconds < 0.7 * self.mode.job_seconds and images < most:
            images = images_at(rate)
            rate, busy, seconds = run(images)
        runs = [(rate, busy)]
        # The decisive cell is the median of several runs; the sweep's other cells are one run each, to fit the time.
        wanted = self.mode.samples if workers == max(self.mode.workers) else 1
        while len(runs) < wanted and self.deadline.left() > 3 * self.mode.job_seconds:
            runs.append(run(images)[:2])
        self.rates[photos, decoder, scale, workers] = rate
        return {"images": images, **spread([rate for rate, _ in runs]),
                "gpu_busy": statistics.median(busy for _, busy in runs), "ceiling": self.ceilings.get(model)}

    def guess(self, photos, decoder, scale, workers):
        """Estimates by the nearest cell of the same decoder, or initially by a constant."""
        known = [(abs(other - workers), rate * workers / other) for (*of, other), rate in self.rates.items()
                 if tuple(of) == (photos, decoder, scale)]
        return min(known)[1] if known else GUESS[photos] * min(workers, os.cpu_count() or 1)


def main():
    jobs = Jobs(arguments(__doc__))
    mode = jobs.mode
    jobs.prepare()
    for model in mode.models:
        jobs.ceiling(model)
    most = max(mode.workers)
    first = mode.models[0]
    for photos in ("small", "large"):
        for decoder, scale in DECODERS:
            jobs.job(photos, first, decoder, scale, most)
    # A larger network, which the same workers keep busy more easily.
    for model in mode.models[1:]:
        for photos in ("small", "large"):
            jobs.job(photos, model, "turbojpeg", "exact", most)
    swept = DECODERS if mode.name == "full" else DECODERS[:2]
    for workers in mode.workers[1:]:
        for photos in ("small", "large"):
            for decoder, scale in swept:
                jobs.job(photos, first, decoder, scale, workers)


if __name__ == "__main__":
    main()
