"""Pipelines by epoch, such as for images that grow in the course of training, and by bucket."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ._compose import Compose
from ._errors import ConfigurationError
from ._pipeline import Pipeline, PipelineLike, pipeline_of

EPOCHS_MAX = 2**32 - 1

Normalize = tuple[Sequence[float], Sequence[float]]
Pipelines = PipelineLike | Sequence[PipelineLike]


class Phase(NamedTuple):
    """Epochs with the same pipelines."""

    first: int
    end: int
    """The epoch after the last one."""
    pipelines: list[dict[str, Any]]
    """One for each bucket."""
    normalize: dict[str, list[float]] | None

    @property
    def has_canvas(self) -> bool:
        """Whether the pipelines put images of different sizes on canvases of one size."""
        return "pad_to" in self.pipelines[0]["operations"][-1]

    def options(self) -> dict[str, Any]:
        """Returns the options of a run over these epochs."""
        several = len(self.pipelines) > 1
        pipelines = {"buckets": self.pipelines} if several else {"pipeline": self.pipelines[0]}
        return {**pipelines, "normalize": self.normalize, "epochs": self.end}


def pipelines_of(given: Pipelines | Mapping[int, Pipelines]) -> dict[int, list[Pipeline]]:
    """Returns the pipelines, one for each bucket, by the epoch from which on they are used. Reads files."""
    by_epoch = given if isinstance(given, Mapping) else {0: given}
    return {whole("an epoch of the option pipeline", epoch): _of_buckets(one) for epoch, one in by_epoch.items()}


def whole(name: str, value: Any) -> int:
    """Returns a whole number, which may be of a type of another library."""
    try:
        return operator.index(value)
    except TypeError:
        raise ConfigurationError(f"{name} is {value!r}, but must be a whole number") from None


def phases_of(
    by_epoch: Mapping[int, list[Pipeline]],
    normalize: Normalize | None,
    epochs: int | None,
) -> list[Phase]:
    """Returns the phases of all epochs, in their order."""
    firsts = sorted(by_epoch)
    if not firsts or firsts[0] != 0:
        raise ConfigurationError(f"the option pipeline has pipelines for the epochs {firsts}, but none for epoch 0")
    last = EPOCHS_MAX if epochs is None else whole("epochs", epochs)
    ends = [*firsts[1:], last]
    return [
        _phase(first, min(end, last), by_epoch[first], normalize)
        for first, end in zip(firsts, ends, strict=True)
        if first == 0 or first < last
    ]


def phase_at(phases: list[Phase], epoch: int) -> Phase:
    """Returns the phase of an epoch; the last one if the run is over."""
    return next((phase for phase in phases if epoch < phase.end), phases[-1])


def moved(state: dict[str, Any], run: dict[str, Any], phases: list[Phase]) -> dict[str, Any]:
    """Adapts a state to the run of its phase, whose own state is `run`.

    A state taken between two epochs may have the pipeline of another phase.
    """
    pipelines = state.get("buckets") or [state.get("pipeline")]
    if not state.get("delivered") and pipelines in [phase.pipelines for phase in phases]:
        state = {name: value for name, value in state.items() if name not in ("pipeline", "buckets")}
        state.update({name: run[name] for name in ("pipeline", "buckets", "program") if name in run})
    return {**state, "epochs": run["epochs"]}


def _of_buckets(given: Pipelines) -> list[Pipeline]:
    """Returns the pipeline of each bucket."""
    if isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
        if not given:
            raise ConfigurationError("the option pipeline is an empty list, but must have a pipeline for each bucket")
        return [pipeline_of(one) for one in given]
    return [pipeline_of(given)]


def _phase(first: int, end: int, pipelines: list[Pipeline], normalize: Normalize | None) -> Phase:
    composed = [pipeline.normalize if isinstance(pipeline, Compose) else None for pipeline in pipelines]
    if any(one != composed[0] for one in composed):
        raise ConfigurationError("the pipelines of the buckets normalise differently: give all the same Normalize")
    if composed[0] is not None:
        if normalize is not None:
            raise ConfigurationError("both the option normalize and the pipeline (ddlp.Compose) normalise: give one")
        normalize = composed[0]
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
    return Phase(first, end, [pipeline.to_dict() for pipeline in pipelines], described)
