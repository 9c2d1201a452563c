"""What training would gain if loading were free."""

from __future__ import annotations

import html
import sys
from collections.abc import Callable
from typing import Any


class Headspace(dict[str, Any]):
    """What training would gain if loading were free: the figures that `ddlp run --headspace --json` writes. `print`
    and notebooks show it in words.

    The most important figures: `with_loading` and `from_memory` are images per second, and `gain` is a share, each with
    its `median`, `min` and `max` over the intervals; `is_significant` says whether the gain is larger than the noise;
    `bound` is "step", "cores", "decoding", "reading", "fetching", "drive", "buffers" or "unclear"; `changes` are
    sentences; `stages` has what each stage of loading did, as shares of the time.
    """

    def __str__(self) -> str:
        return str(self["text"])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def whole(step: Callable[[Any], object]) -> Callable[[Any], None]:
    """Returns a function that runs the step and then waits for PyTorch's work on CUDA."""

    def whole_step(batch: Any) -> None:
        step(batch)
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.synchronize()

    return whole_step
