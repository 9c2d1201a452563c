"""torchvision's and timm's transforms as a pipeline."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from ._errors import ConfigurationError
from ._objects import DIFFERENT
from ._operations import (
    NAMES,
    AugMix,
    CenterCrop,
    ElasticTransform,
    GaussianBlur,
    Jpeg,
    Operation,
    Pad,
    RandomApply,
    RandomChoice,
    RandomCrop,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomOrder,
    RandomResizedCrop,
    RandomShortestSize,
    RandomSolarize,
    Resize,
    ScaleJitter,
    TimmRandAugment,
)
from ._pipeline import Pipeline, imagenet_train

# Transforms that only change the type of an image: the loader's options `dtype` and `layout` replace them.
_OF_TYPE = {
    *("ConvertImageDtype", "PILToTensor", "ToDtype", "ToImage", "ToPureTensor", "ToTensor", "Identity", "RGB"),
    *("MaybeToTensor", "MaybePILToTensor", "ToNumpy"),
}

# Those of them after which values lie between 0 and 1, unless their type says otherwise.
_TO_FLOATS = {"ToTensor", "MaybeToTensor"}

# Packages whose transforms are known by their names.
_PACKAGES = ("torchvision.transforms", "timm.data")

# Transforms whose parameters depend on the range of an image's values.
_OF_PIXEL_VALUES = {"RandomPosterize", "RandomSolarize"}


# Transforms that apply others.
_CONTAINERS = {"RandomApply", "RandomChoice", "RandomOrder"}

# Transforms that make several images of one.
_SEVERAL_IMAGES = {"FiveCrop", "TenCrop"}

_RESAMPLINGS = ("bilinear", "bicubic", "nearest", "nearest-exact", "box", "hamming", "lanczos")


class Compose(Pipeline):
    """A pipeline of torchvision's transforms, of `torchvision.transforms` or `torchvision.transforms.v2`, or of timm's.

    Takes the transforms that have the name of an operation (`ddlp.Operation`), with their parameters, operations
    themselves, and Normalize. Only RandomErasing and changes of type may follow Normalize: the value of RandomErasing
    is then a normalised one, and the pipeline erases with the colour that Normalize turns into this value. Transforms
    that only change the type of an image, such as ToTensor, are left out: the loader's options `dtype` and `layout`
    replace them.

    RandomApply, RandomChoice and RandomOrder may contain all of these but Normalize and changes of type.

    Of timm's transforms, those of `create_transform` have a counterpart, with `auto_augment` of the form "rand-…", or
    "3a" for 3-Augment.
    Instead of a list, a Compose, a preset such as `weights.transforms()` or one transform may be given.
    `exif_orientation` turns images upright first.

    Raises ConfigurationError for any other transform; the message names it.
    """

    normalize: tuple[list[float], list[float]] | None = None
    """Mean and standard deviation of Normalize: a loader normalises by them."""

    def __init__(self, transforms: Iterable[Any] | Any, *, exif_orientation: bool = False) -> None:
        reader = _Reader()
        operations = reader.read(transforms if isinstance(transforms, list | tuple) else [transforms])
        self.normalize = reader.normalize
        super().__init__(operations, exif_orientation=exif_orientation)


class _Reader:
    """Translates transforms one after the other. What a transform means depends on those before it."""

    def __init__(self) -> None:
        # Mean and standard deviation of Normalize, once it was there.
        self.normalize: tuple[list[float], list[float]] | None = None
        # Name of the transform that made floats of the pixels.
        self.floats: str | None = None

    def read(self, transforms: Iterable[Any], place: str | None = None) -> list[Operation]:
        """Returns the operations for transforms. `place` says in errors where those are that lie within others."""
        numbered = enumerate(_flat(transforms))
        operations = [self._translated(transform, place or f"transform {number}") for number, transform in numbered]
        return [operation for operation in operations if operation is not None]

    def _translated(self, transform: Any, place: str) -> Operation | None:
        """Returns the operation for a transform; None for one that changes no pixels."""
        kind = type(transform).__name__
        named = f"{place}, {transform},"
        if isinstance(transform, Operation) and self.normalize is None:
            return transform
        if self.normalize is not None and kind != "RandomErasing" and kind not in _OF_TYPE:
            raise ConfigurationError(
                f"{named} comes after Normalize, which only RandomErasing and changes of type may follow"
            )
        if not type(transform).__module__.startswith(_PACKAGES):
            raise ConfigurationError(
                f"{named} is neither torchvision's nor timm's: call it on the loader's batches, or let a function of "
                "one image call it (ddlp.Function), which the CPU alone runs"
            )
        if self.floats is not None and kind in _OF_PIXEL_VALUES:
            raise ConfigurationError(
                f"{named} works on values from 0 to 1 after {self.floats}, but the pipeline's values are from 0 to "
                f"255: put it before {self.floats}, and multiply a threshold by 255"
            )
        if kind in _TO_FLOATS or "float" in str(getattr(transform, "dtype", "")):
            self.floats = kind
        if kind == "ToDtype" and not _keeps_values(transform):
            raise ConfigurationError(
                f"{named} leaves values from 0 to 255, but the loader's floats are from 0 to 1: give it scale=True, "
                "and a Normalize after it for that range"
            )
        if kind == "Normalize":
            self.normalize = _channels(transform.mean), _channels(transform.std)
        if kind == "Normalize" or kind in _OF_TYPE:
            return None
        if kind in _CONTAINERS:
            return self._container(transform, kind, place)
        if kind in _SEVERAL_IMAGES:
            raise ConfigurationError(
                f"{named} makes several images of one, but a sample has one image here: prepare a larger image, and "
                "call the transform on the loader's batches"
            )
        if kind == "GaussianNoise" and self.floats is not None and not transform.clip:
            raise ConfigurationError(f"{named} leaves values below 0 and above 1: put it before {self.floats}, or clip")
        if kind not in _OPERATIONS and kind not in _TRANSLATIONS:
            raise ConfigurationError(
                f"{named} has no counterpart here (those that have one are {', '.join(_OPERATIONS)}, Normalize): leave "
                "it out, or call it on the loader's batches"
            )
        try:
            operation = _TRANSLATIONS.get(kind, _same)(_with_fill_in_bytes(transform, self.floats is not None))
            if isinstance(operation, RandomErasing):
                return _in_bytes(operation, self.floats is not None, self.normalize)
            return operation
        except ValueError as error:
            raise ConfigurationError(f"{place}, {transform}: {error}") from None

    def _container(self, container: Any, kind: str, place: str) -> Operation | None:
        """Translates a transform that applies others."""
        before, place = self.floats, f"{place} ({kind})"
        if kind == "RandomApply":
            operations = self.read(container.transforms, place)
        else:
            each = [self.read([transform], place) for transform in container.transforms]
            if kind == "RandomOrder":
                each = [operations for operations in each if operations]
            operations = [_as_one(operations) for operations in each]
        if self.floats != before or self.normalize is not None:
            raise ConfigurationError(f"{place} changes the type or the range of values within: put that outside of it")
        if not operations:
            return None
        if kind == "RandomApply":
            return RandomApply(operations, float(container.p))
        if kind == "RandomOrder":
            return RandomOrder(operations)
        weights = None if container.p is None else [float(number) for number in container.p]
        return RandomChoice(operations, weights if weights and len(set(weights)) > 1 else None)


def _as_one(operations: list[Operation]) -> Operation:
    """Returns one operation that does what these do, one after the other."""
    if len(operations) == 1:
        return operations[0]
    return RandomApply(operations, 1.0) if operations else RandomHorizontalFlip(0.0)


def pipeline_of_dataset(transform: Any, size: tuple[int, int] | None) -> Pipeline:
    """Returns the pipeline of a loader that was given none: what the dataset itself does to an image, or the built-in
    pipeline for training. `size` is the height and width of all images, if they have one."""
    if transform is None:
        return imagenet_train(224)
    if transform is DIFFERENT:
        raise ConfigurationError(
            "the datasets have different transforms: give the loader a `pipeline`, which takes their place"
        )
    try:
        return Compose(transform) if size is None else _of_one_size(transform, size)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"the dataset has a transform of its own, which cannot be the loader's pipeline: {error}; or give the "
            "loader a `pipeline`, which takes the place of the transform"
        ) from None


def _of_one_size(transform: Any, size: tuple[int, int]) -> Pipeline:
    """Returns the pipeline of a transform for images of one size. Without a crop, it says the size of the prepared
    samples, which follows from that of the images."""
    reader = _Reader()
    operations = reader.read(transform if isinstance(transform, list | tuple) else [transform])
    if not any(isinstance(operation, _OF_ANOTHER_SIZE) for operation in operations):
        height, width = size
        of_side = [operation.size for operation in operations if isinstance(operation, Resize)]
        if height == width and of_side and isinstance(of_side[-1], int):
            height = width = of_side[-1]
        if height == width or not of_side:
            operations.append(CenterCrop((height, width)))
    pipeline = Compose(operations)
    pipeline.normalize = reader.normalize
    return pipeline


def _flat(transforms: Iterable[Any]) -> Iterator[Any]:
    for transform in transforms:
        kind = type(transform).__name__
        if kind in ("Compose", "Sequential"):
            yield from _flat(transform if kind == "Sequential" else transform.transforms)
        elif kind == "ImageClassification" and type(transform).__module__ == "torchvision.transforms._presets":
            yield from _preset(transform)
        else:
            yield transform


def _preset(preset: Any) -> Iterator[Any]:
    """Returns the transforms of a model's weights: what torchvision's `ImageClassification` does when it is called."""
    from torchvision import transforms

    # torchvision before 0.15 has no such attribute.
    antialias = getattr(preset, "antialias", None)
    yield transforms.Resize(preset.resize_size, preset.interpolation, antialias=antialias)
    yield transforms.CenterCrop(preset.crop_size)
    yield transforms.ToTensor()
    yield transforms.Normalize(preset.mean, preset.std)


def _channels(values: Any) -> list[float]:
    """Returns one value for each of the three channels; torchvision also takes one for all of them."""
    given = [float(value) for value in values] if isinstance(values, Iterable) else [float(values)]
    return given * 3 if len(given) == 1 else given


def _keeps_values(transform: Any) -> bool:
    """Returns whether ToDtype gives floats from 0 to 1, or pixels."""
    return bool(getattr(transform, "scale", False)) or str(transform.dtype) == "torch.uint8"


def _plain(value: Any) -> Any:
    """Returns the value of a member of torchvision's enumerations: "bilinear" for `InterpolationMode.BILINEAR`.

    A transform of torchvision 0.29 has the string already, unless the program has given the member.
    """
    return getattr(value, "value", value)


def _must_be(transform: Any, **values: tuple[Any, ...]) -> None:
    """Raises ValueError if a parameter has a value that the operation does not support."""
    for name, possible in values.items():
        value = getattr(transform, name, possible[0])
        if _plain(value) not in possible:
            raise ValueError(f"{name} is {value}, but only {' or '.join(map(str, possible))} is possible")


def _size(size: Any) -> Any:
    """Returns a size as one number, or as height and width."""
    sides = (size,) if isinstance(size, int) else tuple(size)
    return sides[0] if len(sides) == 1 else sides


def _interpolation(transform: Any) -> str:
    """Returns the interpolation by which a transform resizes."""
    _must_be(transform, interpolation=_RESAMPLINGS, antialias=(True, None, "warn"))
    interpolation = _plain(transform.interpolation)
    return "nearest" if interpolation == "nearest-exact" else str(interpolation)


def _random_resized_crop(transform: Any) -> Operation:
    scale, ratio, interpolation = transform.scale, transform.ratio, _interpolation(transform)
    return RandomResizedCrop(_size(transform.size), (scale[0], scale[1]), (ratio[0], ratio[1]), interpolation)


def _timm_crop(transform: Any) -> Operation:
    """Translates timm's RandomResizedCropAndInterpolation, which may draw the interpolation for each image."""
    interpolation = transform.interpolation
    if not isinstance(interpolation, list | tuple):
        return _random_resized_crop(transform)
    if [_plain(choice) for choice in interpolation] != ["bilinear", "bicubic"]:
        raise ValueError(f"interpolation is {interpolation}, but only one or bilinear and bicubic are possible")
    scale, ratio = transform.scale, transform.ratio
    return RandomResizedCrop(_size(transform.size), (scale[0], scale[1]), (ratio[0], ratio[1]), "random")


