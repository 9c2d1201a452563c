"""The options of a loader as the native part reads them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ._drives import cores_of, described
from ._errors import ConfigurationError
from ._fields import path_of
from ._pipeline import plain
from ._processes import processes_here, ranks_of

_UNCHANGED = (
    "batch_size",
    "buffers",
    "cutmix",
    "drive_depth",
    "drive_optional",
    "drive_timeout_s",
    "dtype",
    "epoch_samples",
    "host_nqn",
    "kind",
    "last",
    "layout",
    "metrics",
    "mix_probability",
    "mixup",
    "policy",
    "seed",
    "shuffle",
    "stall_after_s",
    "strategy",
    "threads",
    "window",
)
"""Options that the native part reads as the program gave them."""


def options_of(arguments: Mapping[str, Any], class_names: list[str] | None) -> dict[str, Any]:
    """Returns the options that the arguments of a loader are, except those of its pipelines."""
    dataset, max_corrupt = arguments["dataset"], arguments["max_corrupt"]
    rank, world_size = ranks_of(arguments["rank"], arguments["world_size"])
    options = {name: arguments[name] for name in _UNCHANGED}
    options |= {
        "dataset": dataset if isinstance(dataset, (str, os.PathLike)) else None,
        "fields": path_of(arguments["fields"]),
        "drives": described(arguments["drives"]),
        "rank": rank,
        "world_size": world_size,
        "classes": arguments["classes"] if class_names is None else None,
        "class_names": class_names or [],
        "cores": cores_of(arguments["cores"]),
        "local_world_size": processes_here(),
    }
    if max_corrupt is not None:
        options["max_corrupt"] = str(max_corrupt)
    return options


def written(options: dict[str, Any]) -> str:
    """Writes options as JSON, which has no infinite numbers."""
    for name, value in options.items():
        try:
            json.dumps(value, default=plain, allow_nan=False)
        except ValueError:
            must = "must be a finite number" if isinstance(value, float) else "must have finite numbers"
            raise ConfigurationError(f"`{name}` is {value}, but {must}") from None
        except TypeError as error:
            raise TypeError(f"`{name}` is {value!r}, but {error}") from None
    return json.dumps(options, default=plain)
