"""DDLP feeds image training from two ends at once: the CPU and a drive prepare batches at the same time.

    import ddlp

    loader = ddlp.Loader("train.ddlp", batch_size=256, normalize=ddlp.IMAGENET)
    for images, labels in loader:
        ...

Options have the names of the Rust library's `LoaderOptions`.
"""

from ._compose import Compose
from ._ddlp import VERSION as __version__
from ._ddlp import Array
from ._drives import Drive, LocalDrive
from ._errors import (
    ConfigurationError,
    CorruptError,
    DriveError,
    Error,
    OutOfMemoryError,
    SystemRefusedError,
    UnavailableError,
    UsageError,
)
from ._loader import IMAGENET, Batch, Loader
from ._pipeline import (
    CenterCrop,
    GaussianBlur,
    Operation,
    Pipeline,
    RandomAutocontrast,
    RandomCrop,
    RandomHorizontalFlip,
    RandomInvert,
    RandomResizedCrop,
    Resize,
    cifar_train,
    imagenet_train,
    imagenet_val,
)
from ._report import Report

__all__ = [
    "IMAGENET",
    "Array",
    "Batch",
    "CenterCrop",
    "Compose",
    "ConfigurationError",
    "CorruptError",
    "Drive",
    "DriveError",
    "Error",
    "GaussianBlur",
    "Loader",
    "LocalDrive",
    "Operation",
    "OutOfMemoryError",
    "Pipeline",
    "RandomAutocontrast",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomResizedCrop",
    "Report",
    "Resize",
    "SystemRefusedError",
    "UnavailableError",
    "UsageError",
    "__version__",
    "cifar_train",
    "imagenet_train",
    "imagenet_val",
]
