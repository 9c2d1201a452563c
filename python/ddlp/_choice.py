"""Which samples of a dataset epochs have, and how often."""

from __future__ import annotations

import operator
import os
from array import array
from collections.abc import Callable, Mapping
from typing import Any

from ._errors import ConfigurationError

# Kinds of whole numbers, in the letters of Python's module struct.
_WHOLE = "bBhHiIlLqQ"


def choice_of(indices: Any, weights: Any) -> dict[str, Any]:
    """Returns the choice of samples as the native part takes it."""
    return {"indices": _indices(indices), "weights": _weights(weights)}


def file_of(indices: Any) -> str | None:
    """Returns the absolute path of a file of indices, which the native part reads; None if `indices` is something
    else."""
    return os.path.abspath(indices) if isinstance(indices, (str, os.PathLike)) else None


def part_of(split: Any) -> str | None:
    """Returns a part of a split, FILE:PART, with the absolute path of the file."""
    if split is None:
        return None
    if not isinstance(split, str):
        raise ConfigurationError(
            f"`split` is {split!r}, but must be a file and the name of a part, such as 'splits.json:train'"
        )
    file, colon, part = split.rpartition(":")
    return os.path.abspath(file) + colon + part if file else split


def whole_numbers(name: str, values: Any) -> bytes:
    """Returns a list or array of whole numbers as int64. Names the first value that is not one."""
    view = view_of(values)
    if view is None:
        try:
            values = list(values)
        except TypeError:
            raise ConfigurationError(f"{name} is {values!r}, but must be a list or an array of whole numbers") from None
        return array("q", [_whole(name, at, value) for at, value in enumerate(values)]).tobytes()
    kind = view.format.lstrip("@=<")
    if len(view.shape or ()) != 1 or kind not in _WHOLE:
        raise ConfigurationError(
            f"{name} is an array of the shape {tuple(view.shape or ())} and the type {_type(values, view)}, but must "
            f"be a list or an array of whole numbers{' (numpy.flatnonzero(mask))' if kind == '?' else ''}"
        )
    if kind in "lq" and view.itemsize == 8:
        return view.tobytes()
    try:
        return array("q", view.tolist()).tobytes()
    except OverflowError:
        raise ConfigurationError(f"{name} has {max(view.tolist())}, which is no index of a sample") from None


def view_of(values: Any) -> memoryview | None:
    """Returns the buffer of an array, or of a tensor of PyTorch; None if it has no buffer."""
    if isinstance(values, (str, bytes)):
        return None
    # A tensor has no buffer of its own.
    numpy = getattr(values, "numpy", None)
    try:
        view = memoryview(numpy() if callable(numpy) else values)
        return view.toreadonly()
    except (TypeError, ValueError, RuntimeError, BufferError):
        return None


def _whole(name: str, at: int, value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise ConfigurationError(f"{name}[{at}] is {value!r}, but must be a whole number") from None
    if not -(2**63) <= number < 2**63:
        raise ConfigurationError(f"{name}[{at}] is {number}, which is no index of a sample")
    return number


def _indices(indices: Any) -> Any:
    if indices is None or file_of(indices) is not None:
        return None
    if callable(indices):
        function: Callable[[int], Any] = indices

        def of_epoch(epoch: int) -> bytes:
            return whole_numbers("it", function(epoch))

        return of_epoch
    return whole_numbers("`indices`", indices)


def _weights(weights: Any) -> bytes | None:
    """Returns the weights as float64; nothing for balanced classes."""
    if weights is None:
        return None
    if isinstance(weights, str):
        if weights == "balanced":
            return b""
        raise ConfigurationError(
            f'`weights` is {weights!r}, but must be "balanced", or a weight for each sample or for each class'
        )
    if isinstance(weights, Mapping):
        raise ConfigurationError(
            "`weights` is a mapping, but must be a list: a weight for each class, in the order of loader.classes, or "
            "one for each sample"
        )
    view = view_of(weights)
    if view is not None and len(view.shape or ()) == 1 and view.format in ("d", "f", *_WHOLE):
        weights = view.tolist()
    try:
        numbers = array("d", [float(weight) for weight in weights])
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"`weights` is not a list of numbers ({error}): give a weight for each sample or for each class"
        ) from None
    if not numbers:
        raise ConfigurationError("`weights` is an empty list: give a weight for each sample or for each class")
    return numbers.tobytes()


def _type(values: Any, view: memoryview) -> Any:
    return getattr(values, "dtype", view.format)
