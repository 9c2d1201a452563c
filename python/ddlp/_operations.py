"""The operations of a pipeline. Names, parameters and defaults are torchvision's.

The Rust library's operations make this file: `DDLP_UPDATE=1 cargo test -p ddlp-pixels python` writes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ._function import Function


@dataclass(frozen=True)
class RandomResizedCrop:
    """Cuts out a box of random area (`scale`) and aspect (`ratio`) and resizes it to `size`."""

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (0.75, 1.3333333333333333)
    interpolation: str = "bilinear"


@dataclass(frozen=True)
class Resize:
    """Resizes the image so that its shorter side has `size` pixels, or to a height and a width."""

    size: int | tuple[int, int]
    interpolation: str = "bilinear"
    max_size: int | None = None


@dataclass(frozen=True)
class CenterCrop:
    """Cuts out the central rectangle of `size`: a side, or height and width."""

    size: int | tuple[int, int]


@dataclass(frozen=True)
class RandomCrop:
    """Cuts out a random rectangle of `size` (a side, or height and width), after `padding` pixels were added."""

    size: int | tuple[int, int]
    padding: int | tuple[int, int] | tuple[int, int, int, int] = 0
    pad_if_needed: bool = False
    fill: int | tuple[int, int, int] = (0, 0, 0)
    padding_mode: str = "constant"


@dataclass(frozen=True)
class RandomHorizontalFlip:
    """Mirrors the image left to right with probability `p`."""

    p: float = 0.5


@dataclass(frozen=True)
class RandomInvert:
    """Inverts all values with probability `p`."""

    p: float = 0.5


@dataclass(frozen=True)
class GaussianBlur:
    """Blurs with a Gaussian kernel of `kernel_size` pixels, whose `sigma` is drawn between two bounds."""

    kernel_size: int | tuple[int, int]
    sigma: tuple[float, float] = (0.1, 2.0)


@dataclass(frozen=True)
class RandomAutocontrast:
    """Stretches the values of each channel to the whole range with probability `p`."""

    p: float = 0.5


@dataclass(frozen=True)
class ColorJitter:
    """Changes brightness, contrast and saturation by random factors and turns the hue, in random order."""

    brightness: float | tuple[float, float] = (1.0, 1.0)
    contrast: float | tuple[float, float] = (1.0, 1.0)
    saturation: float | tuple[float, float] = (1.0, 1.0)
    hue: float | tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class RandomGrayscale:
    """Turns the image gray with probability `p`."""

    p: float = 0.1


@dataclass(frozen=True)
class RandomSolarize:
    """Inverts the values that reach `threshold` with probability `p`."""

    threshold: float
    p: float = 0.5


@dataclass(frozen=True)
class RandomVerticalFlip:
    """Mirrors the image top to bottom with probability `p`."""

    p: float = 0.5


@dataclass(frozen=True)
class RandomPosterize:
    """Keeps only the upper `bits` of each value (0 to 8) with probability `p`."""

    bits: int
    p: float = 0.5


@dataclass(frozen=True)
class RandomEqualize:
    """Equalises the histogram of each channel with probability `p`."""

    p: float = 0.5


@dataclass(frozen=True)
class RandomAdjustSharpness:
    """Sharpens by `sharpness_factor` (0 smooths, 1 changes nothing, 2 sharpens) with probability `p`."""

    sharpness_factor: float
    p: float = 0.5


@dataclass(frozen=True)
class Grayscale:
    """Turns the image gray. `num_output_channels` must be 3."""

    num_output_channels: int


@dataclass(frozen=True)
class RandomErasing:
    """Fills a random box of random area (`scale`) and ratio of height to width (`ratio`) with probability `p`."""

    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: int | tuple[int, int, int] | str = (0, 0, 0)


@dataclass(frozen=True)
class RandomRotation:
    """Rotates the image counterclockwise by an angle that is drawn between two bounds (`degrees`)."""

    degrees: float | tuple[float, float]
    interpolation: str = "nearest"
    expand: bool = False
    center: tuple[float, float] | None = None
    fill: int | tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True)
class RandomAffine:
    """Rotates, translates, scales and shears the image, each by a random amount."""

    degrees: float | tuple[float, float]
    translate: tuple[float, float] | None = None
    scale: tuple[float, float] | None = None
    shear: float | tuple[float, float] | tuple[float, float, float, float] | None = None
    interpolation: str = "nearest"
    fill: int | tuple[int, int, int] = (0, 0, 0)
    center: tuple[float, float] | None = None


@dataclass(frozen=True)
class RandomPerspective:
    """Moves the corners of the image inwards at random, with probability `p`."""

    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: str = "bilinear"
    fill: int | tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True)
class RandAugment:
    """Makes `num_ops` random changes of one `magnitude`: colours, sharpness, shears, translations, rotations."""

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: str = "nearest"
    fill: int | tuple[int, int, int] | None = (0, 0, 0)


@dataclass(frozen=True)
class TrivialAugmentWide:
    """Makes one random change of random magnitude: colours, sharpness, a shear, a translation, a rotation."""

    num_magnitude_bins: int = 31
    interpolation: str = "nearest"
    fill: int | tuple[int, int, int] | None = (0, 0, 0)


@dataclass(frozen=True)
class AutoAugment:
    """Makes one of 25 pairs of changes that suit a dataset: `policy` is "imagenet", "cifar10" or "svhn"."""

    policy: str = "imagenet"
    interpolation: str = "nearest"
    fill: int | tuple[int, int, int] | None = (0, 0, 0)


@dataclass(frozen=True)
class Pad:
    """Surrounds the image with a border of `padding` pixels: left, top, right, bottom."""

    padding: int | tuple[int, int] | tuple[int, int, int, int]
    fill: int | tuple[int, int, int] = (0, 0, 0)
    padding_mode: str = "constant"


@dataclass(frozen=True)
class PadTo:
    """Puts the image into the upper left corner of a canvas of `size`; a larger image is first scaled down to fit."""

    size: int | tuple[int, int]
    fill: int | tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True)
class TimmRandAugment:
    """Makes `num_ops` random changes as timm's `rand_augment_transform` does, of a `magnitude` that may be drawn."""

    num_ops: int = 2
    magnitude: float = 10.0
    magnitude_std: float = 0.0
    magnitude_max: float = 10.0
    increasing: bool = False
    p: float = 0.5
    interpolation: str | None = None
    fill: int | tuple[int, int, int] = (128, 128, 128)


