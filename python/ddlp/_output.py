"""The kinds of arrays that a loader yields. Libraries are imported when they are first needed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from ._ddlp import Array

Output = Callable[[Array], Any]


def _torch(array: Array) -> Any:
    from torch.utils.dlpack import from_dlpack

    return from_dlpack(array)


def _numpy(array: Array) -> Any:
    import numpy

    # Given the array itself, NumPy would make an array of objects if the array refuses a buffer.
    return numpy.asarray(memoryview(array))


def _dlpack(array: Array) -> Array:
    return array


def missing_library(output: str) -> str | None:
    """Returns the library that an output needs, if it is not installed. Does not import it."""
    needed = output in ("torch", "numpy") and importlib.util.find_spec(output) is None
    return output if needed else None


OUTPUTS: dict[str, Output] = {"torch": _torch, "numpy": _numpy, "dlpack": _dlpack}
