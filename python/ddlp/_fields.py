"""Arrays of a program as fields beside a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._errors import ConfigurationError

# Type of the elements, by the format of Python's module struct and the bytes of an element.
_DTYPES = {("q", 8): "int64", ("l", 8): "int64", ("f", 4): "float32", ("e", 2): "float16", ("B", 1): "uint8"}


def fields_of(arrays: Mapping[str, Any]) -> list[tuple[str, str, list[int], bytes]]:
    """Returns name, type of the elements, shape of a sample's value, and values of each field."""
    return [_field(name, array) for name, array in arrays.items()]


def _field(name: str, array: Any) -> tuple[str, str, list[int], bytes]:
    # A tensor of PyTorch has no buffer of its own.
    numpy = getattr(array, "numpy", None)
    try:
        view = memoryview(numpy() if callable(numpy) else array)
    except (TypeError, ValueError, BufferError) as error:
        raise ConfigurationError(
            f"field {name!r} is no array, but {type(array).__name__} ({error}): give a NumPy array or a tensor"
        ) from None
    dtype = _DTYPES.get((view.format.lstrip("@=<"), view.itemsize))
    if dtype is None:
        raise ConfigurationError(
            f"field {name!r} has elements of the format {view.format!r}, but fields are int64, float32, float16 or "
            "uint8: convert it, as by array.astype('float32')"
        )
    if not view.shape:
        raise ConfigurationError(f"field {name!r} is one number, but needs a value for each sample")
    return name, dtype, list(view.shape[1:]), view.tobytes()
