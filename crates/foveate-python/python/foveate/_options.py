"""Keyword arguments as the command line's options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Union

Scalar = Union[str, int, float, bool, "os.PathLike[str]", None]
Option = Union[Scalar, "list[Scalar]", "tuple[Scalar, ...]", "Mapping[str, Scalar]"]


def arguments(options: Mapping[str, Option]) -> list[str]:
    """Write options as ``--name=value``. None and False are left out, True is a flag, lists and mappings repeat."""
    return [argument for name, value in options.items() for argument in _arguments(name, value)]


def within(cpus: float, options: Mapping[str, Any]) -> dict[str, Any]:
    """Keep an embedder within a share of the cores, divided as `foveate embed` divides a machine."""
    threads = max(1, int(cpus))
    return {"threads": threads, "workers": -(-threads // 4), **options}


def _arguments(name: str, value: Option) -> list[str]:
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
