"""Numerics: foveate beside committed vectors of transformers, beside transformers on this machine, beside itself."""

import json
import shutil
import struct

from common import DTYPES, HERE, NUMERICS, Cells, Deadline, Failed, Mode, arguments, foveate, one_line

try:
    import numpy as np
except ImportError as error:  # Every row then reports it.
    np, WITHOUT_NUMPY = None, one_line(error)

# Models with committed vectors: foveate's name, the file, and the keys for class token and patch mean.
GOLDENS = {
    "dinov2-small": ("seeded:dinov2-small", "seeded_embeddings", "dinov2-small.hf_pil.{}"),
    "dinov2-small-with-registers":
        ("seeded:dinov2-with-registers-small", "seeded_embeddings", "dinov2-small-with-registers.hf_pil.{}"),
    "tiny": (str(HERE / "models/tiny"), "embeddings_tiny", "hf_pil.{}.f32"),
    "tiny-reg": (str(HERE / "models/tiny-reg"), "embeddings_tiny-reg", "hf_pil.{}.f32"),
    "tiny-swiglu": (str(HERE / "models/tiny-swiglu"), "embeddings_tiny-swiglu", "hf_pil.{}.f32"),
}
# Other ways to compute the same result: foveate's arguments, and whether the bits must be equal. Batches usually have 8
# images, so that several are under way.
WAYS = {
    "batch 1": (("--batch", "1"), False),
    "one stage at a time": (("--workers", "0"), True),
    "two encoders": (("--device", "{device},{device}"), True),
    "no graph": (("--encoder-option", "graph=off"), True),
    "plain attention": (("--encoder-option", "attention=plain"), False),
    "tf32": (("--encoder-option", "tf32=on"), False),
}


def safetensors(path):
    """The file's f32 and f64 arrays by name, and its metadata."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    metadata = header.pop("__metadata__", {})
    kinds = {"F32": "<f4", "F64": "<f8"}

    def array(entry):
        start, end = entry["data_offsets"]
        return np.frombuffer(body[start:end], kinds[entry["dtype"]]).reshape(entry["shape"])

    return {name: array(entry) for name, entry in header.items() if entry["dtype"] in kinds}, metadata


def apart(a, b):
    """The worst row of two matrices: 1 − cosine, and max |a − b| ÷ max |b|. NaN where one is not finite."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.shape != b.shape:
        raise Failed(f"vectors of shape {a.shape}, not {b.shape}")
    cosine = (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))
    return float((1 - cosine).max()), float((np.abs(a - b).max(1) / np.abs(b).max(1)).max())


