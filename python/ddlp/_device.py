"""Delivery to a GPU: which device, and tensors there that the consumer's library allocates."""

from __future__ import annotations

import os
import warnings
from typing import Any

from . import _ddlp
from ._errors import ConfigurationError, DeviceError, UsageError

CPU = "cpu"


class PyTorch:
    """What the package needs of PyTorch: a stream, and empty tensors from PyTorch's own allocator."""

    def __init__(self) -> None:
        import torch

        self._torch: Any = torch
        if getattr(torch.version, "hip", None) is not None:
            raise DeviceError(
                f"PyTorch {torch.__version__} is built for ROCm, but batches can be delivered to NVIDIA GPUs only: "
                "leave device out, and move each batch, such as by images.to('cuda')"
            )
        if getattr(torch.cuda, "_is_in_bad_fork", lambda: False)():
            raise UsageError(
                "CUDA cannot be used in a process that was forked from one that uses it: start processes by the method "
                "'spawn'"
            )

    def current_device(self) -> int:
        """Returns the number of the device that the program has chosen."""
        try:
            return int(self._torch.cuda.current_device())
        except (AssertionError, RuntimeError) as error:
            # Says what is missing, if anything is for us, too.
            _ddlp.Device("cuda")
            self.check()
            raise DeviceError(f"PyTorch cannot use CUDA: {error}") from error

    def check(self) -> None:
        """Refuses a PyTorch without CUDA."""
        if self._torch.version.cuda is None:
            raise DeviceError(
                f"PyTorch {self._torch.__version__} is built for the CPU alone: install a wheel with CUDA, such as by "
                "pip install torch --index-url https://download.pytorch.org/whl/cu128"
            )

    def current_stream(self, device: int) -> int:
        """Returns the handle of the stream on which the program works now."""
        return int(self._torch.cuda.current_stream(device).cuda_stream)

    def empty(self, shape: tuple[int, ...], dtype: str, device: int, channels_last: bool) -> tuple[Any, int]:
        """Returns a tensor for work on the current stream, and its address."""
        torch = self._torch
        order = torch.channels_last if channels_last else torch.contiguous_format
        kind = getattr(torch, dtype)
        tensor = torch.empty(shape, dtype=kind, device=f"cuda:{device}", memory_format=order)
        return tensor, int(tensor.data_ptr())


class Gpu:
    """The GPU to which a loader delivers, and how its batches become arrays of the program."""

    def __init__(self, name: str, output: str, rank: int) -> None:
        self._tensors = PyTorch() if output == "torch" else None
        if name == "cuda" and self._tensors is not None:
            name = f"cuda:{self._tensors.current_device()}"
        self.device = _ddlp.Device(name)
        if self._tensors is not None:
            self._tensors.check()
        _warn_if_all_take_the_first(self.device, rank)

    def fields(self, batch: _ddlp.Batch) -> list[Any]:
        """Returns images, labels and other fields of a batch. They have their elements when the batch is delivered."""
        arrays = [batch.images, batch.labels, *(array for _, array in batch.others)]
        if self._tensors is None:
            return list(arrays)
        index = self.device.index
        stream = self._tensors.current_stream(index)
        places = [self._tensors.empty(array.shape, array.dtype, index, _is_channels_last(array)) for array in arrays]
        batch.deliver_to(stream, [address for _, address in places])
        return [tensor for tensor, _ in places]


def gpu_of(device: Any, output: str, rank: int) -> Gpu | None:
    """Opens the GPU that the option `device` names; None for the CPU."""
    if device == CPU:
        return None
    if not isinstance(device, str) or not device.startswith("cuda"):
        raise ConfigurationError(f'device is {device!r}, but must be "cpu", "cuda" or "cuda:N", with N from 0')
    if output == "numpy":
        raise ConfigurationError(
            f'NumPy has no arrays on a GPU: choose the output "torch" or "dlpack", or leave device={device!r} out'
        )
    return Gpu(device, output, rank)


def _is_channels_last(array: _ddlp.Array) -> bool:
    """Returns whether the channels of a pixel lie together though they are not the last dimension."""
    return len(array.shape) == 4 and array.strides[1] < array.strides[3]


def _warn_if_all_take_the_first(device: _ddlp.Device, rank: int) -> None:
    """Warns a process that is not the first one of its machine, but takes the first of several devices."""
    number = os.environ.get("LOCAL_RANK", str(rank))
    if device.index == 0 and device.count > 1 and number != "0":
        variable = "LOCAL_RANK" if "LOCAL_RANK" in os.environ else "rank"
        warnings.warn(
            f"{variable} is {number}, and this process delivers to cuda:0, one of the {device.count} devices that it "
            f"sees: if every process does, they share one GPU. Choose one for each process, such as by "
            f'torch.cuda.set_device(LOCAL_RANK) and device="cuda", or by CUDA_VISIBLE_DEVICES',
            stacklevel=7,
        )
