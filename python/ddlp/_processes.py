"""The processes that train together."""

from __future__ import annotations

import os
import sys

from ._errors import ConfigurationError


def ranks_of(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Returns this process's number and the number of processes."""
    if rank is None and world_size is None:
        torch = sys.modules.get("torch")
        distributed = getattr(torch, "distributed", None)
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        if ("RANK" in os.environ) != ("WORLD_SIZE" in os.environ):
            one, no = ("RANK", "WORLD_SIZE") if "RANK" in os.environ else ("WORLD_SIZE", "RANK")
            raise ConfigurationError(f"the environment has {one}, but no {no}: set both, or give rank and world_size")
        return _number("RANK", 0), _number("WORLD_SIZE", 1)
    if rank is None or world_size is None:
        raise ConfigurationError("give both rank and world_size, or neither")
    return rank, world_size


def processes_here() -> int:
    """Returns the number of processes of this machine that train together."""
    processes = _number("LOCAL_WORLD_SIZE", 1)
    if processes < 1:
        raise ConfigurationError(f"the environment has LOCAL_WORLD_SIZE={processes}, but must have 1 or more")
    return processes


def _number(variable: str, default: int) -> int:
    """Returns the number in a variable of the environment."""
    value = os.environ.get(variable, default)
    try:
        return int(value)
    except ValueError:
        raise ConfigurationError(f"the environment has {variable}={value!r}, which is not a number") from None