def _resize(transform: Any) -> Operation:
    if transform.size is None:
        raise ValueError("its size is None, but a number is needed")
    return Resize(_size(transform.size), _interpolation(transform), transform.max_size)


def _random_shortest_size(transform: Any) -> Operation:
    return RandomShortestSize(tuple(transform.min_size), transform.max_size, _interpolation(transform))


def _scale_jitter(transform: Any) -> Operation:
    (width, height), (low, high) = transform.target_size, transform.scale_range
    return ScaleJitter((width, height), (low, high), _interpolation(transform))


def _jpeg(transform: Any) -> Operation:
    low, high = transform.quality
    return Jpeg((low, high))


def _elastic_transform(transform: Any) -> Operation:
    _must_be(transform, interpolation=("nearest", "bilinear", "bicubic"))
    red, green, blue = (int(value) for value in _channels(transform.fill or 0))
    (x, y), (sigma_x, sigma_y) = transform.alpha, transform.sigma
    fill = (red, green, blue)
    return ElasticTransform((x, y), (sigma_x, sigma_y), str(_plain(transform.interpolation)), fill)


def _random_crop(transform: Any) -> Operation:
    operation = _same(transform)
    if isinstance(operation, RandomCrop) and transform.padding is not None and ".v2." in type(transform).__module__:
        # torchvision.transforms.v2 keeps the padding as left, right, top, bottom.
        left, right, top, bottom = transform.padding
        return replace(operation, padding=(left, top, right, bottom))
    return operation


