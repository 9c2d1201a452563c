"""Tables in Arrow memory, of pyarrow, polars, Hugging Face datasets and others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ArrowTable:
    """A table with a column of image files and one of labels.

    No byte of an image is copied before it is decoded. A table that another library has mapped from a file is read from
    that file, which must not change meanwhile.
    """

    table: Any
    """Any object with `__arrow_c_stream__`, such as a table of polars, or one of `pyarrow.parquet.read_table`."""
    image: str | None = None
    """Column of the images: binary, or structs with a field `bytes`. Default: the only such column, or "image"."""
    label: str | None = None
    """Column of the labels: whole numbers from 0. Default: the only such column, or "label"."""
    classes: Sequence[str] = ()
    """Names of the classes."""


def samples_of(dataset: Any) -> tuple[Any, dict[str, Any] | None]:
    """Returns what the loader reads of a dataset, and the names of its columns and classes if it is a table."""
    table = _arrow_table(dataset)
    if table is None:
        return dataset, None
    return table.table, {"image": table.image, "label": table.label, "classes": list(table.classes)}


def _arrow_table(dataset: Any) -> ArrowTable | None:
    if isinstance(dataset, ArrowTable):
        return dataset
    if type(dataset).__module__.split(".")[0] == "datasets" and hasattr(dataset, "features"):
        return _of_hugging_face(dataset)
    if hasattr(dataset, "__arrow_c_stream__"):
        return ArrowTable(dataset)
    return None


def _of_hugging_face(dataset: Any) -> ArrowTable:
    # A dataset that was shuffled or filtered is a list of rows of its table: only then are rows copied.
    table = dataset.data.table if dataset._indices is None else dataset.with_format("arrow")[:]
    kinds = {name: type(feature).__name__ for name, feature in dataset.features.items()}
    images = [name for name, kind in kinds.items() if kind == "Image"]
    labels = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    label = labels[0] if len(labels) == 1 else None
    return ArrowTable(
        table,
        image=images[0] if len(images) == 1 else None,
        label=label,
        classes=dataset.features[label].names if label is not None else (),
    )
