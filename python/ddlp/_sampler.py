"""What programs for PyTorch's DataLoader read of a loader: its samplers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ._errors import UsageError


class _Sampler:
    """The order of a loader's epochs, as far as a program asks a sampler: its length, and the epoch."""

    def __init__(self, length: Callable[[], int], set_epoch: Callable[[int], None]) -> None:
        self._length, self._set_epoch = length, set_epoch

    def __len__(self) -> int:
        """Returns the number of samples, or of batches, that an epoch has on this rank."""
        return self._length()

    def __iter__(self) -> Iterator[Any]:
        raise UsageError(
            "the loader makes the order of samples as it delivers them: read the `sample_ids` of its batches, and give "
            "another order as `indices`"
        )

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch that comes next, as `Loader.set_epoch`."""
        self._set_epoch(epoch)


def sampler_of(shuffles: bool, length: Callable[[], int], set_epoch: Callable[[int], None]) -> Any:
    """Returns a sampler. With PyTorch, it is one of PyTorch's samplers, a SequentialSampler if the loader does not
    shuffle: libraries look at its type."""
    try:
        from torch.utils.data import Sampler, SequentialSampler
    except ImportError:
        return _Sampler(length, set_epoch)
    kind = Sampler if shuffles else SequentialSampler
    return type("Sampler", (_Sampler, kind), {"__doc__": _Sampler.__doc__})(length, set_epoch)
