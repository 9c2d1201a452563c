"""Pipelines: what is done to every sample."""

from __future__ import annotations

import contextlib
import copy
import enum
import json
import operator
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any

from . import _ddlp
from ._errors import ConfigurationError
from ._function import Function, merged
from ._operations import NAMES, CenterCrop, Operation, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize


class Pipeline:
    """The operations that every sample goes through.

    Raises ConfigurationError if a parameter is out of range or the images would differ in size.
    """

    functions: dict[str, Function]
    """What the operations `Function` call, by name."""

    def __init__(self, operations: Sequence[Operation], *, exif_orientation: bool = False) -> None:
        described: list[dict[str, Any]] = []
        functions: list[dict[str, Function]] = []
        if exif_orientation not in (True, False):
            raise ConfigurationError(f"exif_orientation is {exif_orientation!r}, but must be True or False")
        if isinstance(operations, Operation) or not isinstance(operations, Iterable):
            raise TypeError(f"a pipeline needs a list of operations: ddlp.Pipeline([{operations!r}])")
        for number, operation in enumerate(operations):
            described.append(_described(operation, f"operation {number}", functions))
        self._set(json.dumps({"exif_orientation": exif_orientation, "operations": described}, default=plain))
        self.functions = merged(functions)

    def _set(self, text: str) -> None:
        text, height, width = _ddlp.checked_pipeline(text)
        self._description: dict[str, Any] = json.loads(text)
        self._size = (height, width)
        self.functions = {}

    @classmethod
    def named(cls, name: str) -> Pipeline:
        """Returns a built-in pipeline: imagenet-train, imagenet-val or cifar-train."""
        return cls.from_dict(json.loads(_ddlp.named_pipeline(name)))

    @classmethod
    def from_toml(cls, text: str) -> Pipeline:
        """Reads a pipeline as `ddlp run --pipeline` reads it from a file."""
        return cls.from_dict(json.loads(_ddlp.toml_pipeline(text)))

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Pipeline:
        """Returns the pipeline that `to_dict` described. Functions (`ddlp.Function`) are no plain data, so such a
        pipeline lacks them, and a loader refuses it."""
        pipeline = cls.__new__(cls)
        pipeline._set(json.dumps(description))
        return pipeline

    def to_dict(self) -> dict[str, Any]:
        """Describes the pipeline as plain data."""
        return copy.deepcopy(self._description)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the prepared images."""
        return self._size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pipeline):
            return False
        return (self._description, self.functions) == (other._description, other.functions)

    def __hash__(self) -> int:
        return hash(json.dumps(self._description))

    def __repr__(self) -> str:
        return f"ddlp.Pipeline.from_dict({self._description})"


def _described(operation: Operation, place: str, functions: list[dict[str, Function]]) -> dict[str, Any]:
    """Describes an operation as plain data, and adds what it calls to `functions`. `place` says in errors which one it
    is."""
    name = NAMES.get(type(operation))
    if name is None:
        known = ", ".join(kind.__name__ for kind in NAMES)
        raise TypeError(f"{operation!r} is not an operation of a pipeline: the operations are {known}")
    place = f"{place}, {name}"
    if isinstance(operation, Function):
        functions.append({operation._full_name(): operation})
        return {name: {"name": operation._full_name(), "output": operation._size()}}
    parameters: dict[str, Any] = {}
    for field in fields(operation):
        value = getattr(operation, field.name)
        if field.name == "transforms":
            if isinstance(value, Operation) or not isinstance(value, Iterable):
                raise TypeError(f"{place}: `transforms` is {value!r}, but must be a list of operations")
            value = [
                _described(within, f"{place}: transform {number}", functions) for number, within in enumerate(value)
            ]
        try:
            json.dumps(value, default=plain, allow_nan=False)
        except ValueError:
            raise ConfigurationError(f"{place}: `{field.name}` is {value}, but must have finite numbers") from None
        except TypeError as error:
            raise TypeError(f"{place}: `{field.name}` is {value!r}, but {error}") from None
        parameters[field.name] = value
    return {name: parameters}


def imagenet_train(size: int = 224) -> Pipeline:
    """Returns the usual ImageNet training recipe: RandomResizedCrop and a flip."""
    return Pipeline([RandomResizedCrop(size), RandomHorizontalFlip()])


def imagenet_val(size: int = 224, *, resize: int = 256) -> Pipeline:
    """Returns the usual ImageNet validation recipe: Resize and CenterCrop."""
    return Pipeline([Resize(resize), CenterCrop(size)])


def cifar_train() -> Pipeline:
    """Returns the usual CIFAR-10 training recipe: RandomCrop(32, padding=4) and a flip."""
    return Pipeline([RandomCrop(32, padding=4), RandomHorizontalFlip()])


def plain(value: Any) -> Any:
    """Converts a value of a library's own type to one of Python: a truth value, a number, an array, or a member of an
    enumeration, such as torchvision's InterpolationMode.BILINEAR. Raises TypeError for anything else, in words that
    follow "is …, but"."""
    if isinstance(value, enum.Enum):
        return value.value
    # Arrays of NumPy and tensors; single numbers of these libraries, too.
    as_list = getattr(value, "tolist", None)
    if callable(as_list):
        return as_list()
    for converted in (operator.index, float):
        with contextlib.suppress(TypeError, ValueError):
            return converted(value)
    raise TypeError("must be a number, a truth value, a text, or a list of these")


PipelineLike = Pipeline | str | os.PathLike[str] | Callable[..., Any]


def pipeline_of(given: PipelineLike) -> Pipeline:
    """Returns a pipeline, that of a transform of torchvision or timm, or that with this name or in this TOML file."""
    if isinstance(given, Pipeline):
        return given
    if type(given).__module__.startswith(("torchvision.", "timm.")) or type(given).__name__ == "Sequential":
        from ._compose import Compose

        return Compose(given)
    if not isinstance(given, (str, os.PathLike)):
        raise TypeError(
            f"pipeline is {given!r}, but must be a ddlp.Pipeline, a name, a .toml file, or a list of these; operations "
            "make a pipeline by ddlp.Pipeline([...])"
        )
    if os.path.splitext(given)[1] != ".toml":
        return Pipeline.named(os.fspath(given))
    try:
        with open(given, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the pipeline's file {os.fspath(given)} cannot be read: {error}") from error
    return Pipeline.from_toml(text)
