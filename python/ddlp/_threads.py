"""What could let go of batches while a thread waits: garbage, and other threads."""

from __future__ import annotations

import gc
import threading

# A notebook and many libraries have daemon threads that hold no batches, but a program's own may.
_PATIENCE_WITH_DAEMONS_S = 30.0


def collect() -> None:
    """Frees batches that only cycles keep."""
    gc.collect()


def patience() -> float | None:
    """Returns how long this thread may wait while it keeps all batches, in seconds; None if another thread may have
    them, so that waiting makes sense."""
    others = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    if any(not thread.daemon for thread in others):
        return None
    return _PATIENCE_WITH_DAEMONS_S if others else 0.0
