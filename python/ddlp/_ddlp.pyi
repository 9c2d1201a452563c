"""The native part of the package `ddlp`."""

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar, final

_T = TypeVar("_T")

VERSION: str

@final
class Array:
    """One field of a batch: an array in the loader's own memory.

    Supports the buffer protocol (`numpy.asarray`, `memoryview`) and DLPack (`torch.from_dlpack`, `numpy.from_dlpack`,
    `jax.dlpack.from_dlpack`). No view copies. The batch's buffer returns to the loader when the array and its views are
    gone.

    An array on a GPU supports DLPack alone. The first export of an array of a batch makes the elements of the whole
    batch, on the stream that the consumer names and in memory that belongs to the batch.
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
    def __array__(self, *arguments: Any, **options: Any) -> Any: ...
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
    others: list[tuple[str, Array]]
    sizes: list[tuple[int, int]] | None
    sample_ids: list[int]
    requested_ids: list[int]
    epoch: int
    index: int
    prong: int
    def deliver_to(self, stream: int, addresses: list[int]) -> None: ...

@final
class Dataset:
    def file(self, index: int) -> bytes: ...
    def samples_where(self, question: str) -> bytes: ...
    def write_split(
        self,
        path: str,
        root: str | None,
        names: list[str] | None,
        parts: list[bytes],
        query: tuple[str | None, list[float], str, int] | None,
    ) -> None: ...
    """An opened dataset: its samples by number."""

    kind: str
    identity: bytes
    classes: list[str]
    has_other_labels: bool
    knows_labels: bool
    def __new__(
        cls,
        path: str | os.PathLike[str] | None = None,
        kind: str | None = None,
        classes: list[str] | None = None,
        dataset: Any | None = None,
        columns: dict[str, Any] | None = None,
        mix: tuple[list[tuple[str, Any, dict[str, Any] | None]], tuple[float, ...] | None] | None = None,
        table: tuple[str | None, str | None, str | None] = ...,
    ) -> Dataset: ...
    @staticmethod
    def of_files(root: str, paths: list[str], labels: list[int], classes: list[str]) -> Dataset: ...
    @staticmethod
    def of_planes(planes: bytes, size: tuple[int, int], labels: list[int], classes: list[str]) -> Dataset: ...
    def __len__(self) -> int: ...
    def targets(self) -> bytes: ...
    def name(self, index: int) -> str: ...
    def path(self, index: int) -> os.PathLike[str] | None: ...

@final
class Device:
    """A GPU that was opened."""

    index: int
    count: int
    name: str
    def __new__(cls, name: str) -> Device: ...

@final
class Epoch(Generic[_T]):
    """One iteration: what is left of an epoch. Several threads may share it."""

    def __iter__(self) -> Epoch[_T]: ...
    def __next__(self) -> _T: ...

@final
class Run:
    """A run: the batches of its epochs, one after the other."""

    batches_per_epoch: int
    samples_of_rank: int
    classes: list[str]
    fields: list[str]
    samples: int
    note_of_classes: str | None
    is_forked: bool
    asks: int
    def __new__(
        cls,
        options: str,
        dataset: Any | None = None,
        columns: dict[str, Any] | None = None,
        beside: tuple[
            list[tuple[str, str, list[int], bytes]], tuple[str, list[str], list[tuple[str, list[str]]]] | None
        ] = ...,
        mix: tuple[list[tuple[str, Any, dict[str, Any] | None]], tuple[float, ...] | None] | None = None,
        functions: list[tuple[str, Callable[..., bytes]]] = ...,
        device: Device | None = None,
        choice: dict[str, Any] | None = None,
        fidelity: Callable[[int], int] | None = None,
    ) -> Run: ...
    def dataset(self) -> Dataset | None: ...
    def iterate(self, convert: Callable[[Batch], _T]) -> Epoch[_T]: ...
    def check(self, state: str) -> None: ...
    def go_to(self, state: str) -> bool: ...
    def state(self) -> str: ...
    def report(self) -> str: ...
    def progress(self) -> dict[str, Any]: ...
    def headspace(self, step: Callable[[_T], object], convert: Callable[[Batch], _T], seconds: float) -> str: ...
    def close(self) -> None: ...

def pack_dataset(
    source: Any,
    path: str | os.PathLike[str],
    packing: dict[str, Any],
    progress: Callable[[str, int, int], object],
    columns: dict[str, Any] | None = None,
    classes: list[str] | None = None,
) -> dict[str, Any]: ...
def push_dataset(
    source: Any,
    url: str,
    packing: dict[str, Any],
    progress: Callable[[str, int, int], object],
    columns: dict[str, Any] | None = None,
    classes: list[str] | None = None,
) -> dict[str, Any]: ...
def index_of_part(path: str | os.PathLike[str]) -> bytes: ...
def join_parts(parts: list[tuple[bytes, bytes]], source: bytes | None = None) -> tuple[bytes, list[bytes]]: ...
def push_part(
    step: str,
    index: bytes,
    url: str,
    packing: dict[str, Any],
    progress: Callable[[str, int, int], object],
    part: tuple[str, bytes] | None = None,
) -> dict[str, Any]: ...
def split_samples(groups: bytes, sizes: list[int], seed: int, evenly: bool) -> list[bytes]: ...
def split_sizes(ratios: list[float], count: int) -> list[int]: ...
def read_split(path: str) -> list[tuple[str, bytes]]: ...
def report_page(figures: str) -> str: ...
def check_options(json: str) -> None: ...
def set_log_level(level: int) -> None: ...
def end_all() -> None: ...
def flush_log() -> None: ...
def before_fork() -> None: ...
def after_fork(is_child: bool) -> None: ...
def named_pipeline(name: str) -> str: ...
def toml_pipeline(text: str) -> str: ...
def checked_pipeline(json: str) -> tuple[str, int, int]: ...
