"""The option `per_sample`: a function of the program that changes the image of each sample."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from ._errors import ConfigurationError

PerSample = Callable[[Any, int], Any]


def checked(function: PerSample | None) -> PerSample | None:
    """Refuses what is no function, and a function without the library that makes its images."""
    if function is None:
        return None
    if not callable(function):
        raise ConfigurationError(f"per_sample is {function!r}, but must be a function of an image and a seed")
    if importlib.util.find_spec("numpy") is None:
        raise ConfigurationError(
            "per_sample gets images as arrays of NumPy, which is not installed: pip install numpy, or leave it out"
        )
    return function


def changed(function: PerSample, image: bytearray, shape: tuple[int, int, int], seed: int) -> bytearray:
    """Returns the bytes of the image that a function makes of `image`."""
    import numpy

    made = function(numpy.frombuffer(image, numpy.uint8).reshape(shape), seed)
    if made is None:
        raise TypeError("per_sample returned None, but must return an image, even one that it changed in place")
    array = numpy.asarray(made)
    if array.shape != shape or array.dtype != numpy.uint8:
        raise TypeError(
            f"per_sample returned {array.dtype} of shape {array.shape}, but must return uint8 of shape {shape}"
        )
    return bytearray(array.tobytes())
