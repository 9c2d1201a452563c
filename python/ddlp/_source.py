"""What a loader reads its samples from."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from ._errors import ConfigurationError
from ._mix import Mix, absolute
from ._objects import opened


class Source(NamedTuple):
    """A dataset as the native part takes it. With neither samples nor a mix, it is a path."""

    argument: Any
    """The dataset, from which another process can open it too."""
    samples: Any = None
    columns: dict[str, Any] | None = None
    """Names of the columns, if the samples are a table."""
    mix: Any = None
    transform: Any = None
    """What the dataset itself does to an image, such as a Compose of torchvision's transforms."""
    size: tuple[int, int] | None = None
    """Height and width of all images, if the dataset shows that they have one size."""


def source_of(dataset: Any, kind: Any, drives: Any) -> Source:
    """Returns the source that a dataset is. Refuses drives and kinds that it cannot have."""
    check_kind(kind, dataset)
    if isinstance(dataset, (str, os.PathLike)):
        # A copy may open the dataset in another folder.
        return Source(absolute(dataset))
    if dataset is None:
        raise ConfigurationError("dataset is None, but must be a path, an object with samples, a table or a ddlp.Mix")
    if isinstance(dataset, Mix):
        if drives:
            raise ConfigurationError(
                "a drive opens its dataset itself, and cannot open a ddlp.Mix: describe the mix in a file (.toml), "
                "and give the path of that file"
            )
        members, transform = dataset._members()
        return Source(dataset, mix=(members, dataset.weights), transform=transform)
    samples, columns, transform, size = opened(dataset)
    if drives:
        raise ConfigurationError(
            "drives read the samples themselves, and cannot ask a Python object for them: pack it (ddlp.pack), and "
            "give the pack's path"
        )
    return Source(dataset, samples, columns, transform=transform, size=size)


def check_kind(kind: Any, dataset: Any) -> None:
    """Refuses a kind for a dataset that is not a path."""
    if kind is not None and not isinstance(dataset, (str, os.PathLike)):
        raise ConfigurationError(f"`kind` is {kind!r}, but only a path can be of several kinds: leave `kind` out")
