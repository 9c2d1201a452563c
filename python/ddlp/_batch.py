"""Batches, and how they are made of those of the native part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from . import _ddlp
from ._device import Gpu
from ._errors import ConfigurationError, UsageError
from ._output import OUTPUTS, Output, missing_library
from ._phases import Phase


class _Fields(NamedTuple):
    images: Any
    """The images, in the array type that the option `output` names; with several `views`, a list of these arrays."""
    labels: Any
    """The labels: int64, or float32 with a number for each class if they are mixed."""


class Batch(_Fields):
    """A batch: a pair of images and labels, with its epoch, number, prong and sample ids.

    Some libraries copy a batch by `type(batch)(*batch)`. A copy made in this way has None in place of the attributes.
    """

    epoch: int | None = None
    """Epoch, from 0."""
    index: int | None = None  # type: ignore[assignment]
    """Number within the epoch, from 0."""
    prong: int | None = None
    """Prong that prepared the batch: 0 is the CPU, 1 the first drive."""
    sample_ids: list[int] | None = None
    """Sample id of each image, and of its label and other fields."""
    requested_ids: list[int] | None = None
    """Sample id that the epoch's order has for each image: another one than in `sample_ids` where policy="replace" has
    replaced a corrupt sample."""
    sizes: list[tuple[int, int]] | None = None
    """Height and width of each image on its canvas, if the pipeline ends with PadTo; with several `views`, those of the
    first views, then of the second ones."""

    def _replace(self, **fields: Any) -> Batch:
        replaced = super()._replace(**fields)
        replaced.__dict__.update(self.__dict__)
        return replaced

    def to(self, device: Any, non_blocking: bool = False) -> Batch:
        """Returns the batch with images and labels on a device, to which tensors of PyTorch move by `to`. A loader
        with the option `device` delivers to a GPU while the step before runs."""
        images, labels = (_moved(field, device, non_blocking) for field in self)
        return self._replace(images=images, labels=labels)


class NamedBatch(dict[str, Any]):
    """A batch of a loader with the option `names` or `fields`: a dict of its arrays, with the attributes of Batch."""

    epoch: int | None = None
    index: int | None = None
    prong: int | None = None
    sample_ids: list[int] | None = None
    requested_ids: list[int] | None = None
    sizes: list[tuple[int, int]] | None = None

    def to(self, device: Any, non_blocking: bool = False) -> NamedBatch:
        """Returns the batch with all its fields on another device, as `Batch.to` does."""
        moved = NamedBatch((name, _moved(field, device, non_blocking)) for name, field in self.items())
        moved.__dict__.update(self.__dict__)
        return moved


def _moved(field: Any, device: Any, non_blocking: bool) -> Any:
    """Returns a field, or a list of its parts, on another device."""
    if isinstance(field, list):
        return [_moved(part, device, non_blocking) for part in field]
    if not callable(getattr(field, "to", None)):
        raise UsageError(
            f"only tensors of PyTorch move to a device, and this batch has a {type(field).__module__}."
            f'{type(field).__qualname__}: give the loader the output "torch"'
        )
    return field.to(device, non_blocking=non_blocking)


class BatchMaker(NamedTuple):
    """What the options of a loader say about its batches."""

    output: Output
    names: tuple[str, str] | None
    """Names of images and labels; None for pairs."""
    cut: Callable[[Any, int, int], Any] | None
    """Cuts an image out of its canvas, if the loader does that."""
    views: int
    """Versions of each sample in its batch."""

    def make(self, batch: _ddlp.Batch, has_canvas: bool, gpu: Gpu | None) -> Batch:
        """Makes the program's batch of a native one. `has_canvas` says whether its images lie on canvases. `gpu` is the
        GPU to which the loader delivers, if it delivers to one."""
        if gpu is None:
            arrays = batch.images, batch.labels, *(array for _, array in batch.others)
            images, labels, *others = map(self.output, arrays)
        else:
            images, labels, *others = gpu.fields(batch)
        sizes, ids = batch.sizes if has_canvas else None, (batch.sample_ids, batch.requested_ids)
        if self.cut is not None and sizes is not None:
            images = [self.cut(image, *size) for image, size in zip(images, sizes, strict=True)]
        if self.views > 1:
            # The rows of the first versions come before those of the second ones.
            samples = len(ids[0]) // self.views
            images = [images[samples * view : samples * (view + 1)] for view in range(self.views)]
            labels, *others = (field[:samples] for field in (labels, *others))
            ids = ids[0][:samples], ids[1][:samples]
        fields = images, labels
        # With names, a program expects dicts.
        named = None if self.names is None else NamedBatch(zip(self.names, fields, strict=True))
        if named is not None:
            named.update(zip((name for name, _ in batch.others), others, strict=True))
        delivered: Batch = Batch(*fields) if named is None else cast(Batch, named)
        delivered.epoch, delivered.index, delivered.prong = batch.epoch, batch.index, batch.prong
        delivered.sample_ids, delivered.requested_ids = ids
        delivered.sizes = sizes
        return delivered


def maker_of(arguments: Mapping[str, Any], phases: list[Phase]) -> BatchMaker:
    """Checks the options about batches. Returns what makes the batches."""
    output, dtype, names = arguments["output"], arguments["dtype"], arguments["names"]
    if names is not None and not _are_two_names(names):
        raise ConfigurationError(f"names is {names!r}, but must be two names, one of images and one of labels")
    if not isinstance(dtype, str):
        raise ConfigurationError(f'dtype is {dtype!r}, but must be the name of a type, such as "float32"')
    if not isinstance(output, str) or output not in OUTPUTS:
        raise ConfigurationError(f"output is {output!r}, but must be one of {', '.join(OUTPUTS)}")
    missing = missing_library(output)
    if missing is not None:
        raise ConfigurationError(
            f"output is {output!r}, but the package {missing} is not installed: pip install {missing}, or choose "
            "another output"
        )
    if output == "numpy" and dtype == "bfloat16":
        raise ConfigurationError('NumPy has no bfloat16: choose another dtype, or the output "torch" or "dlpack"')
    views = arguments["views"]
    if views > 1 and output == "dlpack":
        raise ConfigurationError(
            'several `views` divide the images of a batch, which a ddlp.Array cannot: choose the output "torch" or '
            '"numpy"'
        )
    cut = _cut_of(arguments["layout"], output, phases) if arguments["ragged"] else None
    if names is not None and "size" in names and any(phase.has_canvas for phase in phases):
        raise ConfigurationError(
            f'names is {names!r}, but "size" is the name of the sizes that images have on the canvases of PadTo: '
            "choose another one"
        )
    if names is None and arguments["fields"] is not None:
        names = "image", "label"
    return BatchMaker(OUTPUTS[output], names, cut, views)


def _cut_of(layout: str, output: str, phases: list[Phase]) -> Callable[[Any, int, int], Any]:
    """Returns the function that cuts an image out of its canvas."""
    if not all(phase.has_canvas for phase in phases):
        raise ConfigurationError(
            "ragged needs a pipeline that ends with PadTo, such as ddlp.Pipeline([ddlp.Resize(256), ddlp.PadTo(512)])"
        )
    if output == "dlpack":
        raise ConfigurationError(
            'ragged cuts images out of their canvases, which a ddlp.Array cannot: choose the output "torch" or '
            '"numpy", or leave ragged out and use batch.sizes'
        )
    if layout == "NHWC":
        return lambda image, height, width: image[:height, :width]
    return lambda image, height, width: image[:, :height, :width]


def _are_two_names(names: Any) -> bool:
    are_names = isinstance(names, Sequence) and all(isinstance(name, str) for name in names)
    return are_names and len(names) == 2 and names[0] != names[1]
