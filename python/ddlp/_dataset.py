"""The samples of a dataset."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from typing import Any, overload

from . import _ddlp
from ._arrow import ArrowTable
from ._choice import whole_numbers
from ._classes import names_of
from ._errors import ConfigurationError
from ._mix import Mix
from ._phases import whole
from ._samples import Samples
from ._source import Source, source_of

_OF_TABLE = ("data_column", "label_column", "metadata_table")
"""The options that name columns of a table in a database."""


class Dataset:
    """The samples of a dataset: their names, classes and labels, without a pass over the images.

    `loader.dataset` is the dataset of a loader. A loader takes a Dataset as it takes its path, and opens it again.

    Args:
        dataset: The dataset, as `Loader` takes it.
        kind: Kind of the dataset, as `Loader` takes it.
        classes: Names of all classes, as `Loader` takes them.
        data_column: Column of the images in a table of Cassandra or ScyllaDB, as `Loader` takes it.
        label_column: Column of the labels, as `Loader` takes it.
        metadata_table: Table of the labels, as `Loader` takes it.

    Raises:
        ConfigurationError: The dataset is not one.
        UnavailableError: The dataset cannot be opened.
    """

    def __init__(
        self,
        dataset: str | os.PathLike[str] | Samples | ArrowTable | Mix,
        *,
        kind: str | None = None,
        classes: Sequence[str] | None = None,
        data_column: str | None = None,
        label_column: str | None = None,
        metadata_table: str | None = None,
    ) -> None:
        names = names_of(classes)
        if names is None and classes is not None:
            raise ConfigurationError(f"`classes` is {classes!r}, but must be a list of the names of all classes")
        table = (data_column, label_column, metadata_table)
        check_table(table, dataset)
        source = source_of(dataset, kind, None)
        path = source.argument if isinstance(source.argument, str) else None
        native = _ddlp.Dataset(path, kind, names, source.samples, source.columns, source.mix, table)
        columns = dict(zip(_OF_TABLE, table, strict=True))
        self._fill(native, {"dataset": source.argument, "kind": kind, "classes": names, **columns})

    def _fill(self, native: _ddlp.Dataset, arguments: dict[str, Any]) -> None:
        self._native, self._arguments = native, arguments
        self._targets: Any = None
        # Those of `targets` belong to the program.
        self._own_targets: array[int] | None = None

    def __len__(self) -> int:
        return len(self._native)

    @property
    def classes(self) -> list[str]:
        """Names of the classes; a label is an index into them."""
        return self._native.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The label of each class, by its name."""
        return {name: label for label, name in enumerate(self.classes)}

    @property
    def targets(self) -> Any:
        """The label of each sample: an array of NumPy (int64), or of the module `array` without NumPy. It is a copy: a
        program that changes it changes no label of a batch.

        Raises ConfigurationError for an object that has no attribute `targets`: its labels are known only when its
        items are read.
        """
        if self._targets is None:
            self._targets = numbers(self._labels())
        return self._targets

    def _label(self, index: int) -> int:
        """Returns the label of a sample."""
        if self._own_targets is None:
            self._own_targets = array("q", self._labels())
        return self._own_targets[index]

    def _labels(self) -> bytes:
        """Returns the label of each sample as int64."""
        argument = self._arguments["dataset"]
        given = None if isinstance(argument, (str, Mix)) else getattr(argument, "targets", None)
        if given is None or self._native.has_other_labels or self._native.knows_labels:
            return self._native.targets()
        of_target = getattr(argument, "target_transform", None)
        if of_target is not None:
            given = [of_target(label) for label in given]
        labels = whole_numbers("`targets` of the dataset", given)
        if len(labels) != 8 * len(self):
            raise ConfigurationError(
                f"`targets` of the dataset has {len(labels) // 8} labels, but the dataset has {len(self)} items"
            )
        return labels

    @property
    def samples(self) -> Sequence[tuple[str, int]]:
        """Path and label of each sample, as torchvision's `ImageFolder.samples`; of a dataset that is not a file for
        each image, name and label."""
        return _Pairs(self)

    def name(self, index: int) -> str:
        """Returns the name of a sample, as `ddlp inspect` prints it."""
        return self._native.name(_place(index, len(self)))

    def __repr__(self) -> str:
        return f"ddlp.Dataset({self._arguments['dataset']!r}, {len(self)} samples, {len(self.classes)} classes)"


class _Pairs(Sequence[tuple[str, int]]):
    """Path or name of each sample, and its label."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    @overload
    def __getitem__(self, index: int) -> tuple[str, int]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[str, int]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, int] | Sequence[tuple[str, int]]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = _place(index, len(self))
        native = self._dataset._native
        path = native.path(at)
        return (native.name(at) if path is None else os.fspath(path)), self._dataset._label(at)


def of_run(native: _ddlp.Dataset, arguments: dict[str, Any]) -> Dataset:
    """Returns the dataset of a run of a loader with these arguments."""
    dataset = Dataset.__new__(Dataset)
    dataset._fill(native, {name: arguments[name] for name in ("dataset", "kind", "classes", *_OF_TABLE)})
    return dataset


def source_and_options(arguments: dict[str, Any]) -> tuple[Source, dict[str, Any]]:
    """Returns the source of a loader with these arguments, and its options of the dataset: those of a Dataset, unless
    the loader has its own."""
    dataset, kind, drives = arguments["dataset"], arguments["kind"], arguments["drives"]
    if not isinstance(dataset, Dataset):
        check_table(tuple(arguments[name] for name in _OF_TABLE), dataset)
        source = source_of(dataset, kind, drives)
        return source, {"dataset": source.argument}
    if dataset._native.has_other_labels:
        raise ConfigurationError(
            "the labels of this dataset come from the `fields` of its loader: give the new loader "
            f"{dataset._arguments['dataset']!r} and the same `fields`"
        )
    names = ("kind", "classes", *_OF_TABLE)
    options = {name: dataset._arguments[name] if arguments[name] is None else arguments[name] for name in names}
    source = source_of(dataset._arguments["dataset"], options["kind"], drives)
    if isinstance(source.argument, str) and os.path.exists(source.argument):
        # It is open already. A drive's dataset belongs to one run.
        source = source._replace(samples=dataset._native)
    return source, {"dataset": source.argument, **options}


def check_table(table: tuple[Any, ...], dataset: Any) -> None:
    """Refuses names of a table in a database for a dataset that is not a path or URL."""
    for name, value in zip(_OF_TABLE, table, strict=True):
        if value is None:
            continue
        if not isinstance(value, str):
            raise ConfigurationError(f"`{name}` is {value!r}, but must be a name")
        if not isinstance(dataset, (str, os.PathLike)):
            raise ConfigurationError(f"`{name}` is {value!r}, but only a URL (cql://HOST/KEYSPACE/TABLE) names a table")


def numbers(data: bytes) -> Any:
    """Returns int64 as an array of NumPy, or of the module `array` if NumPy is not installed."""
    try:
        import numpy
    except ImportError:
        return array("q", data)
    return numpy.frombuffer(bytearray(data), numpy.int64)


def _place(index: int, count: int) -> int:
    """Returns the number of a sample. A negative index counts from the end."""
    at = whole("index", index)
    if not -count <= at < count:
        raise IndexError(f"sample {at} of a dataset of {count} samples")
    return at % count
