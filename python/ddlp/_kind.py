"""The kind of a dataset of files."""

from __future__ import annotations

import os
from typing import Any

from ._errors import ConfigurationError


def check_kind(kind: Any, dataset: Any) -> None:
    """Refuses a kind for a dataset that is not a path."""
    if kind is not None and not isinstance(dataset, (str, os.PathLike)):
        raise ConfigurationError(f"`kind` is {kind!r}, but only a path can be of several kinds: leave `kind` out")