def _random_erasing(transform: Any) -> Operation:
    value: Any
    if type(transform).__module__.startswith("timm."):
        if transform.mode == "rand" or transform.max_count != 1:
            raise ValueError("only one box, of one colour or of random pixels (`mode` const or pixel), is possible")
        low, high = (math.exp(bound) for bound in transform.log_aspect_ratio)
        area = (transform.min_area, transform.max_area)
        value = "random" if transform.mode == "pixel" else (0, 0, 0)
        return RandomErasing(transform.probability, area, (low, high), value)
    # torchvision.transforms.v2 keeps "random" as None.
    value = "random" if transform.value in (None, "random") else tuple(_channels(transform.value))
    scale, ratio = transform.scale, transform.ratio
    return RandomErasing(transform.p, (scale[0], scale[1]), (ratio[0], ratio[1]), value)


def _with_fill_in_bytes(transform: Any, of_floats: bool) -> Any:
    """Returns a transform whose `fill`, if it has one, has whole numbers from 0 to 255. That of float images has values
    from 0 to 1."""
    fill = getattr(transform, "fill", None)
    if fill is None:
        return transform
    if isinstance(fill, Mapping):
        raise ValueError("its fill is a dict: give the fill of images alone")
    given = _channels(fill)
    values = [round(255 * value) if of_floats else int(value) for value in given]
    if not of_floats and values != given:
        raise ValueError(f"its fill is {fill}, but must be whole numbers from 0 to 255")
    if not all(0 <= value <= 255 for value in values):
        raise ValueError(f"its fill is the colour {tuple(values)}, which is not from 0 to 255")
    changed = copy.copy(transform)
    changed.fill = values if isinstance(fill, Iterable) else values[0]
    return changed


