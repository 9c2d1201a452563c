"""What the latest iteration of a loader says about its position."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

State = dict[str, Any]
"""The position of a run, after the batch that was delivered last."""


class LatestIteration:
    """The latest iteration since a loader was made or its position was set, if there is one.

    The first of these iterations is a look if it was asked for one batch and got it: the next one begins where it
    began. An iteration that was asked for a second batch is none, even if an error came in place of that batch: the
    program has used the first one.
    """

    def __init__(self) -> None:
        self._began: State = {}
        self._may_look = True
        # Refers to the iterator as long as the program can go on with it.
        self._iterator: Callable[[], object] = lambda: None

    def begin(self, state: State, now: State) -> None:
        """Records that an iteration begins from `state`. `now` is the position before."""
        has_got_none = state is now and self._began.get("epoch", now["epoch"]) == now["epoch"]
        self._may_look = self._may_look and has_got_none
        self._began = state

    def follow(self, iterator: object) -> None:
        """Watches how long the program keeps the iterator."""
        self._iterator = weakref.ref(iterator)

    def set(self, now: State) -> None:
        """Records that the program has set the position to where it is."""
        self._began, self._may_look = now, True

    def next_start(self, now: State, asks: int) -> State:
        """Returns the state from which the next iteration begins. `now` is the position, and `asks` says how often the
        iteration was asked for a batch."""
        if self._got(now) == 0:
            return now
        return self._began if self._is_look(now, asks) else {**now, "epoch": now["epoch"] + 1, "delivered": []}

    def state(self, now: State, asks: int) -> State:
        """Returns the state from which another run goes on without a lost or repeated batch. The arguments are those of
        `next_start`."""
        return self._began if self._is_look(now, asks) and self._iterator() is None else now

    def _got(self, now: State) -> int:
        """Returns how many batches the iteration got, if its epoch is not over."""
        return len(now["delivered"]) - len(self._began["delivered"]) if self._began.get("epoch") == now["epoch"] else 0

    def _is_look(self, now: State, asks: int) -> bool:
        return self._may_look and asks < 2 and self._got(now) == 1
