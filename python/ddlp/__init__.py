"""DDLP feeds image training from two ends at once: the CPU and a drive prepare batches at the same time.

    import ddlp

    loader = ddlp.Loader("train.ddlp", batch_size=256, normalize=ddlp.IMAGENET)
    for images, labels in loader:
        ...

Options have the names of the Rust library's `LoaderOptions`.
"""

from . import _operations
from ._arrow import ArrowTable
from ._batch import Batch, NamedBatch
from ._compose import Compose
from ._dataset import Dataset
from ._ddlp import VERSION as __version__
from ._ddlp import Array
from ._drives import Drive, LocalDrive
from ._errors import (
    ConfigurationError,
    CorruptError,
    DeviceError,
    DriveError,
    Error,
    FunctionError,
    OutOfMemoryError,
    SystemRefusedError,
    UnavailableError,
    UsageError,
)
from ._function import Function
from ._headspace import Headspace
from ._loader import IMAGENET, Loader
from ._mix import Mix
from ._operations import *  # noqa: F403
from ._packing import pack, push
from ._pipeline import Pipeline, cifar_train, imagenet_train, imagenet_val
from ._report import Report
from ._samples import Samples
from ._split import read_split, split

__all__ = [
    "IMAGENET",
    "Array",
    "ArrowTable",
    "Batch",
    "Compose",
    "ConfigurationError",
    "CorruptError",
    "Dataset",
    "DeviceError",
    "Drive",
    "DriveError",
    "Error",
    "Function",
    "FunctionError",
    "Headspace",
    "Loader",
    "LocalDrive",
    "Mix",
    "NamedBatch",
    "OutOfMemoryError",
    "Pipeline",
    "Report",
    "Samples",
    "SystemRefusedError",
    "UnavailableError",
    "UsageError",
    "__version__",
    "cifar_train",
    "imagenet_train",
    "imagenet_val",
    "pack",
    "push",
    "read_split",
    "split",
]
__all__ += [name for name in _operations.__all__ if name not in __all__]
