"""Arrays and tables of a program as fields beside a dataset."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, Protocol

from ._errors import ConfigurationError


class ArrowStream(Protocol):
    """A table in Arrow memory, as of pyarrow, polars or pandas."""

    def __arrow_c_stream__(self, requested_schema: object | None = None, /) -> object: ...


# Type of the elements, by the format of Python's module struct and the bytes of an element.
_DTYPES = {("q", 8): "int64", ("l", 8): "int64", ("f", 4): "float32", ("e", 2): "float16", ("B", 1): "uint8"}


def fields_of(arrays: Mapping[str, Any]) -> list[tuple[str, str, list[int], bytes]]:
    """Returns name, type of the elements, shape of a sample's value, and values of each field."""
    return [_field(name, array) for name, array in arrays.items()]


def _field(name: str, array: Any) -> tuple[str, str, list[int], bytes]:
    if not isinstance(name, str):
        raise ConfigurationError(f"the name of a field is {name!r}, but must be text")
    # A tensor of PyTorch that requires a gradient gives its values only without the gradient.
    detach = getattr(array, "detach", None)
    values = detach() if callable(detach) else array
    # A tensor has no buffer of its own.
    numpy = getattr(values, "numpy", None)
    try:
        view = memoryview(numpy() if callable(numpy) else values)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise ConfigurationError(
            f"field {name!r} is not an array, but a {type(array).__name__} ({error}): give a NumPy array or a tensor"
        ) from None
    dtype = _DTYPES.get((view.format.lstrip("@=<"), view.itemsize))
    if dtype is None:
        given = getattr(values, "dtype", view.format)
        raise ConfigurationError(
            f"field {name!r} has elements of the type {given}, but fields are int64, float32, float16 or uint8: "
            "convert it, as by array.astype('float32')"
        )
    if not view.shape:
        raise ConfigurationError(f"field {name!r} is one number, but needs a value for each sample")
    return name, dtype, list(view.shape[1:]), view.tobytes()


def path_of(fields: Any) -> str | None:
    """Returns the absolute path of a file of fields that the native part reads; None if `fields` is something else."""
    return os.path.abspath(fields) if isinstance(fields, (str, os.PathLike)) and not _is_parquet(fields) else None


def table_of(fields: Any) -> tuple[str, list[str], list[tuple[str, list[str]]]] | None:
    """Returns name, samples and columns of a table, whose cells are texts; None if `fields` is something else."""
    if fields is None or isinstance(fields, Mapping) or path_of(fields) is not None:
        return None
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ConfigurationError(
            "a table of fields needs the package pyarrow, which is not installed: pip install pyarrow, or give the "
            "path of a table as .csv"
        ) from None
    name = os.fspath(fields) if isinstance(fields, (str, os.PathLike)) else f"the {_kind(fields)}"
    try:
        if _is_parquet(fields):
            table = pyarrow.parquet.read_table(fields)
        elif hasattr(fields, "__arrow_c_stream__"):
            table = pyarrow.table(fields)
        else:
            raise ConfigurationError(
                f"fields is {_kind(fields)}, but must be a mapping of names to arrays, a table of pyarrow, polars or "
                "pandas, or the path of a file"
            )
    except (OSError, pyarrow.ArrowException) as error:
        raise ConfigurationError(f"cannot read the fields in {name}: {error}") from None
    columns = [
        (column, [_cell(value, name, row, column) for row, value in enumerate(values.to_pylist())])
        for column, values in zip(table.column_names, table.columns, strict=True)
    ]
    if not columns or not all(isinstance(value, str) for value in table.column(0).to_pylist()):
        raise ConfigurationError(f"the first column of {name} must be texts that name the samples")
    return name, columns[0][1], columns[1:]


def _cell(value: Any, name: str, row: int, column: str) -> str:
    """Returns a value as a table of comma-separated values has it."""
    if isinstance(value, list):
        return " ".join(_cell(element, name, row, column) for element in value)
    if isinstance(value, bool):
        return str(int(value))
    # As a text, it would be the name of a class.
    if column in ("label", "labels") and isinstance(value, float) and math.isnan(value):
        raise ConfigurationError(
            f"{name}, row {row}: column {column!r} is nan, but must be a class index or the name of a class: give "
            "samples without a label a class of their own"
        )
    if isinstance(value, (int, float, str)):
        return str(value)
    raise ConfigurationError(
        f"{name}, row {row}: column {column!r} is {value!r}, but must be a number, a text, or a list of numbers"
    )


def _is_parquet(fields: Any) -> bool:
    return isinstance(fields, (str, os.PathLike)) and os.fspath(fields).endswith(".parquet")


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