@dataclass(frozen=True)
class AugMix:
    """Blends the image with several chains of random changes of it."""

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True
    interpolation: str = "bilinear"
    fill: str | int | tuple[int, int, int] | None = "none"


@dataclass(frozen=True)
class RandomApply:
    """Applies all of its operations with probability `p`, or none."""

    transforms: "Sequence[Operation]"
    p: float = 0.5


@dataclass(frozen=True)
class RandomChoice:
    """Applies one of its operations, chosen at random."""

    transforms: "Sequence[Operation]"
    p: Sequence[float] | None = None


@dataclass(frozen=True)
class RandomOrder:
    """Applies all of its operations, in random order."""

    transforms: "Sequence[Operation]"


@dataclass(frozen=True)
class GaussianNoise:
    """Adds noise of a normal distribution to each value: `mean` and `sigma` are parts of the range of values."""

    mean: float = 0.0
    sigma: float = 0.1
    clip: bool = True


@dataclass(frozen=True)
class Jpeg:
    """Encodes the image as a JPEG of a random `quality` between two bounds, and decodes it again."""

    quality: int | tuple[int, int]


@dataclass(frozen=True)
class RandomPhotometricDistort:
    """Changes brightness, contrast, saturation and hue and exchanges the channels, each with probability `p`."""

    brightness: float | tuple[float, float] = (0.875, 1.125)
    contrast: float | tuple[float, float] = (0.5, 1.5)
    saturation: float | tuple[float, float] = (0.5, 1.5)
    hue: float | tuple[float, float] = (-0.05, 0.05)
    p: float = 0.5


@dataclass(frozen=True)
class RandomShortestSize:
    """Resizes the image so that its shorter side has one of several lengths (`min_size`), chosen at random."""

    min_size: int | Sequence[int]
    max_size: int | None = None
    interpolation: str = "bilinear"


