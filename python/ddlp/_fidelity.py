"""How exactly images are read in each epoch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from ._errors import ConfigurationError

WHOLE = 10


def text_of(fidelity: Any) -> str:
    """Returns fidelities as the native part reads them: one number, or numbers by epoch. A function of the epoch, which
    takes their place, is given apart."""
    if callable(fidelity):
        return str(WHOLE)
    if not isinstance(fidelity, Mapping):
        return str(_whole("`fidelity`", fidelity))
    if not fidelity:
        raise ConfigurationError("`fidelity` is an empty dict: give it a number from 1 to 10 for epoch 0")
    by_epoch = [
        (_whole("an epoch of `fidelity`", epoch), _whole(f"`fidelity`[{epoch!r}]", number))
        for epoch, number in fidelity.items()
    ]
    if min(by_epoch)[0] != 0:
        raise ConfigurationError(
            f"`fidelity` has numbers for the epochs {sorted(epoch for epoch, _ in by_epoch)}, but must begin with "
            "epoch 0"
        )
    return ",".join(f"{epoch}:{number}" for epoch, number in sorted(by_epoch))


def function_of(fidelity: Any) -> Callable[[int], int] | None:
    """Returns the function that names the fidelity of an epoch; None if `fidelity` is no function."""
    if not callable(fidelity):
        return None
    function: Callable[[int], Any] = fidelity

    def of_epoch(epoch: int) -> int:
        return _number("it", function(epoch))

    return of_epoch


def _number(name: str, value: Any) -> int:
    number = _whole(name, value)
    if not 1 <= number <= WHOLE:
        raise ConfigurationError(f"{name} is {number}, but must be a number from 1 to 10")
    return number


def _whole(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise ConfigurationError(
            f"{name} is {value!r}, but must be a whole number: the number of a scan group from 1 to 10, a dict of "
            "epochs and such numbers, or a function of the epoch"
        ) from None
