"""Packs what the CUDA check needs on a machine with a GPU and without Rust; `cargo xtask gpu-bundle` calls it.

A trained model, labelled photos and photos of the usual size come from the shared data set, if present. They must not
be redistributed; the archive says so.
"""

import argparse
import gzip
import pathlib
import shutil
import subprocess
import sys
import tarfile

NAME = "foveate-gpu"
# The archive's largest size in bytes.
MOST = 64_000_000
# Scripts of this folder that stay here.
OWN = ["bundle.py", "pure_test.py"]
MODELS = ["tiny", "tiny-reg", "tiny-swiglu"]
# The packed files of a model's folder; the same network in other formats is left out.
MODEL_FILES = ["config.json", "preprocessor_config.json", "model.safetensors"]
SHARED = pathlib.Path("../shared/data")


def copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def copy_model(source, target):
    for name in MODEL_FILES:
        copy(source / name, target / name)


def strip(program, target):
    """Copies a program without its symbols."""
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["strip", "-o", target, program], check=True)
    target.chmod(0o755)


def add_photos(folder, most):
    """Adds photos of about 1000 pixels from the shared data set if present, or else the quick start's."""
    photos = sorted(SHARED.glob("photos/wl_*"))
    manifest, origin = SHARED / "photos/MANIFEST.csv", "the shared data set's; do not pass on"
    if not photos:
        photos = sorted(pathlib.Path("examples/photos").iterdir())
        manifest, origin = pathlib.Path("examples/photos.csv"), "examples/photos"
    # Neighbours in the list are crops of one picture, so the sample is spread over the whole list.
    count = min(most, len(photos))
    for at in range(count):
        photo = photos[at * len(photos) // count]
        copy(photo, folder / "photos" / photo.name)
    copy(manifest, folder / "photos.csv")
    return f"{count} photos: {origin}"


def add_labelled(folder, every):
    """Adds a trained model and every `every`th labelled photo, if the shared data set is present."""
    weights, labelled = SHARED / "weights/vit-tiny-patch16-224", SHARED / "labelled"
    if not weights.is_dir() or not labelled.is_dir():
        return "no labelled photos"
    copy_model(weights, folder / "models/vit-tiny")
    photos = sorted(labelled.glob("*/*"))[::every]
    for photo in photos:
        copy(photo, folder / "labelled" / photo.relative_to(labelled))
    copy(labelled / "MANIFEST.csv", folder / "labelled/labels.csv")
    return f"{len(photos)} labelled photos and the ViT-Tiny: the shared data set's; do not pass on"


def commit():
    """The commit that the program was built from."""
    def git(*args):
        return subprocess.run(["git", *args], check=True, capture_output=True, text=True).stdout.strip()

    return f"commit {git('rev-parse', 'HEAD')}{', with changes' if git('status', '--porcelain') else ''}"


def fill(folder, args):
    """Puts everything into the folder that is packed."""
    strip(args.program, folder / "bin/foveate")
    for test in args.test:
        package, program = test.split("=", 1)
        # Unlike the program, they name this machine's folders.
        strip(program, folder / "tests" / package)
    for path in pathlib.Path("xtask/gpu").iterdir():
        if path.is_file() and path.name not in OWN:
            copy(path, folder / path.name)
    (folder / "check.sh").chmod(0o755)
    fixtures = pathlib.Path("tests/fixtures")
    for model in MODELS:
        copy_model(fixtures / "models" / model, folder / "models" / model)
    for name in [*(f"embeddings_{model}" for model in MODELS), "seeded_embeddings"]:
        copy(fixtures / f"goldens/{name}.safetensors", folder / f"goldens/{name}.safetensors")
    shutil.copytree(fixtures / "goldens/crop_hf_pil", folder / "goldens/crop_hf_pil")
    shutil.copytree(fixtures / "conformance", folder / "conformance")
    shutil.copytree("examples/photos", folder / "examples")
    every, most = (3, 8) if args.slim else (1, 24)
    lines = [commit(), f"features {args.features}", add_photos(folder, most), add_labelled(folder, every)]
    (folder / "BUILT").write_text("\n".join(lines) + "\n")


def pack(folder, archive):
    """Packs reproducibly: sorted, without owners and times."""
    archive.parent.mkdir(parents=True, exist_ok=True)

    def anonymous(entry):
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    with open(archive, "wb") as file, gzip.GzipFile("", "wb", 9, file, 0) as zipped:
        with tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for path in sorted(folder.rglob("*")):
                tar.add(path, f"{NAME}/{path.relative_to(folder)}", recursive=False, filter=anonymous)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--test", action="append", default=[], metavar="PACKAGE=PROGRAM")
    parser.add_argument("--features", required=True)
    parser.add_argument("--slim", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--archive", type=pathlib.Path, required=True)
    args = parser.parse_args()
    folder = args.folder / NAME
    shutil.rmtree(folder, ignore_errors=True)
    fill(folder, args)
    pack(folder, args.archive)
    for part in sorted(path for path in folder.iterdir() if path.is_dir()):
        size = sum(path.stat().st_size for path in part.rglob("*") if path.is_file())
        print(f"{part.name:<10} {size / 1e6:9.1f} MB")
    size = args.archive.stat().st_size
    print((folder / "BUILT").read_text() + f"{args.archive}: {size / 1e6:.1f} MB")
    if size >= MOST:
        sys.exit(f"the archive is larger than {MOST / 1e6} MB; --slim makes it smaller")


if __name__ == "__main__":
    main()
