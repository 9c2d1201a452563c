"""Several datasets in one loader."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from ._arrow import ArrowTable
from ._errors import ConfigurationError
from ._objects import common, opened
from ._samples import Samples


class Mix:
    """Several datasets as one. Every epoch takes a share of each dataset, by weight.

    The shares are exact to a sample, and an epoch shuffles them together. In each dataset, an epoch continues where the
    epoch before stopped. When all samples of a dataset have been delivered, they come again in a new order, within the
    same epoch if the epoch's share is larger than the dataset. Samples are numbered through all datasets, those of the
    first one first. A mix may have a single dataset: epochs that are shorter than the dataset then go through all of
    it, one after the other.

    If the datasets have different classes, classes of the same name are one class, and labels are those of the mix.

    Args:
        datasets: The datasets, each of any kind that a loader takes. The same dataset may come twice.
        weights: A positive number for each dataset, such as ``(0.7, 0.3)``. Default: the numbers of samples, so that an
            epoch has each sample once.

    Raises:
        ConfigurationError: A weight is not a number.
    """

    def __init__(
        self,
        datasets: Sequence[str | os.PathLike[str] | Samples | ArrowTable],
        weights: Sequence[float] | None = None,
    ) -> None:
        if isinstance(datasets, (str, os.PathLike)):
            raise ConfigurationError(f"ddlp.Mix needs a list of datasets, not the path {os.fspath(datasets)!r} alone")
        if isinstance(datasets, Mapping):
            raise ConfigurationError(
                "ddlp.Mix needs a list of datasets, and the weights as a list of their own: "
                "ddlp.Mix(list(shares), weights=list(shares.values()))"
            )
        if not isinstance(datasets, Iterable):
            raise ConfigurationError(f"ddlp.Mix needs a list of datasets, not {datasets!r}")
        datasets = tuple(datasets)
        self.datasets = tuple(absolute(dataset) if _is_path(dataset) else dataset for dataset in datasets)
        self.weights = weights
        if weights is not None:
            try:
                self.weights = tuple(float(weight) for weight in weights)
            except (TypeError, ValueError):
                raise ConfigurationError(f"weights are {weights!r}, but must be a number for each dataset") from None
        self._names = tuple(os.fspath(dataset) if _is_path(dataset) else _kind(dataset) for dataset in datasets)

    def __repr__(self) -> str:
        return f"ddlp.Mix({list(self.datasets)!r}, weights={self.weights!r})"

    def _members(self) -> tuple[list[tuple[str, Any, dict[str, Any] | None]], Any]:
        """Returns name, samples and columns of each dataset, and the transform of all."""
        for dataset in self.datasets:
            if isinstance(dataset, Mix):
                raise ConfigurationError("a ddlp.Mix cannot be part of another one: name its datasets instead")
        of = [(dataset, None, None, None) if _is_path(dataset) else opened(dataset) for dataset in self.datasets]
        members = [(name, samples, columns) for name, (samples, columns, *_) in zip(self._names, of, strict=True)]
        return members, common([transform for *_, transform, _ in of])


def absolute(path: str | os.PathLike[str]) -> str:
    """Makes the path of a dataset absolute, for a process in another folder. Returns an address unchanged."""
    return os.path.abspath(path) if os.path.exists(path) else os.fspath(path)


def _is_path(dataset: Any) -> TypeGuard[str | os.PathLike[str]]:
    return isinstance(dataset, (str, os.PathLike))


def _kind(dataset: Any) -> str:
    return type(dataset).__qualname__
