"""The stand-in for NVIDIA's driver, as this process finds it, and two consumers of batches that lie there: one that
stands for PyTorch, and one of DLPack."""

import ctypes
import math
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy

DRIVER = ctypes.CDLL("libcuda.so.1")
DEVICES = 2
ROOT = Path(__file__).resolve().parents[2]
TYPES = {"uint8": numpy.uint8, "float16": numpy.uint16, "bfloat16": numpy.uint16, "float32": numpy.uint32}
"""The elements' types, floats as bits: NumPy has no bfloat16."""
TYPES["int64"] = numpy.int64


COUNTS = re.findall(r"pub (\w+): u64", (ROOT / "tests/fake-cuda/src/statistics.rs").read_text())


class Statistics(ctypes.Structure):
    """Counts of the stand-in."""

    _fields_ = [(name, ctypes.c_uint64) for name in COUNTS]

    def live(self):
        """Returns what the program made and has not given back."""
        return {name: getattr(self, name) for name in COUNTS if name.startswith("live_")}


def statistics():
    counts = Statistics()
    assert DRIVER.fakeCudaStatistics(ctypes.byref(counts)) == 0
    return counts


def defects():
    """Returns a sentence for each mistake in the use of the driver."""
    text = ctypes.create_string_buffer(1024)
    sentences = []
    while DRIVER.fakeCudaDefect(ctypes.c_size_t(len(sentences)), text, ctypes.c_size_t(len(text))) == 0:
        sentences.append(text.value.decode())
    return sentences


def setting(key, value):
    """Changes a setting of the stand-in."""
    assert DRIVER.fakeCudaSet(key.encode(), str(value).encode()) == 0


def call(name, *arguments):
    """Calls a function of the driver."""
    code = getattr(DRIVER, name)(*arguments)
    assert code == 0, f"{name}: {code}"


def new(name, *arguments):
    """Calls a function of the driver that writes a handle or an address. Returns this."""
    made = ctypes.c_uint64()
    call(name, ctypes.byref(made), *arguments)
    return made.value


class Context:
    """The primary context of a device, while it is current on this thread."""

    def __init__(self, device):
        self.device = device

    def __enter__(self):
        call("cuInit", 0)
        self.before = new("cuCtxGetCurrent")
        call("cuCtxSetCurrent", ctypes.c_uint64(new("cuDevicePrimaryCtxRetain", self.device)))

    def __exit__(self, *_):
        call("cuCtxSetCurrent", ctypes.c_uint64(self.before))
        call("cuDevicePrimaryCtxRelease_v2", self.device)


def new_stream(device=0):
    """Makes a stream that does not wait for the default stream. The context lives as long as the stream."""
    with Context(device):
        new("cuDevicePrimaryCtxRetain", device)
        return new("cuStreamCreate", 1)


def destroy(stream, device=0):
    with Context(device):
        call("cuStreamDestroy_v2", ctypes.c_uint64(stream))
    call("cuDevicePrimaryCtxRelease_v2", device)


def read(address, bytes, stream=None, device=0):
    """Returns the bytes at an address of a device. Waits for one stream alone, so that work which it should have
    waited for may not be done."""
    found = numpy.empty(bytes, numpy.uint8)
    with Context(device):
        if stream is not None:
            call("cuStreamSynchronize", ctypes.c_uint64(stream))
        if bytes:
            at = ctypes.c_void_p(found.ctypes.data)
            call("cuMemcpyDtoH_v2", at, ctypes.c_uint64(address), ctypes.c_size_t(bytes))
    return found


def values(found, dtype, shape, strides):
    """Returns an array of bytes in memory order as one of elements, with strides in elements."""
    elements = found.view(TYPES[dtype])
    size = elements.itemsize
    return numpy.lib.stride_tricks.as_strided(elements, shape, [stride * size for stride in strides]).copy()