def _in_bytes(erasing: RandomErasing, of_floats: bool, normalize: tuple[list[float], list[float]] | None) -> Operation:
    """Converts the operation's value, which belongs to float or normalised images, to values from 0 to 255."""
    if erasing.value == "random":
        return erasing
    values: Any = erasing.value
    if normalize is not None:
        values = [mean + std * value for value, mean, std in zip(values, *normalize, strict=True)]
    if of_floats:
        values = [255 * value for value in values]
    red, green, blue = (round(value) for value in values)
    if not all(0 <= value <= 255 for value in (red, green, blue)):
        raise ValueError(f"its value is the colour ({red}, {green}, {blue}), which is not from 0 to 255")
    return replace(erasing, value=(red, green, blue))


# The names of the changes in timm's two lists, from which its RandAugment chooses.
_TIMM_RISING = ("Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness")
_TIMM_OTHERS = (
    *("AutoContrast", "Equalize", "Invert", "Rotate", "SolarizeAdd"),
    *("ShearX", "ShearY", "TranslateXRel", "TranslateYRel"),
)


def _timm_rand_augment(transform: Any) -> Operation:
    """Translates timm's RandAugment, whose list has a change with all its parameters for each name."""
    first, names = transform.ops[0], {change.name for change in transform.ops}
    increasing = "ColorIncreasing" in names
    expected = {*_TIMM_OTHERS, *(f"{name}Increasing" if increasing else name for name in _TIMM_RISING)}
    if names != expected or transform.choice_weights is not None:
        raise ValueError("only timm's usual list of changes is possible, without weights (`t…` in its name)")
    resample = first.kwargs["resample"]
    interpolation: str | None
    if isinstance(resample, list | tuple):
        interpolation = None
    else:
        # The numbers of Pillow's filters.
        known = {0: "nearest", 2: "bilinear", 3: "bicubic"}
        if int(resample) not in known:
            raise ValueError(f"its interpolation is {resample}, but only nearest, bilinear and bicubic are possible")
        interpolation = known[int(resample)]
    red, green, blue = (int(value) for value in first.kwargs["fillcolor"])
    return TimmRandAugment(
        num_ops=int(transform.num_layers),
        magnitude=float(first.magnitude),
        # Any number above 100 stands for an even distribution.
        magnitude_std=min(float(first.magnitude_std), 101.0),
        magnitude_max=float(first.magnitude_max or 10),
        increasing=increasing,
        p=float(first.prob),
        interpolation=interpolation,
        fill=(red, green, blue),
    )


