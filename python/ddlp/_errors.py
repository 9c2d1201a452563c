"""The exceptions of the package. Every message says what happened, where, and what to do."""

__all__ = [
    "ConfigurationError",
    "CorruptError",
    "DeviceError",
    "DriveError",
    "Error",
    "FunctionError",
    "OutOfMemoryError",
    "SystemRefusedError",
    "UnavailableError",
    "UsageError",
]


class Error(Exception):
    """Base of all exceptions of this package."""

    __module__ = "ddlp"


class ConfigurationError(Error, ValueError):
    """Options, a state or a plan do not fit each other, the dataset or this machine: change them."""

    __module__ = "ddlp"


class UsageError(Error, RuntimeError):
    """A loader is used in a way that it does not allow: after a fork, after it was closed, or without letting go of
    batches."""

    __module__ = "ddlp"


class UnavailableError(Error, OSError):
    """The dataset cannot be opened or read, or is no longer the one that was opened."""

    __module__ = "ddlp"


class CorruptError(Error):
    """The dataset has more corrupt samples than the policy and its limit allow."""

    __module__ = "ddlp"


class DriveError(Error):
    """A drive cannot be used."""

    __module__ = "ddlp"


class DeviceError(Error):
    """The GPU that `device` names cannot be used, or is lost."""

    __module__ = "ddlp"


class FunctionError(Error):
    """A function of the pipeline (`ddlp.Function`) raised an exception, which is this one's `__cause__`, or returned
    something else than the image that it has to."""

    __module__ = "ddlp"


class OutOfMemoryError(Error, MemoryError):
    """There is no memory for what the options ask for."""

    __module__ = "ddlp"


class SystemRefusedError(Error, OSError):
    """The operating system refused something other than memory, such as a thread."""

    __module__ = "ddlp"
