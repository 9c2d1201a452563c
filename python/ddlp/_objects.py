"""Datasets of torchvision, parts of datasets by PyTorch, and lists and tables of paths: read beneath Python where the
object shows its files or pixels."""

from __future__ import annotations

import copy
import operator
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from . import _ddlp
from ._arrow import samples_of
from ._errors import ConfigurationError

# Functions by which torchvision's datasets read an image of Pillow. The loader decodes as they do.
_LOADERS = ("default_loader", "pil_loader", "accimage_loader")


# A whole number in text, also one as pandas writes it.
_NUMBER = re.compile(r"[0-9]+(\.0*)?")

DIFFERENT = "different transforms"
"""Stands for the transforms of several datasets that have different ones."""


@dataclass(frozen=True)
class _Shown:
    """What an object shows of its samples."""

    images: Any
    """Paths of files, or an array of images (images x height x width x 3, uint8)."""
    labels: Sequence[int]
    classes: tuple[str, ...]
    transform: Any
    """What the object does to an image, if anything; DIFFERENT if its parts do different things."""

    @property
    def are_files(self) -> bool:
        return isinstance(self.images, list)

    def chosen(self, indices: Sequence[int]) -> _Shown:
        labels = [self.labels[index] for index in indices]
        images = [self.images[index] for index in indices] if self.are_files else self.images[list(indices)]
        return replace(self, images=images, labels=labels)


def opened(dataset: Any) -> tuple[Any, dict[str, Any] | None, Any, tuple[int, int] | None]:
    """Returns the samples of an object or a table as the native part takes them, the columns of a table, the transform
    of the object, which its samples then lack, and height and width of its images, if it shows them as one array."""
    samples, transform, size = _samples_and_transform(dataset)
    return (samples, None, transform, size) if samples is not dataset else (*samples_of(dataset), None, None)


def common(transforms: list[Any]) -> Any:
    """Returns the transform that several datasets have; DIFFERENT if each has its own."""
    from ._compose import Compose

    first = next(iter(transforms), None)
    if all(transform is first for transform in transforms):
        return first
    try:
        # The text of a transform may leave out some of its parameters.
        pipelines = [Compose(transform) for transform in transforms]
    except ConfigurationError:
        return DIFFERENT
    is_one = all((one, one.normalize) == (pipelines[0], pipelines[0].normalize) for one in pipelines)
    return first if is_one else DIFFERENT


def _samples_and_transform(dataset: Any) -> tuple[Any, Any, tuple[int, int] | None]:
    shown = _shown(dataset)
    if shown is None:
        return *_without_transform(dataset), None
    if len(shown.labels) == 0:
        raise ConfigurationError(f"the dataset, a {_kind(dataset)}, is empty")
    labels = [_label(dataset, at, label) for at, label in enumerate(shown.labels)]
    if not shown.are_files:
        planes, size = shown.images.transpose(0, 3, 1, 2).tobytes(), shown.images.shape[1:3]
        return _ddlp.Dataset.of_planes(planes, size, labels, list(shown.classes)), shown.transform, size
    paths = [os.path.abspath(path) for path in shown.images]
    root = os.path.commonpath([os.path.dirname(path) for path in paths])
    below = [os.path.relpath(path, root) for path in paths]
    return _ddlp.Dataset.of_files(root, below, labels, list(shown.classes)), shown.transform, None


def pixels_of(image: Any) -> tuple[int, int, bytes] | None:
    """Returns width, height and rows of RGB of an image of Pillow, or of an array or tensor of uint8; None if it is
    something else."""
    if type(image).__module__.startswith("PIL.") and callable(getattr(image, "convert", None)):
        rgb = image if image.mode == "RGB" else image.convert("RGB")
        return rgb.size[0], rgb.size[1], rgb.tobytes()
    is_tensor = callable(getattr(image, "numpy", None)) and hasattr(image, "permute")
    try:
        if is_tensor and image.ndim == 3:
            # Channels come first in a tensor.
            image = image.permute(1, 2, 0)
        view = memoryview(image.contiguous().numpy() if is_tensor else image)
    except (TypeError, ValueError, RuntimeError, BufferError):
        return None
    shape = view.shape or ()
    if view.format != "B" or len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3)) or 0 in shape:
        return None
    data = view.tobytes()
    if len(shape) == 3 and shape[2] == 3:
        return shape[1], shape[0], data
    rows = bytearray(3 * len(data))
    rows[0::3] = rows[1::3] = rows[2::3] = data
    return shape[1], shape[0], bytes(rows)