@dataclass(frozen=True)
class ScaleJitter:
    """Resizes the image to a random multiple (`scale_range`) of the size in which it fits `target_size`."""

    target_size: tuple[int, int]
    scale_range: tuple[float, float] = (0.1, 2.0)
    interpolation: str = "bilinear"


@dataclass(frozen=True)
class ElasticTransform:
    """Moves each pixel by a random distance, much as its neighbours: `alpha` strengthens, `sigma` smooths that."""

    alpha: float | tuple[float, float] = (50.0, 50.0)
    sigma: float | tuple[float, float] = (5.0, 5.0)
    interpolation: str = "bilinear"
    fill: int | tuple[int, int, int] = (0, 0, 0)


Operation = (
    RandomResizedCrop
    | Resize
    | CenterCrop
    | RandomCrop
    | RandomHorizontalFlip
    | RandomInvert
    | GaussianBlur
    | RandomAutocontrast
    | ColorJitter
    | RandomGrayscale
    | RandomSolarize
    | RandomVerticalFlip
    | RandomPosterize
    | RandomEqualize
    | RandomAdjustSharpness
    | Grayscale
    | RandomErasing
    | RandomRotation
    | RandomAffine
    | RandomPerspective
    | RandAugment
    | TrivialAugmentWide
    | AutoAugment
    | Pad
    | PadTo
    | TimmRandAugment
    | AugMix
    | RandomApply
    | RandomChoice
    | RandomOrder
    | GaussianNoise
    | Jpeg
    | RandomPhotometricDistort
    | RandomShortestSize
    | ScaleJitter
    | ElasticTransform
    | Function
)

# Names in TOML and JSON.
NAMES = {
    RandomResizedCrop: "random_resized_crop",
    Resize: "resize",
    CenterCrop: "center_crop",
    RandomCrop: "random_crop",
    RandomHorizontalFlip: "random_horizontal_flip",
    RandomInvert: "random_invert",
    GaussianBlur: "gaussian_blur",
    RandomAutocontrast: "random_autocontrast",
    ColorJitter: "color_jitter",
    RandomGrayscale: "random_grayscale",
    RandomSolarize: "random_solarize",
    RandomVerticalFlip: "random_vertical_flip",
    RandomPosterize: "random_posterize",
    RandomEqualize: "random_equalize",
    RandomAdjustSharpness: "random_adjust_sharpness",
    Grayscale: "grayscale",
    RandomErasing: "random_erasing",
    RandomRotation: "random_rotation",
    RandomAffine: "random_affine",
    RandomPerspective: "random_perspective",
    RandAugment: "rand_augment",
    TrivialAugmentWide: "trivial_augment_wide",
    AutoAugment: "auto_augment",
    Pad: "pad",
    PadTo: "pad_to",
    TimmRandAugment: "timm_rand_augment",
    AugMix: "aug_mix",
    RandomApply: "random_apply",
    RandomChoice: "random_choice",
    RandomOrder: "random_order",
    GaussianNoise: "gaussian_noise",
    Jpeg: "jpeg",
    RandomPhotometricDistort: "random_photometric_distort",
    RandomShortestSize: "random_shortest_size",
    ScaleJitter: "scale_jitter",
    ElasticTransform: "elastic_transform",
    Function: "function",
}

__all__ = [
    "Operation",
    "RandomResizedCrop",
    "Resize",
    "CenterCrop",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomInvert",
    "GaussianBlur",
    "RandomAutocontrast",
    "ColorJitter",
    "RandomGrayscale",
    "RandomSolarize",
    "RandomVerticalFlip",
    "RandomPosterize",
    "RandomEqualize",
    "RandomAdjustSharpness",
    "Grayscale",
    "RandomErasing",
    "RandomRotation",
    "RandomAffine",
    "RandomPerspective",
    "RandAugment",
    "TrivialAugmentWide",
    "AutoAugment",
    "Pad",
    "PadTo",
    "TimmRandAugment",
    "AugMix",
    "RandomApply",
    "RandomChoice",
    "RandomOrder",
    "GaussianNoise",
    "Jpeg",
    "RandomPhotometricDistort",
    "RandomShortestSize",
    "ScaleJitter",
    "ElasticTransform",
    "Function",
]
