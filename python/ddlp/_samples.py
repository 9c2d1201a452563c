"""A dataset that is an object of the program."""

from __future__ import annotations

from typing import Any, Protocol, SupportsIndex


class Samples(Protocol):
    """A dataset that is an object of the program: item `i` is a pair of an image and a label.

    An image is the bytes of an image file, an image of Pillow, or an array of uint8 (height x width x 3, or height x
    width for gray); of a tensor, channels come first.

    Threads of the loader ask for items, one at a time, each item once per epoch. An attribute `classes` of the
    object, if there is one, names the classes. Item `i` must always be the same pair: another label ends the run. A
    state of a loader identifies the object by its type, length and first item.
    """

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> tuple[Any, SupportsIndex]: ...