def _shown(dataset: Any) -> _Shown | None:
    """Returns what an object shows of its samples; None if only its items show them."""
    if _is_of(dataset, "torch.utils.data", "Subset"):
        whole = _shown(dataset.dataset)
        return None if whole is None else whole.chosen([operator.index(index) for index in dataset.indices])
    if _is_of(dataset, "torch.utils.data", "ConcatDataset"):
        return _joined([_shown(one) for one in dataset.datasets])
    if _is_of(dataset, "torchvision.datasets"):
        return _of_torchvision(dataset)
    if type(dataset) in (list, tuple) and dataset and _is_path_and_label(dataset[0]):
        for at, item in enumerate(dataset):
            if not _is_path_and_label(item):
                raise ConfigurationError(f"item {at} of the list is {item!r}, but must be a path and a label")
        return _of_paths([path for path, _ in dataset], [label for _, label in dataset], "the list")
    return _of_table(dataset)


def _of_torchvision(dataset: Any) -> _Shown | None:
    """Returns what a dataset of torchvision shows, unless a class of the program changes its items."""
    transform, labels = getattr(dataset, "transform", None), None
    classes = tuple(map(str, getattr(dataset, "classes", None) or ()))
    read = getattr(dataset, "loader", None)
    reads_files = getattr(read, "__name__", None) in _LOADERS and read.__module__.startswith("torchvision.")
    images: Any = None
    if _is_of(dataset, "torchvision.datasets", "DatasetFolder") and reads_files:
        images, labels = [path for path, _ in dataset.samples], [label for _, label in dataset.samples]
    elif _are_paths(getattr(dataset, "_image_files", None)) and hasattr(dataset, "_labels"):
        images, labels = list(dataset._image_files), list(dataset._labels)
    elif _are_paths(getattr(dataset, "images", None)) and hasattr(dataset, "masks"):
        # The targets of segmentation are images, which the loader does not deliver.
        return _Shown(list(dataset.images), [0] * len(dataset.images), (), transform)
    else:
        images = _array_of(getattr(dataset, "data", None))
        labels = getattr(dataset, "targets", getattr(dataset, "labels", None))
        if _is_of(dataset, "torchvision.datasets", "QMNIST") and dataset.compat and labels is not None:
            # Of each row, only the class is the label of an item.
            labels = labels[:, 0]
        if labels is not None and not isinstance(labels, list):
            labels = labels.tolist()
    if images is None or labels is None or not len(images) == len(labels) == len(dataset):
        return None
    of_target = getattr(dataset, "target_transform", None)
    return _Shown(images, labels if of_target is None else [of_target(label) for label in labels], classes, transform)


def _joined(parts: list[_Shown | None]) -> _Shown | None:
    """Returns several parts as one, if all show samples of one kind and of the same classes."""
    if not parts or any(part is None for part in parts):
        return None
    shown = cast("list[_Shown]", parts)
    first = shown[0]
    if any((part.are_files, part.classes) != (first.are_files, first.classes) for part in shown):
        return None
    labels = [label for part in shown for label in part.labels]
    transform = common([part.transform for part in shown])
    if first.are_files:
        paths = [path for part in shown for path in part.images]
        return replace(first, images=paths, labels=labels, transform=transform)
    if any(part.images.shape[1:] != first.images.shape[1:] for part in shown):
        return None
    import numpy

    images = numpy.concatenate([part.images for part in shown])
    return replace(first, images=images, labels=labels, transform=transform)


def _of_table(dataset: Any) -> _Shown | None:
    """Returns the files of a table of pandas or polars with the column `path`."""
    library = type(dataset).__module__.partition(".")[0]
    if library not in ("pandas", "polars") or type(dataset).__name__ != "DataFrame" or "path" not in dataset.columns:
        return None
    paths = list(dataset["path"])
    others = [str(name) for name in dataset.columns if name != "path"]
    if others and "label" not in others:
        raise ConfigurationError(
            f"the table has no column `label` (its columns are path, {', '.join(others)}): rename the column of "
            'labels, or give the column `path` alone, as table[["path"]], for samples without labels'
        )
    labels = list(dataset["label"]) if others else [0] * len(paths)
    for row, path in enumerate(paths):
        if not isinstance(path, (str, os.PathLike)):
            raise ConfigurationError(f"row {row} of the table has the path {path!r}, but a path is text")
    return _of_paths(paths, labels, "the table")


