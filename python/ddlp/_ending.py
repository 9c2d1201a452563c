"""What happens when the interpreter ends or the process is forked."""

from __future__ import annotations

import atexit
import functools
import os
import weakref
from typing import TYPE_CHECKING

from . import _ddlp

if TYPE_CHECKING:
    from ._loader import Loader

LOADERS: weakref.WeakSet[Loader] = weakref.WeakSet()
"""Loaders that end before the interpreter does."""


def _shut_all() -> None:
    """Ends all loaders before the interpreter ends, so that their drives end with them."""
    for loader in list(LOADERS):
        run = loader._run
        if run is not None:
            run.close()
    _ddlp.end_all()
    _ddlp.flush_log()
    # A thread that still opens a dataset must not call `logging` any more.
    _ddlp.set_log_level(255)


atexit.register(_shut_all)
os.register_at_fork(
    before=_ddlp.before_fork,
    after_in_parent=functools.partial(_ddlp.after_fork, False),
    after_in_child=functools.partial(_ddlp.after_fork, True),
)