def _timm_three_augment(transform: Any) -> Operation:
    """Translates timm's AutoAugment, which applies one of several lists of changes, with the lists of 3-Augment."""
    if [[change.name for change in changes] for changes in transform.policy] != [
        ["Solarize"],
        ["Desaturate"],
        ["GaussianBlurRand"],
    ] or any(change.magnitude_std for changes in transform.policy for change in changes):
        raise ValueError("only 3-Augment (`3a`) is possible, without random magnitudes (`mstd`)")
    # Nearly four standard deviations of the widest blur lie within the kernel.
    return RandomChoice([RandomSolarize(128, 1.0), RandomGrayscale(1.0), GaussianBlur(17, (0.1, 2.0))])


def _augmentation(transform: Any) -> Operation:
    """Translates a transform that draws its changes from torchvision's or timm's list of changes."""
    if type(transform).__module__.startswith("timm."):
        return _timm_three_augment(transform) if hasattr(transform, "policy") else _timm_rand_augment(transform)
    _must_be(transform, interpolation=("nearest", "bilinear", "bicubic"))
    operation = _OPERATIONS[type(transform).__name__]
    parameters = {field.name: getattr(transform, field.name) for field in fields(operation)}
    parameters = {name: _plain(value) for name, value in parameters.items()}
    fill: Any = parameters["fill"]
    if fill is None and operation is not AugMix and parameters["interpolation"] != "bilinear":
        # Without bilinear interpolation, no colour is the same as black.
        fill = [0]
    parameters["fill"] = None if fill is None else tuple(int(value) for value in _channels(fill))
    translated: Operation = operation(**parameters)
    return translated


def _same(transform: Any) -> Operation:
    """Translates a transform whose parameters are those of the operation of the same name."""
    operation = _OPERATIONS[type(transform).__name__]
    parameters = {field.name: field.type for field in fields(operation)}
    for other in inspect.signature(type(transform)).parameters:
        if other not in parameters:
            raise ValueError(f"its parameter {other} has no counterpart")

    def value(name: str, kind: Any) -> Any:
        given = getattr(transform, name)
        if given is None:
            # torchvision's ColorJitter and RandomAffine store None for a property that they do not change.
            return getattr(operation, name)
        given = _plain(given)
        if kind is int:
            return int(given)
        if kind is float:
            return float(given)
        return tuple(given) if isinstance(given, list | tuple) else given

    translated: Operation = operation(**{name: value(name, kind) for name, kind in parameters.items()})
    return translated


# Operations after which images have another size than before, but for a Resize to one side.
_OF_ANOTHER_SIZE = (CenterCrop, Pad, RandomCrop, RandomResizedCrop, RandomShortestSize, ScaleJitter)

_OPERATIONS = {operation.__name__: operation for operation in NAMES}

# Transforms with parameters for which an operation has only some of torchvision's values.
_TRANSLATIONS: dict[str, Callable[[Any], Operation]] = {
    "RandomCrop": _random_crop,
    "RandomResizedCrop": _random_resized_crop,
    "RandomResizedCropAndInterpolation": _timm_crop,
    "Resize": _resize,
    "RandomErasing": _random_erasing,
    "RandAugment": _augmentation,
    "TrivialAugmentWide": _augmentation,
    "AutoAugment": _augmentation,
    "AugMix": _augmentation,
    "ElasticTransform": _elastic_transform,
    "JPEG": _jpeg,
    "RandomShortestSize": _random_shortest_size,
    "ScaleJitter": _scale_jitter,
}
