"""A function of one's own within a pipeline."""

from __future__ import annotations

import importlib.util
import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ._errors import ConfigurationError


@dataclass(frozen=True)
class Function:
    """Calls a function of one's own with the image, as the operations before it have left it.

    The function gets an array of NumPy (height x width x 3, uint8) that it may change and keep, and returns an image of
    uint8: an array, or what NumPy makes one of, such as an image of Pillow. A function that has a second parameter
    without a default, or one named `rng`, gets a `numpy.random.Generator` for it, whose numbers follow from the
    loader's seed, the epoch and the sample: a function that draws from it alone makes the same images in every run::

        def salted(image, rng):
            image[rng.random(image.shape[:2]) < 0.01] = 255
            return image

        ddlp.Compose([ddlp.RandomResizedCrop(224), ddlp.Function(salted)])

    The threads of the CPU call the function, one at a time, since each needs Python's global lock for it; all other
    operations run without that lock. Drives cannot call it, so there must be none. An exception of the function ends
    the run with a FunctionError, whatever `policy` says. For some damaged files the function is called twice.

    Args:
        f: The function.
        output: Height and width of the images that the function returns, or height, width and 3. Default: the image
            keeps its size.
        name: The name by which states know the function: a run resumes only with a function of the same name. Default:
            the function's module and qualified name.

    Raises:
        ConfigurationError: An argument is not as described, or NumPy is not installed.
    """

    f: Callable[..., Any]
    output: tuple[int, int] | tuple[int, int, int] | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if not callable(self.f):
            raise ConfigurationError(f"ddlp.Function got {self.f!r}, but needs a function of an image")
        if importlib.util.find_spec("numpy") is None:
            raise ConfigurationError(
                "ddlp.Function gives images as arrays of NumPy, which is not installed: pip install numpy"
            )
        if self.name is not None and not (isinstance(self.name, str) and self.name):
            raise ConfigurationError(f"`name` of ddlp.Function is {self.name!r}, but must be a text")
        self._size()

    def _size(self) -> list[int] | None:
        """Returns height and width of what the function returns; None if the image keeps its size."""
        if self.output is None:
            return None
        try:
            sides = [operator.index(side) for side in self.output]
        except TypeError:
            sides = []
        if sides[2:] == [3]:
            sides.pop()
        if len(sides) != 2 or min(sides) < 1:
            raise ConfigurationError(
                f"`output` of ddlp.Function is {self.output!r}, but must be (height, width) or (height, width, 3)"
            )
        return sides

    def _full_name(self) -> str:
        """Returns the name by which states know the function."""
        if self.name is not None:
            return self.name
        function = self.f
        while hasattr(function, "func"):
            # A partial of functools.
            function = function.func
        if not hasattr(function, "__qualname__"):
            function = type(function)
        return f"{function.__module__}.{function.__qualname__}"


def caller(function: Function) -> Callable[[bytearray, tuple[int, ...], tuple[int, ...], int], bytes]:
    """Returns what the native part calls: with the bytes and the shape of an image, the shape of the image that is to
    be made, and a seed. Returns the bytes of that image."""
    import numpy

    draws, name = _draws(function.f), function._full_name()

    def call(image: bytearray, shape: tuple[int, ...], output: tuple[int, ...], seed: int) -> bytes:
        given = numpy.frombuffer(image, numpy.uint8).reshape(shape)
        made = function.f(given, numpy.random.default_rng(seed)) if draws else function.f(given)
        if made is None:
            raise TypeError(f"{name} returned None, but must return an image, even one that it changed in place")
        array = numpy.asarray(made)
        if array.shape != output or array.dtype != numpy.uint8:
            remedy = "" if array.shape == output else "; `output` of ddlp.Function says another height and width"
            raise TypeError(
                f"{name} returned {array.dtype} of shape {array.shape}, but must return uint8 of shape {output}{remedy}"
            )
        return array.tobytes()

    return call


def _draws(function: Callable[..., Any]) -> bool:
    """Returns whether a function takes a generator of random numbers beside the image."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        # Some functions of C do not show theirs.
        return False
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    by_place = [parameter for parameter in parameters if parameter.kind in places]
    return len(by_place) > 1 and (by_place[1].default is inspect.Parameter.empty or by_place[1].name == "rng")


def merged(all_functions: list[dict[str, Function]]) -> dict[str, Function]:
    """Returns the functions of several pipelines by their names. Refuses two functions of one name."""
    functions: dict[str, Function] = {}
    for some in all_functions:
        for name, function in some.items():
            if functions.setdefault(name, function).f != function.f:
                raise ConfigurationError(
                    f"two functions of the pipeline have the name {name!r}, by which a state would know them: give one "
                    "of them another name, ddlp.Function(…, name=…)"
                )
    return functions