def _of_paths(paths: list[Any], labels: list[Any], of: str) -> _Shown:
    """Returns files with labels that are numbers, or names of classes."""
    are_names = [isinstance(label, str) for label in labels]
    if not any(are_names):
        return _Shown(paths, labels, (), None)
    if all(are_names) and all(_NUMBER.fullmatch(label.strip()) for label in labels):
        # As in a list of files.
        return _Shown(paths, [int(float(label)) for label in labels], (), None)
    if not all(are_names):
        at = are_names.index(False) if are_names[0] else are_names.index(True)
        raise ConfigurationError(
            f"the label {at} of {of} is {labels[at]!r}, and the first one is {labels[0]!r}: let all be numbers, or all "
            "names of classes"
        )
    classes = sorted(set(labels), key=lambda name: name.encode())
    numbers = {name: number for number, name in enumerate(classes)}
    return _Shown(paths, [numbers[label] for label in labels], tuple(classes), None)


def _without_transform(dataset: Any) -> tuple[Any, Any]:
    """Returns an object without its transform, if it is torchvision's, and the transform."""
    if _is_of(dataset, "torch.utils.data", "Subset"):
        inner, transform = _without_transform(dataset.dataset)
        if inner is dataset.dataset:
            return dataset, None
        changed = copy.copy(dataset)
        changed.dataset = inner
        return changed, transform
    transform = getattr(dataset, "transform", None)
    is_made = _is_of(dataset, "torchvision.datasets", "FakeData")
    if not is_made and (transform is None or not _is_of(dataset, "torchvision.datasets")):
        return dataset, None
    changed = copy.copy(dataset)
    if is_made:
        changed.__class__ = _made_alone(type(dataset))
    changed.transform = None
    if getattr(changed, "transforms", None) is not None:
        changed.transforms = copy.copy(changed.transforms)
        changed.transforms.transform = None
    return changed, transform


def _made_alone(kind: type[Any]) -> type[Any]:
    """Returns a class like torchvision's FakeData, with the same items, that leaves PyTorch's own generator alone: the
    program's other threads draw from it."""

    def item(self: Any, index: Any) -> Any:
        import torch
        from torchvision.transforms.functional import to_pil_image

        if not 0 <= index < len(self):
            raise IndexError(f"item {index} of {len(self)}")
        generator = torch.Generator().manual_seed(index + self.random_offset)
        image = torch.randn(*self.image_size, generator=generator)
        label = torch.randint(0, self.num_classes, (1,), generator=generator).item()
        return to_pil_image(image), label if self.target_transform is None else self.target_transform(label)

    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), {"__getitem__": item, **names})


def _is_of(dataset: Any, package: str, name: str | None = None) -> bool:
    """Returns whether an object's items are those of a class of a package, which no class of the program changes."""
    if package.partition(".")[0] not in sys.modules:
        return False
    kind: type = type(dataset)
    item: Callable[..., Any] | None = getattr(kind, "__getitem__", None)
    module = getattr(item, "__module__", None) or ""
    return module.startswith(package) and (name is None or any(base.__name__ == name for base in kind.__mro__))


def _is_path_and_label(item: Any) -> bool:
    is_pair = isinstance(item, (tuple, list)) and len(item) == 2
    return is_pair and isinstance(item[0], (str, os.PathLike))


def _are_paths(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and isinstance(values[0], (str, os.PathLike))


def _array_of(data: Any) -> Any:
    """Returns an array of images (images x height x width x 3, uint8); None if `data` is something else."""
    numpy = sys.modules.get("numpy")
    if callable(getattr(data, "numpy", None)):
        data = data.numpy()
    if numpy is None or not isinstance(data, numpy.ndarray) or data.dtype != numpy.uint8:
        return None
    if data.ndim == 3:
        data = data[..., None].repeat(3, axis=3)
    if data.ndim == 4 and data.shape[1] == 3 != data.shape[3]:
        data = data.transpose(0, 2, 3, 1)
    if data.ndim != 4 or data.shape[3] != 3:
        return None
    return data


def _label(dataset: Any, at: int, label: Any) -> int:
    try:
        number = operator.index(label)
        if not 0 <= number < 2**32 - 1:
            raise TypeError
        return number
    except TypeError:
        if isinstance(label, float) and label.is_integer() and label >= 0:
            return int(label)
        hint = "; its `target_transform` can make one" if _is_of(dataset, "torchvision.datasets") else ""
        if label == -1:
            hint = (
                ". -1 mostly says that the image has no label: give all of these images another one, such as by "
                "target_transform=lambda label: 0 of the dataset, or choose labelled images"
            )
        raise ConfigurationError(
            f"the label of item {at} of the dataset, a {_kind(dataset)}, is {label!r}, but must be a whole number from "
            f"0 on, or the name of a class{hint}"
        ) from None


def _kind(dataset: Iterable[Any]) -> str:
    return f"{type(dataset).__module__}.{type(dataset).__qualname__}"