class Tensor:
    """A tensor on the stand-in, which stands for one of PyTorch's."""

    def __init__(self, shape, dtype, device, channels_last):
        self.shape, self.dtype, self.device = tuple(shape), dtype, int(device.removeprefix("cuda:"))
        self.stream = torch.cuda.current_stream(self.device).cuda_stream
        # Memory order of the dimensions.
        order = (0, 2, 3, 1) if channels_last else range(len(shape))
        self.strides, step = [0] * len(shape), 1
        for dimension in reversed(order):
            self.strides[dimension] = step
            step *= shape[dimension]
        # The context lives as long as the tensor, as PyTorch's does.
        with Context(self.device):
            new("cuDevicePrimaryCtxRetain", self.device)
            self.address = new("cuMemAlloc_v2", ctypes.c_size_t(max(self.bytes, 1)))

    @property
    def bytes(self):
        return math.prod(self.shape) * numpy.dtype(TYPES[self.dtype]).itemsize

    def data_ptr(self):
        return self.address

    def values(self):
        """Returns the elements, as the tensor's stream sees them."""
        found = read(self.address, self.bytes, self.stream, self.device)
        return values(found, self.dtype, self.shape, self.strides)

    def __del__(self):
        with Context(self.device):
            call("cuMemFree_v2", ctypes.c_uint64(self.address))
        call("cuDevicePrimaryCtxRelease_v2", self.device)


class FakePyTorch(ModuleType):
    """As much of PyTorch as the package uses."""

    __version__ = "2.0"
    channels_last, contiguous_format = "channels_last", "contiguous_format"
    uint8, float16, bfloat16, float32, int64 = "uint8", "float16", "bfloat16", "float32", "int64"

    def __init__(self):
        super().__init__("torch")
        self.device, self.streams = 0, dict.fromkeys(range(DEVICES), 0)
        self.version = SimpleNamespace(cuda="12.8", hip=None)
        self.cuda = SimpleNamespace(
            current_device=lambda: self.device,
            current_stream=lambda device: SimpleNamespace(cuda_stream=self.streams[device]),
        )

    def empty(self, shape, *, dtype, device, memory_format):
        return Tensor(shape, dtype, device, memory_format == self.channels_last)


torch = FakePyTorch()


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("delete", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_set_name = ctypes.pythonapi.PyCapsule_SetName
_set_name.argtypes = [ctypes.py_object, ctypes.c_char_p]
_USED = b"used_dltensor_versioned"


class Taken:
    """An array that was taken over by DLPack, from the host or from a device."""

    def __init__(self, array, stream=None):
        capsule = array.__dlpack__(stream=stream, max_version=(1, 0))
        self.stream = stream
        self._managed = _Managed.from_address(_get_pointer(capsule, b"dltensor_versioned"))
        _set_name(capsule, _USED)
        tensor = self._managed.tensor
        self.dtype, self.address, self.device = array.dtype, tensor.data, (tensor.device_type, tensor.device_id)
        self.shape, self.strides = tensor.shape[: tensor.dimensions], tensor.strides[: tensor.dimensions]

    def values(self):
        """Returns the elements, as the consumer's stream sees them."""
        bytes = math.prod(self.shape) * numpy.dtype(TYPES[self.dtype]).itemsize
        if self.device == (1, 0):
            found = numpy.frombuffer(ctypes.string_at(self.address, bytes), numpy.uint8)
        else:
            stream = None if self.stream == -1 else 1 if self.stream is None else self.stream
            found = read(self.address, bytes, stream, self.device[1])
        return values(found, self.dtype, self.shape, self.strides)

    def copied(self):
        """Queues a copy on the consumer's stream, and does not wait for it. Returns the tensor to which it goes."""
        torch.streams[0] = self.stream or 0
        copy = Tensor(self.shape, self.dtype, "cuda:0", False)
        with Context(0):
            from_, to = ctypes.c_uint64(self.address), ctypes.c_uint64(copy.address)
            call("cuMemcpyDtoDAsync_v2", to, from_, ctypes.c_size_t(copy.bytes), ctypes.c_uint64(copy.stream))
        return copy

    def delete(self):
        """Gives the memory back, as a consumer does on any thread: ctypes lets go of the interpreter's lock."""
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._managed.delete)(ctypes.addressof(self._managed))
