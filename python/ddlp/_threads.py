"""What may free batches while a thread waits for one: garbage collection, and other threads."""

from __future__ import annotations

import gc
import sys
import threading
from types import FrameType

_PATIENCE_S = 300.0
"""Patience with other threads: the first steps of a program may take minutes, since it compiles its model."""
_PATIENCE_WITH_DAEMONS_S = 30.0
"""Patience with daemon threads alone. A notebook and many libraries have some that hold no batches."""


def collect() -> None:
    """Frees batches that only cycles keep."""
    gc.collect()


def patience(lets_go: bool) -> float | None:
    """Returns how long this thread may wait for a batch to be let go, in seconds; None if no other thread could.

    `lets_go` says whether another thread has let go of a batch before.
    """
    running = sys._current_frames()
    others = [
        thread
        for thread in threading.enumerate()
        if thread is not threading.current_thread() and not _is_idle(running.get(thread.ident or 0))
    ]
    if not others:
        return None
    return _PATIENCE_S if lets_go or any(not thread.daemon for thread in others) else _PATIENCE_WITH_DAEMONS_S


def _is_idle(frame: FrameType | None) -> bool:
    """Returns whether a thread is a worker of a ThreadPoolExecutor without work, and so without a batch."""
    worker = getattr(sys.modules.get("concurrent.futures.thread"), "_worker", None)
    # While a worker runs a task, the innermost frame is the task's, not that of `_worker`.
    return frame is not None and worker is not None and frame.f_code is worker.__code__
