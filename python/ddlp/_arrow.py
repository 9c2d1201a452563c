"""Tables in Arrow memory, of pyarrow, polars, Hugging Face datasets and others."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ._errors import ConfigurationError


@dataclass(frozen=True)
class ArrowTable:
    """A table with a column of image files and one of labels.

    No byte of an image is copied before it is decoded. A table that another library has mapped from a file is read from
    that file, which must not change meanwhile. An image may also be the path of its file, which is read when the image
    is prepared; a state of a loader identifies such an image by its path.
    """

    table: Any
    """Any object with `__arrow_c_stream__`, such as a table of polars, or one of `pyarrow.parquet.read_table`."""
    image: str | None = None
    """Column of images: binary, structs (`bytes`, `path`), or paths, which must be named. Default: the only binary or
    struct column, or "image"."""
    label: str | None = None
    """Column of the labels: whole numbers from 0. Default: the only such column, or "label"."""
    classes: Sequence[str] = ()
    """Names of the classes."""
    name: str | None = None
    """Column of the names of the samples: texts. Default: a sample is called "row" and its number."""


def samples_of(dataset: Any) -> tuple[Any, dict[str, Any] | None]:
    """Returns the object from which the loader reads samples, and for a table the names of its columns and classes."""
    table = _arrow_table(dataset)
    if table is None:
        return dataset, None
    for name, column in (("image", table.image), ("label", table.label), ("name", table.name)):
        if not isinstance(column, (str, type(None))):
            raise ConfigurationError(f"{name} of ddlp.ArrowTable is {column!r}, but must be the name of a column")
    if isinstance(table.classes, str) or not isinstance(table.classes, Iterable):
        raise ConfigurationError(f"classes of ddlp.ArrowTable is {table.classes!r}, but must be a list of names")
    columns = {"image": table.image, "label": table.label, "name": table.name, "id": None}
    return table.table, {**columns, "classes": list(table.classes)}


def _arrow_table(dataset: Any) -> ArrowTable | None:
    if isinstance(dataset, ArrowTable):
        of_library = _of_hugging_face(dataset.table, dataset.image)
        if of_library is not None:
            image, label = dataset.image or of_library.image, dataset.label or of_library.label
            return ArrowTable(of_library.table, image, label, dataset.classes or of_library.classes, dataset.name)
        if not hasattr(dataset.table, "__arrow_c_stream__"):
            raise ConfigurationError(
                f"ddlp.ArrowTable needs a table in Arrow memory, but {_kind(dataset.table)} is not one: give a table "
                "of pyarrow or polars, or a dataset of Hugging Face"
            )
        return dataset
    of_library = _of_hugging_face(dataset)
    if of_library is None and hasattr(dataset, "__arrow_c_stream__"):
        return ArrowTable(dataset)
    return of_library


def _of_hugging_face(dataset: Any, image: str | None = None) -> ArrowTable | None:
    """Returns the table of a dataset of Hugging Face; None if it is something else. `image` is the column of images, if
    the program has named it."""
    library = sys.modules.get("datasets")

    def is_a(*names: str) -> bool:
        return any(isinstance(dataset, getattr(library, name, ())) for name in names)

    if is_a("IterableDataset", "IterableDatasetDict"):
        raise ConfigurationError(
            f"{_kind(dataset)} streams its samples one after the other, and the loader needs any of them at any time: "
            "load the dataset without streaming=True"
        )
    if is_a("DatasetDict"):
        splits = ", ".join(repr(name) for name in dataset)
        raise ConfigurationError(f"{_kind(dataset)} has several datasets: give one of them, by its name ({splits})")
    if not is_a("Dataset"):
        return None
    if dataset.format["type"] == "custom":
        raise ConfigurationError(
            f"{_kind(dataset)} has a transform (by with_transform or set_transform), which the loader would leave out, "
            "since it reads the image files in the dataset's table: give the dataset without the transform "
            "(dataset.with_format(None)), and give the loader the transform's operations as `pipeline`, or put a "
            "function of one image into the pipeline (ddlp.Function); or store what the transform makes, by dataset.map"
        )
    # A dataset that was shuffled or filtered is a list of rows of its table: only then are rows copied.
    table = dataset.data.table if dataset._indices is None else dataset.with_format("arrow")[:]
    kinds = {name: type(feature).__name__ for name, feature in dataset.features.items()}
    images = [name for name, kind in kinds.items() if kind == "Image"]
    labels = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    label = labels[0] if len(labels) == 1 else None
    if image is None and len(images) == 1:
        image = images[0]
    mode = getattr(dataset.features[image], "mode", None) if image in images else None
    if mode not in (None, "RGB"):
        raise ConfigurationError(
            f"the column {image!r} of {_kind(dataset)} has images of the mode {mode!r}, but the loader makes RGB of "
            f"every image: give dataset.cast_column({image!r}, datasets.Image()), and for gray values the operation "
            "ddlp.Grayscale(3)"
        )
    return ArrowTable(
        table,
        image=image,
        label=label,
        classes=dataset.features[label].names if label is not None else (),
    )


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
