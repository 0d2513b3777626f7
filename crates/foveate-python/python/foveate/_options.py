"""Keyword arguments as the command line's options."""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Union, get_args, get_origin, get_type_hints

Path = Union[str, "os.PathLike[str]", None]
Setting = Union[str, int, float, bool]
Settings = Union[Mapping[str, Setting], Sequence[str], None]
#: A number, also with a suffix: ``"200M"``.
Count = Union[int, str, None]
Words = Union[str, Sequence[str], None]


class _Options(TypedDict, total=False):
    """Options that decide how an image becomes a vector, and how fast."""

    device: str | None
    dtype: Literal["f32", "f16", "bf16", "i8", None]
    threads: int | None
    batch: int | None
    workers: int | None
    pixel_memory: Count
    readers: int | None
    prefetch: int | None
    preprocess: Literal["hf", "squash", None]
    pooling: Literal["cls", "mean", "cls+mean", "register", "head", None]
    normalize: Literal["off", "l2", None]
    orientation: Literal["apply", "ignore", None]
    decoder: str | None
    decoder_option: Settings
    decode_scale: Literal["exact", "fast", "low", None]
    resizer: str | None
    encoder: str | None
    encoder_option: Settings
    allow_truncated: bool
    max_pixels: Count
    max_bytes: Count
    store_option: Settings
    http_header: Settings
    max_redirects: int | None
    retry_for: int | None
    requests: int | None
    cache: Path
    cache_size: Count
    recent_memory: Count
    config: Path


class EmbedderOptions(_Options, total=False):
    """Options of an embedder."""

    timeout: float | None


class StreamOptions(_Options, total=False):
    """Options of a job whose vectors the caller takes."""

    model: Path
    from_list: Path | Sequence[str | os.PathLike[str]]
    null: bool
    path_column: str | None
    listing: Path
    max_listing: Count
    image_column: str | None
    include: str | Sequence[str]
    exclude: str | Sequence[str]
    id_column: str | None
    limit: int | None
    shard: str | None
    strict: bool
    max_failures: Count
    max_unreadable: Count


class JobOptions(StreamOptions, total=False):
    """Options of a job with an output."""

    columns: Words
    out_dtype: Literal["f32", "f16", None]
    sink: str | None
    sink_option: Settings
    part_items: int | None
    output_store_option: Settings
    staging: Path
    commit_every: float | None
    resume: bool
    overwrite: bool
    by_content: bool
    check: bool


_log = logging.getLogger("foveate")

#: What takes each set of options.
_TAKERS = {EmbedderOptions: "Embedder", StreamOptions: "embed_files", JobOptions: "embed"}
#: Options that the command alone has.
_OF_COMMAND = ("changes", "dry_run", "json", "max_removed", "prune", "quiet", "retry_failures", "trace", "update")


def checked(options: Mapping[str, Any], taken: type) -> list[str]:
    """Write options as arguments. One that would be ignored is refused, as is a word that is not a possible value.

    Raises:
        ValueError: the option is unknown, or of something else, or its value is not a possible one.
    """
    hints = get_type_hints(taken)
    for name, value in options.items():
        if name not in hints:
            raise ValueError(f"{_TAKERS[taken]} does not take '{name}'; {_remedy(name, hints)}")
        possible = _possible(hints[name])
        if value is not None and possible and value not in possible:
            raise ValueError(f"{name} is {value!r}; possible values: {', '.join(possible)}")
    _warn_of_f32(options)
    # Not of the command: one is the engine's own, the other a setting of stores.
    of_store = {"store_option": {"retry-for": options.get("retry_for")}} if options.get("retry_for") is not None else {}
    of_command = {name: value for name, value in options.items() if name not in ("timeout", "retry_for")}
    return [*arguments(of_command), *arguments(of_store)]


def arguments(options: Mapping[str, Any]) -> list[str]:
    """Write options as ``--name=value``. None and False are left out, True is a flag, lists and mappings repeat."""
    return [argument for name, value in options.items() for argument in _arguments(name, value)]


def within(cpus: float, options: Mapping[str, Any]) -> dict[str, Any]:
    """Keep an embedder within a share of the cores, divided as `foveate embed` divides a machine."""
    threads = max(1, int(cpus))
    return {"threads": threads, "workers": -(-threads // 4), **options}


def in_python(message: str) -> str:
    """Name the options in a message as keywords: ``batch`` in place of ``--batch <N>``."""
    known = get_type_hints(JobOptions)

    def keyword(option: re.Match[str]) -> str:
        name = option[1].replace("-", "_")
        return name if name in known else option[0]

    return re.sub(r"--([a-z][a-z-]*)(?: <[^>]*>(?:\.\.\.)?)?", keyword, message)


def _warn_of_f32(options: Mapping[str, Any]) -> None:
    """Warn as ``foveate embed`` does if a GPU computes in f32 because no precision was asked for."""
    device = options.get("device") or "cpu"
    # A configuration of `foveate tune` may name one.
    is_chosen = options.get("dtype") or options.get("config")
    if not is_chosen and any(name.strip().startswith("cuda") for name in device.split(",")):
        _log.warning(
            "%s computes in f32, which takes about ten times as long as half precision; pass dtype='f16' or "
            "dtype='bf16' (`foveate verify` measures how much the vectors change), or dtype='f32' to keep it",
            device,
        )


def _possible(hint: Any) -> list[str]:
    return [word for word in get_args(hint) if word] if get_origin(hint) is Literal else []


def _remedy(name: str, hints: Mapping[str, Any]) -> str:
    takers = (taker for taken, taker in _TAKERS.items() if name in get_type_hints(taken))
    taker = "embed" if name == "output" else next(takers, None)
    if taker is not None:
        return f"it is an option of foveate.{taker}"
    if name in _OF_COMMAND:
        return "run the command `foveate embed`"
    similar = [hint for hint in hints if name.startswith(f"{hint}_")] or difflib.get_close_matches(name, hints, n=1)
    tip = f"did you mean '{similar[0]}'? " if similar else ""
    return f"{tip}its options: {', '.join(sorted(hints))}"


def _arguments(name: str, value: Any) -> list[str]:
    option = "--" + name.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    if isinstance(value, Mapping):
        return [f"{option}={key}={setting}" for key, setting in value.items()]
    if isinstance(value, (list, tuple)):
        return [argument for item in value for argument in _arguments(name, item)]
    return [f"{option}={os.fspath(value) if isinstance(value, os.PathLike) else value}"]
