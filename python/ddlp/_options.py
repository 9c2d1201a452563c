"""The options of a loader as the native part reads them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from ._errors import ConfigurationError
from ._pipeline import plain
from ._processes import processes_here, ranks_of


def options_of(
    arguments: Mapping[str, Any],
    class_names: list[str] | None,
    converters: Mapping[str, Callable[[Any], Any] | None],
) -> dict[str, Any]:
    """Returns the options that the arguments of a loader are, except those of its pipelines."""
    dataset = arguments["dataset"]
    rank, world_size = ranks_of(arguments["rank"], arguments["world_size"])
    options = {
        name: arguments[name] if convert is None else convert(arguments[name]) for name, convert in converters.items()
    }
    return options | {
        "dataset": dataset if isinstance(dataset, (str, os.PathLike)) else None,
        "rank": rank,
        "world_size": world_size,
        "classes": arguments["classes"] if class_names is None else None,
        "class_names": class_names or [],
        "local_world_size": processes_here(),
    }


def limit_of(max_corrupt: Any) -> str:
    """Returns a limit on corrupt samples as the native part reads it."""
    return "default" if max_corrupt is None else str(max_corrupt)


def folder_of(cache: Any) -> str | None:
    """Returns the absolute path of the folder of a cache."""
    if cache is None or isinstance(cache, (str, os.PathLike)):
        return None if cache is None else os.path.abspath(cache)
    raise ConfigurationError(f"`cache` is {cache!r}, but must be the path of a folder")


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
