"""Names of classes, which number the labels of any dataset alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ._errors import ConfigurationError


def names_of(classes: Any) -> list[str] | None:
    """Returns names of classes as a list; None if `classes` is something else, such as their number."""
    if isinstance(classes, (str, bytes)):
        raise ConfigurationError(f"classes is {classes!r}, but must be a list of the names of all classes")
    if not isinstance(classes, Iterable):
        return None
    names = list(classes)
    for number, name in enumerate(names):
        if not isinstance(name, str):
            raise ConfigurationError(f"classes has {name!r} as name of class {number}, but names are texts")
    if not names:
        raise ConfigurationError("classes is empty, but must have the names of all classes")
    return names
