"""The native part of the package `ddlp`."""

from typing import Any, final

VERSION: str

@final
class Array:
    """One field of a batch: an array in the loader's own memory.

    Supports the buffer protocol (`numpy.asarray`, `memoryview`) and DLPack (`torch.from_dlpack`, `numpy.from_dlpack`,
    `jax.dlpack.from_dlpack`). No view copies. The batch's buffer returns to the loader when the array and its views are
    gone.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def writable(self) -> bool: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack__(
        self,
        *,
        stream: Any | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class Batch:
    """A batch: its fields, and where it belongs."""

    images: Array
    labels: Array
    sample_ids: list[int]
    epoch: int
    index: int
    prong: int

@final
class Run:
    """A run: the batches of its epochs, one after the other."""

    batches_per_epoch: int
    is_forked: bool
    def __new__(cls, options: str) -> Run: ...
    def next(self) -> Batch | None: ...
    def state(self) -> str: ...
    def report(self) -> str: ...
    def progress(self) -> dict[str, Any]: ...
    def close(self) -> None: ...

def named_pipeline(name: str) -> str: ...
def toml_pipeline(text: str) -> str: ...
def checked_pipeline(json: str) -> tuple[str, int, int]: ...
