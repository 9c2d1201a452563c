"""Pipelines by epoch, such as for images that grow in the course of training."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ._compose import Compose
from ._errors import ConfigurationError
from ._pipeline import Pipeline, pipeline_of

EPOCHS_MAX = 2**32 - 1

Normalize = tuple[Sequence[float], Sequence[float]]


class Phase(NamedTuple):
    """Epochs with one pipeline."""

    first: int
    end: int
    """The epoch after the last one."""
    pipeline: dict[str, Any]
    normalize: dict[str, list[float]] | None

    def options(self) -> dict[str, Any]:
        """Returns the options of a run over these epochs."""
        return {"pipeline": self.pipeline, "normalize": self.normalize, "epochs": self.end}


def phases_of(
    pipeline: Pipeline | str | os.PathLike[str] | Mapping[int, Pipeline | str | os.PathLike[str]],
    normalize: Normalize | None,
    epochs: int | None,
) -> list[Phase]:
    """Returns the phases of all epochs, in their order."""
    by_epoch = pipeline if isinstance(pipeline, Mapping) else {0: pipeline}
    firsts = sorted(by_epoch)
    if not firsts or firsts[0] != 0:
        raise ConfigurationError(f"the option pipeline names the epochs {firsts}, but must name one for epoch 0")
    ends = [*firsts[1:], EPOCHS_MAX]
    last = EPOCHS_MAX if epochs is None else epochs
    return [
        _phase(first, min(end, last), pipeline_of(by_epoch[first]), normalize)
        for first, end in zip(firsts, ends, strict=True)
        if first == 0 or first < last
    ]


def phase_at(phases: list[Phase], epoch: int) -> Phase:
    """Returns the phase of an epoch; the last one if the run is over."""
    return next((phase for phase in phases if epoch < phase.end), phases[-1])


def moved(state: dict[str, Any], run: dict[str, Any], phases: list[Phase]) -> dict[str, Any]:
    """Returns a state for a run of its phase, whose own state is `run`.

    Between two epochs, the pipeline of the state may be that of another phase.
    """
    if not state.get("delivered") and state.get("pipeline") in [phase.pipeline for phase in phases]:
        state = {**state, "pipeline": run["pipeline"], "program": run["program"]}
    return {**state, "epochs": run["epochs"]}


def _phase(first: int, end: int, pipeline: Pipeline, normalize: Normalize | None) -> Phase:
    if isinstance(pipeline, Compose) and pipeline.normalize is not None:
        if normalize is not None:
            raise ConfigurationError("both the option normalize and the pipeline (ddlp.Compose) normalise: give one")
        normalize = pipeline.normalize
    described = None
    if normalize is not None:
        try:
            mean, std = ([float(value) for value in values] for values in normalize)
        except (TypeError, ValueError):
            raise ConfigurationError(
                f"`normalize` is {normalize!r}, but must be mean and standard deviation of the three channels, such as "
                "ddlp.IMAGENET"
            ) from None
        described = {"mean": mean, "std": std}
    return Phase(first, end, pipeline.to_dict(), described)