class Check:
    def __init__(self, args):
        self.args, self.mode, self.deadline = args, Mode(args.mode), Deadline(args.seconds)
        self.scratch = args.scratch / "numerics"
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.cells = Cells(args.out / "numerics.csv", NUMERICS)
        self.crops = sorted((HERE / "goldens/crop_hf_pil").glob("*.png"))

    def embed(self, model, dtype, *more, times=1):
        """`[images, 2 * width]`: class token and patch mean of the crops, which are the network's input to the bit;
        of all of them so many times over."""
        if np is None:
            raise Failed(WITHOUT_NUMPY)
        listing, output = self.scratch / "crops.txt", self.scratch / "vectors.npy"
        listing.write_text("".join(f"{crop}\n" for crop in self.crops) * times)
        options = ("--preprocess", "squash", "--pooling", "cls+mean", "--batch", "8", "--workers", "2", "--strict")
        foveate("embed", "--from-list", listing, "--model", model, "--device", self.args.device, "--dtype", dtype,
                *options, *more, "-o", output, "--overwrite", "--quiet", seconds=min(60, self.deadline.left()))
        return np.load(output)

    def golden(self, file, key):
        arrays, metadata = safetensors(HERE / f"goldens/{file}.safetensors")
        names = json.loads(metadata["names"]) if metadata["names"].startswith("[") else metadata["names"].split(",")
        stems = [name.rsplit("/", 1)[-1].rsplit(".", 1)[0] for name in names]
        rows = [stems.index(crop.stem) for crop in self.crops]
        return np.concatenate([arrays[key.format(part)][rows] for part in ("cls", "patch_mean")], 1)

    def goldens(self):
        for model, (spec, file, key) in GOLDENS.items():
            if self.mode.name == "smoke" and spec.startswith("seeded:"):
                continue
            for dtype in DTYPES:
                def measure():
                    cosine, error = apart(self.embed(spec, dtype), self.golden(file, key))
                    return {"images": len(self.crops), "one_minus_cosine": cosine, "relative_error": error}
                self.cells.attempt({"check": "committed vectors", "model": model, "dtype": dtype}, measure)

    def ways(self):
        model = "tiny" if self.mode.name == "smoke" else "dinov2-small"
        for dtype in DTYPES:
            usual = None
            for way, (more, _) in WAYS.items():
                if way == "tf32" and dtype != "f32":
                    continue

                def measure():
                    nonlocal usual
                    if usual is None:
                        usual = self.embed(GOLDENS[model][0], dtype, times=4)
                    options = [option.format(device=self.args.device) for option in more]
                    other = self.embed(GOLDENS[model][0], dtype, *options, times=4)
                    cosine, error = apart(other, usual)
                    return {"images": len(usual), "one_minus_cosine": cosine, "relative_error": error,
                            "same_bits": "yes" if (usual == other).all() else "no"}
                self.cells.attempt({"check": way, "model": model, "dtype": dtype}, measure)

    def neighbours(self):
        def measure():
            labelled, model = HERE / "labelled", HERE / "models/vit-tiny"
            if not (labelled.is_dir() and model.is_dir()):
                raise Failed("not in this bundle")
            options = ("--model", model, "--device", self.args.device, "--batch", "64", "--decode-scale", "exact",
                       "--sample", "100K", "--labels", labelled / "labels.csv", "--json")
            said = foveate("verify", labelled, *options, "--dtype", dtype, "--against", "dtype=f32",
                           seconds=min(90, self.deadline.left()))
            found = json.loads(said)
            recall = found["recall_at_1"]
            return {"images": found["compared"], "one_minus_cosine": 1 - found["cosine"]["min"],
                    "relative_error": found["relative_error"]["max"], "share": found["same_neighbour"],
                    "recall": recall["first"], "recall_other": recall["second"]}
        for dtype in ("f16", "bf16"):
            self.cells.attempt({"check": "nearest neighbours", "model": "vit-tiny", "dtype": dtype}, measure)

    def transformers(self):
        """Random weights that transformers saves and foveate reads; the truth is transformers in f64."""
        import transformers_side as side

        models = ("small-random", "giant-shaped")
        for name in models:
            reference = None
            for dtype in DTYPES:
                def measure():
                    nonlocal reference
                    folder = self.scratch / name
                    if reference is None:
                        side.require(self.args.device)
                        self.deadline.check(10)
                        pixels = side.pixels(self.crops)
                        reference = side.Reference(name, folder, pixels, self.args.device, self.mode.name == "smoke")
                        shutil.copy(HERE / "models/tiny/preprocessor_config.json", folder)
                    cosine, error = apart(self.embed(folder, dtype), reference.truth)
                    torch_cosine, torch_error = apart(reference.vectors(dtype), reference.truth)
                    return {"images": len(self.crops), "one_minus_cosine": cosine, "relative_error": error,
                            "torch_one_minus_cosine": torch_cosine, "torch_relative_error": torch_error}
                self.cells.attempt({"check": "transformers here", "model": name, "dtype": dtype}, measure)


def main():
    check = Check(arguments(__doc__))
    check.goldens()
    check.neighbours()
    try:
        check.transformers()
    except ImportError as error:
        for dtype in DTYPES:
            for name in ("small-random", "giant-shaped"):
                check.cells.add(check="transformers here", model=name, dtype=dtype, status=f"n/a ({one_line(error)})")
    check.ways()


if __name__ == "__main__":
    main()
