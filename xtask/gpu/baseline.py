"""What the literature does: a DataLoader with Pillow or OpenCV, pinned memory, PyTorch's forward; the same photos."""

import os

from common import BASELINE, Cells, Deadline, Failed, Mode, arguments, one_line, photo_sets, spread, steady_rates

try:
    import numpy as np
    import torch

    import transformers_side as side
except ImportError as error:  # Every row then reports it.
    torch, WITHOUT = None, one_line(error)

# Photos of a pass: more than any measurement takes.
ENDLESS = 10**9


def pillow(path):
    """Shorter side 256, bicubic; centre crop 224; `[3, 224, 224]` f32, normalized: the model's own recipe."""
    from PIL import Image

    with Image.open(path) as image:
        image = image.convert("RGB")
        scale = 256 / min(image.size)
        image = image.resize([max(256, round(edge * scale)) for edge in image.size], Image.Resampling.BICUBIC)
        left, top = ((edge - 224) // 2 for edge in image.size)
        pixels = np.asarray(image.crop((left, top, left + 224, top + 224)), np.float32)
    normal = (pixels / 255 - np.float32(side.MEAN)) / np.float32(side.STD)
    return torch.from_numpy(normal).permute(2, 0, 1).contiguous()


def opencv_pixels(path):
    import cv2

    cv2.setNumThreads(0)
    return cv2.resize(cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB), (224, 224))


def opencv(path):
    """Stretched to 224×224, bilinear; `[3, 224, 224]` f32, normalized."""
    normal = (opencv_pixels(path).astype(np.float32) / 255 - np.float32(side.MEAN)) / np.float32(side.STD)
    return torch.from_numpy(normal).permute(2, 0, 1).contiguous()


def opencv_u8(path):
    """As bytes `[3, 224, 224]`, which the device normalizes: a quarter of the data to copy."""
    return torch.from_numpy(opencv_pixels(path)).permute(2, 0, 1).contiguous()


LOADERS = {"Pillow": pillow, "OpenCV": opencv, "OpenCV, u8": opencv_u8}


class Photos:
    """The photos, repeated."""

    def __init__(self, paths, load):
        self.paths, self.load = paths, load

    def __len__(self):
        return ENDLESS

    def __getitem__(self, at):
        return self.load(self.paths[at % len(self.paths)])


class Baseline:
    def __init__(self, args):
        self.args, self.mode, self.deadline = args, Mode(args.mode), Deadline(args.seconds)
        self.cells = Cells(args.out / "baseline.csv", BASELINE)
        self.workers = min(max(self.mode.workers), os.cpu_count() or 1)
        self.sets = photo_sets(args.scratch / "baseline")
        self.networks = {}

    def run(self, photos, loader, dtype):
        key = {"photos": photos, "loader": loader, "dtype": dtype, "workers": self.workers, "batch": self.mode.batch}
        self.cells.attempt(key, lambda: self.measure(**key))

    def measure(self, photos, loader, dtype, workers, batch):
        if torch is None:
            raise Failed(WITHOUT)
        side.require(self.args.device)
        if isinstance(self.sets[photos], Failed):
            raise self.sets[photos]
        self.deadline.check(8)
        dataset = Photos(self.sets[photos], LOADERS[loader])
        batches = torch.utils.data.DataLoader(dataset, batch_size=batch, num_workers=workers, pin_memory=True,
                                              prefetch_factor=2)
        forward, rows, images = self.network(dtype), [], 0

        def encode(pixels):
            rows.append(forward(pixels))
            return len(pixels)

        def settle():
            nonlocal images
            vectors = torch.cat(rows).cpu()
            images += len(vectors)
            rows.clear()
            if not bool(vectors.isfinite().all()):
                raise Failed("vectors are not finite")
            self.deadline.check()

        # As long as foveate's jobs, which have the same batch and include their start.
        rates = steady_rates(batches, encode, settle, workers, self.mode.job_seconds, self.mode.samples)
        return {"images": images, **spread(rates)}

    def network(self, dtype):
        """Encodes a loader's pixels to class tokens in f32 on the device, with SDPA."""
        if dtype not in self.networks:
            model = side.network(self.mode.models[0], device=self.args.device).to(side.DTYPES[dtype])
            mean, std = (torch.tensor(values, device=self.args.device).view(1, 3, 1, 1) * 255
                         for values in (side.MEAN, side.STD))

            @torch.inference_mode()
            def forward(pixels):
                pixels = pixels.to(self.args.device, non_blocking=True)
                if pixels.dtype == torch.uint8:
                    pixels = (pixels.float() - mean) / std
                return model(pixel_values=pixels.to(side.DTYPES[dtype])).last_hidden_state[:, 0].float()
            self.networks[dtype] = forward
        return self.networks[dtype]


def main():
    baseline = Baseline(arguments(__doc__))
    half = "f32" if baseline.args.device == "cpu" else "f16"
    plan = [("OpenCV, u8", half), ("Pillow", half), ("OpenCV", half), ("Pillow", "f32"), ("OpenCV", "f32")]
    for loader, dtype in dict.fromkeys(plan):
        for photos in ("small", "large"):
            baseline.run(photos, loader, dtype)


if __name__ == "__main__":
    main()
