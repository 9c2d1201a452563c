"""Batches on a GPU are those of the host, and whatever fails there ends in an exception that says what to do.

The tests run on a stand-in for NVIDIA's driver, in a process that finds it as libcuda.so.1: `scripts/python` builds it
and starts that process. A module stands for PyTorch, whose CPU build has no tensors on a device.
"""

import ctypes
import gc
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import warnings
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

import numpy
import pytest

import ddlp
from conftest import CLASSES, SAMPLES, wait_until

try:
    import gpu
except OSError:
    pytest.skip("needs the stand-in for NVIDIA's driver: scripts/python", allow_module_level=True)

SIZE = ddlp.imagenet_train(33)
DTYPES = ("uint8", "float16", "bfloat16", "float32")
LAYOUTS = ("NCHW", "NHWC", "channels_last")


@pytest.fixture(autouse=True)
def pytorch(monkeypatch):
    """Puts the stand-in's PyTorch in the place of PyTorch, and checks afterwards that nothing is left on the devices
    and that the driver was used without a mistake."""
    torch = gpu.FakePyTorch()
    torch.__spec__ = ModuleSpec("torch", None)
    monkeypatch.setattr(gpu, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch", torch)
    gpu.setting("devices", gpu.DEVICES)
    yield torch
    gc.collect()
    wait_until(lambda: not any(gpu.statistics().live().values()))
    counts = gpu.statistics()
    assert gpu.defects() == []
    assert (counts.pageable_to_device, counts.calls_in_children) == (0, 0)


def loader(pack, **options):
    usual = {"pipeline": SIZE, "batch_size": 16, "device": "cuda:0", "seed": 3, "epochs": 1, "drives": []}
    return ddlp.Loader(pack, **{**usual, **options})


def contents(batch, read):
    """Returns everything that a batch says and has, with `read` applied to its arrays."""
    arrays = batch.values() if isinstance(batch, dict) else batch
    about = batch.epoch, batch.index, batch.prong, batch.sample_ids, batch.requested_ids, batch.sizes
    return about, [(array.dtype, tuple(array.shape), read(array).tobytes()) for array in arrays]


def of_host(pack, **options):
    """Returns what the batches of the host have."""

    def read(array):
        taken = gpu.Taken(array)
        found = taken.values()
        taken.delete()
        return found

    with loader(pack, output="dlpack", device="cpu", **options) as batches:
        return [contents(batch, read) for _ in range(batches._epochs) for batch in batches]


def of_device(pack, **options):
    with loader(pack, **options) as batches:
        return [contents(batch, gpu.Tensor.values) for batch in batches]


@pytest.mark.parametrize("mix", [{}, {"mixup": 0.4}, {"cutmix": 1.0}], ids=["plain", "mixup", "cutmix"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_those_of_the_host(pack, dtype, layout, mix):
    options = {"dtype": dtype, "layout": layout, **mix}
    if dtype != "uint8":
        options["normalize"] = ddlp.IMAGENET
    expected = of_host(pack, **options)
    assert [len(about[3]) for about, _ in expected] == [16, 16, 16, 12]
    assert of_device(pack, **options) == expected


def test_memory_order_is_that_of_the_host(pack):
    for dtype in ("uint8", "float32"):
        for layout in LAYOUTS:
            options = {"dtype": dtype, "layout": layout}
            with loader(pack, **options) as batches, loader(pack, device="cpu", output="dlpack", **options) as same:
                on_device, on_host = next(iter(batches)).images, next(iter(same)).images
                size = numpy.dtype(gpu.TYPES[dtype]).itemsize
                strides = [stride * size for stride in on_device.strides]
                assert (tuple(on_device.shape), strides) == (on_host.shape, list(on_host.strides))
                del on_device, on_host


@pytest.mark.parametrize("strategy", ["ordered", "mte", "wrr", "csd"])
def test_batches_of_drives_are_those_of_the_host(pack, strategy):
    options = {"dtype": "float16", "mixup": 0.4, "fields": {"n": numpy.arange(SAMPLES), "x": numpy.ones((SAMPLES, 3))}}
    options["fields"]["x"] = options["fields"]["x"].astype("float32")
    expected = {about[1]: arrays for about, arrays in of_host(pack, **options)}
    found = of_device(pack, strategy=strategy, drives="local", **options)
    assert {about[1]: arrays for about, arrays in found} == expected
    if strategy == "csd":
        assert {about[2] for about, _ in found} == {1}


def test_fields_names_and_canvases(pack):
    canvas = ddlp.Pipeline([ddlp.Resize(20), ddlp.PadTo(64)])
    options = {"names": ("x", "y"), "pipeline": canvas, "fields": {"n": numpy.arange(SAMPLES)}}
    assert of_device(pack, **options) == of_host(pack, **options)
    with loader(pack, **options) as batches:
        batch = next(iter(batches))
    assert list(batch) == ["x", "y", "size", "n"]
    assert batch["size"].values().tolist() == [list(size) for size in batch.sizes]
    assert batch["n"].values().tolist() == batch.sample_ids


def test_a_short_last_batch_leaves_no_rank_without_a_sample(pack):
    options = {"batch_size": 4, "rank": 0, "world_size": 2, "epoch_samples": 5}
    expected = of_host(pack, **options)
    assert [len(about[3]) for about, _ in expected] == [2, 1]
    assert of_device(pack, **options) == expected


def test_a_run_resumes(pack):
    expected = of_host(pack, mixup=0.2)
    with loader(pack, mixup=0.2) as batches:
        iteration = iter(batches)
        assert [contents(next(iteration), gpu.Tensor.values) for _ in range(2)] == expected[:2]
        state = batches.state_dict()
    with loader(pack, mixup=0.2) as resumed:
        resumed.load_state_dict(state)
        assert [contents(batch, gpu.Tensor.values) for batch in resumed] == expected[2:]


def test_kept_batches_hold_nothing_of_the_loader(pack):
    with loader(pack, buffers=2, batch_size=4) as batches:
        kept = list(batches)
        assert len(kept) == 15 > batches._options["buffers"]
        assert batches.report()["device"].startswith("cuda:0 (")
    assert [contents(batch, gpu.Tensor.values) for batch in kept] == of_host(pack, batch_size=4)


def test_batches_come_on_the_current_stream(pack, pytorch):
    expected = of_host(pack, dtype="float16")
    for seed in range(10):
        gpu.setting("seed", seed)
        streams = [gpu.new_stream() for _ in range(2)]
        found = []
        with loader(pack, dtype="float16") as batches:
            for index, batch in enumerate(batches):
                # A tensor's values are those that its own stream sees.
                found.append(contents(batch, gpu.Tensor.values))
                del batch
                pytorch.streams[0] = streams[index % 2]
        assert found == expected, f"seed {seed}"
        pytorch.streams[0] = 0
        for stream in streams:
            gpu.destroy(stream)


def test_a_batch_that_python_did_not_get_is_still_due(pack):
    expected = of_host(pack)
    with loader(pack) as batches:
        iteration, fields = iter(batches), batches._gpu.fields

        def failing(batch):
            fields(batch)
            raise KeyboardInterrupt

        found = []
        for _ in expected:
            batches._gpu.fields = failing
            with pytest.raises(KeyboardInterrupt):
                next(iteration)
            batches._gpu.fields = fields
            found.append(contents(next(iteration), gpu.Tensor.values))
    assert found == expected


def test_two_loaders_and_two_devices(pack, pytorch):
    expected = of_host(pack), of_host(pack, seed=4)
    with loader(pack) as first, loader(pack, seed=4, device="cuda:1") as second, loader(pack, seed=4) as third:
        rows = list(zip(first, second, third, strict=True))
    assert [batch.images.device for batch in rows[0]] == [0, 1, 0]
    of_first, *others = ([contents(row[at], gpu.Tensor.values) for row in rows] for at in range(3))
    assert of_first == expected[0] and others == [expected[1]] * 2
    del rows


def test_cuda_is_the_current_device_of_pytorch(pack, pytorch, monkeypatch):
    pytorch.device = 1
    monkeypatch.setenv("LOCAL_RANK", "0")
    with loader(pack, device="cuda") as batches:
        assert next(iter(batches)).images.device == 1


@pytest.mark.parametrize(("rank", "index"), [("1", 1), ("7", 0), (None, 0)])
def test_without_pytorch_cuda_is_the_device_of_the_local_rank(pack, monkeypatch, rank, index):
    if rank is None:
        monkeypatch.delenv("LOCAL_RANK", raising=False)
    else:
        monkeypatch.setenv("LOCAL_RANK", rank)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with loader(pack, device="cuda", output="dlpack") as batches:
            assert next(iter(batches)).images.__dlpack_device__() == (2, index)


def test_processes_that_all_take_the_first_device_are_warned(pack, pytorch, monkeypatch):
    with pytest.warns(UserWarning, match="rank is 1, and this process delivers to cuda:0, one of the 2 dev") as seen:
        loader(pack, rank=1, world_size=2).close()
    assert seen[0].filename == __file__
    monkeypatch.setenv("LOCAL_RANK", "3")
    with pytest.warns(UserWarning, match="LOCAL_RANK is 3"):
        loader(pack, device="cuda").close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader(pack, device="cuda:1").close()
        monkeypatch.setenv("LOCAL_RANK", "0")
        loader(pack, rank=1, world_size=2).close()
        # One device for each process, as CUDA_VISIBLE_DEVICES makes it.
        monkeypatch.setenv("LOCAL_RANK", "1")
        gpu.setting("devices", 1)
        loader(pack).close()


def test_a_loader_can_be_pickled_closed_and_opened_again(pack):
    with loader(pack) as batches:
        copy = pickle.loads(pickle.dumps(batches))
        iterator = iter(batches)
        first, _ = next(iterator), next(iterator)
        state = batches.state_dict()
    with pytest.raises(ddlp.UsageError, match="closed"):
        next(iter(batches))
    assert contents(first, gpu.Tensor.values) == of_host(pack)[0], "a batch outlives its loader"
    batches.load_state_dict(state)
    assert next(iter(batches)).index == 2
    batches.close()
    with copy:
        assert [contents(batch, gpu.Tensor.values) for batch in copy] == of_host(pack)


def test_phases_have_runs_of_their_own_on_the_device(pack):
    options = {"pipeline": {0: SIZE, 1: ddlp.imagenet_train(20)}, "epochs": 2}
    with loader(pack, **options) as batches:
        sizes = [[tuple(batch.images.shape[2:]) for batch in batches] for _ in range(2)]
    assert sizes == [[(33, 33)] * 4, [(20, 20)] * 4]


def test_a_forked_process_is_told(pack):
    with loader(pack) as unused, loader(pack) as used, loader(pack, output="dlpack") as exported:
        batch, array = next(iter(used)), next(iter(exported)).images
        taken = gpu.Taken(next(iter(exported)).labels)

        def child():
            for attempt in (
                lambda: next(iter(used)),
                lambda: next(iter(unused)),
                lambda: loader(pack),
                lambda: array.__dlpack__(),
            ):
                with pytest.raises(ddlp.UsageError, match="forked") as raised:
                    attempt()
                assert "\n" not in str(raised.value)
            # The stand-in counts calls in children, and the parent checks that there were none.
            taken.delete()

        process = os.fork()
        if process == 0:
            status = 1
            try:
                signal.alarm(60)
                child()
                status = 0
            except BaseException as error:
                print(f"in the child: {error!r}", file=sys.stderr, flush=True)
            finally:
                os._exit(status)
        assert os.waitpid(process, 0)[1] == 0
        taken.delete()
    del batch


def test_headspace_is_refused(pack):
    with loader(pack) as batches, pytest.raises(ddlp.ConfigurationError, match="without `device`"):
        batches.headspace(lambda batch: None)


@pytest.mark.parametrize("output", ["torch", "dlpack"])
def test_nothing_grows_over_epochs(pack, output):
    image = 3 * 33 * 33
    table, pair, batch_bytes = 3 * 256 * 4, 16 * image + 256, 16 * (image * 4 + 8) + 512
    with loader(pack, output=output, epochs=50) as batches:
        buffers = batches._options["buffers"]
        for _ in range(50):
            for batch in batches:
                if output == "dlpack":
                    gpu.Taken(batch.images).delete()
                del batch
            live = gpu.statistics().live()
            # As many batches as pairs may wait for the stream.
            assert live["live_bytes"] <= table + buffers * (pair + 512) + (buffers + 1) * batch_bytes
            assert live["live_pinned_bytes"] <= buffers * (pair + 4096)
            assert live["live_events"] <= 3 * (buffers + 1)
    # The tests' fixture checks that nothing is left.


# -- DLPack -----------------------------------------------------------------------------------------------------------


def exported(pack, **options):
    with loader(pack, output="dlpack", **options) as batches:
        return list(batches)


@pytest.mark.parametrize("stream", [None, 1, 2, -1, "own"])
def test_arrays_are_finished_on_the_stream_that_dlpack_names(pack, stream):
    expected = of_host(pack, dtype="float16")
    handle = gpu.new_stream() if stream == "own" else stream
    with loader(pack, output="dlpack", dtype="float16") as batches:
        for batch, (_, (images, labels)) in zip(batches, expected, strict=True):
            assert batch.images.__dlpack_device__() == batch.labels.__dlpack_device__() == (2, 0)
            taken = [gpu.Taken(array, handle) for array in batch]
            assert all(one.device == (2, 0) and one.address % 256 == 0 for one in taken)
            if stream == -1:
                # The consumer synchronises with the default stream.
                gpu.read(0, 0, 1)
            assert [one.values().tobytes() for one in taken] == [images[2], labels[2]]
            for one in taken:
                one.delete()
    if stream == "own":
        gpu.destroy(handle)


def test_streams_wait_for_the_one_that_finished_the_batch(pack):
    expected = of_host(pack, dtype="float32")
    for seed in range(20):
        gpu.setting("seed", seed)
        streams = [gpu.new_stream() for _ in range(2)]
        with loader(pack, output="dlpack") as batches:
            for batch, (_, (images, labels)) in zip(batches, expected, strict=True):
                of_labels = gpu.Taken(batch.labels, streams[0])
                of_images = gpu.Taken(batch.images, streams[1])
                again = gpu.Taken(batch.images)
                assert again.address == of_images.address, "the same memory"
                assert of_images.values().tobytes() == again.values().tobytes() == images[2], f"seed {seed}"
                assert of_labels.values().tobytes() == labels[2]
                for taken in (of_labels, of_images, again):
                    taken.delete()
        for stream in streams:
            gpu.destroy(stream)


def test_memory_is_used_again_after_the_default_stream(pack):
    addresses = set()
    with loader(pack, output="dlpack", epochs=3, batch_size=10, buffers=3) as batches:
        for _ in range(3):
            for batch in batches:
                taken = gpu.Taken(batch.images)
                addresses.add(taken.address)
                del batch
                taken.delete()
    # As many batches as the loader has buffers may wait for the stream.
    assert len(addresses) <= 4, "of 18 batches"


def test_memory_is_not_used_again_too_early(pack):
    """Work that a consumer has queued on the default stream reads a batch after its arrays are gone."""
    expected = [arrays[0][2] for _, arrays in of_host(pack, epochs=4)]
    for seed in range(5):
        gpu.setting("seed", seed)
        own, copies = gpu.new_stream(), []
        with loader(pack, output="dlpack", epochs=4) as batches:
            for batch in (batch for _ in range(4) for batch in batches):
                # The other stream does not wait for the default stream.
                taken = gpu.Taken(batch.images, None if len(copies) % 2 == 0 else own)
                copies.append(taken.copied())
                del batch
                taken.delete()
        assert [copy.values().tobytes() for copy in copies] == expected, f"seed {seed}"
        del copies
        gpu.destroy(own)


def test_what_dlpack_cannot_do_is_refused(pack):
    batch = exported(pack)[0]
    for options, part in [
        ({"stream": 0}, "stream is 0, but must be a whole number: -1, 1"),
        ({"stream": -2}, "stream is -2"),
        ({"stream": "fast"}, "stream is 'fast'"),
        ({"dl_device": (1, 0)}, "the array lies on the GPU cuda:0"),
        ({"dl_device": (2, 1)}, "the array lies on the GPU cuda:0"),
        ({"copy": True}, "makes no copies"),
    ]:
        with pytest.raises(BufferError, match=part):
            batch.images.__dlpack__(max_version=(1, 0), **options)
    for view in (memoryview, numpy.asarray, numpy.from_dlpack):
        with pytest.raises((BufferError, RuntimeError, ValueError), match="GPU|device"):
            view(batch.images)
    # An array that was refused is still there. A capsule that nobody takes over gives its memory back.
    assert "dltensor" in repr(batch.images.__dlpack__())
    assert "dltensor_versioned" in repr(batch.images.__dlpack__(max_version=(1, 0), dl_device=(2, 0), copy=False))


def test_a_stream_that_records_a_graph_is_refused(pack, pytorch):
    stream = gpu.new_stream()
    batch = exported(pack)[0]
    with loader(pack) as batches:
        iteration = iter(batches)
        # Some work of the loader's threads goes on meanwhile, and must not end the capture.
        with gpu.Context(0):
            gpu.call("cuStreamBeginCapture_v2", ctypes.c_uint64(stream), 2)
        pytorch.streams[0] = stream
        with pytest.raises(BufferError, match="captured as a CUDA graph"):
            batch.images.__dlpack__(stream=stream)
        with pytest.raises(ddlp.UsageError, match="captured as a CUDA graph"):
            next(iteration)
        with gpu.Context(0):
            graph = ctypes.c_uint64()
            gpu.call("cuStreamEndCapture", ctypes.c_uint64(stream), ctypes.byref(graph))
        assert next(iteration).index == 0, "the batch was still due"
        pytorch.streams[0] = 0
    gpu.destroy(stream)


def test_the_memory_may_be_given_back_on_any_thread_after_everything_else(pack):
    taken = [gpu.Taken(batch.images) for batch in exported(pack)]
    gc.collect()
    expected = of_host(pack)
    assert [one.values().tobytes() for one in taken] == [arrays[0][2] for _, arrays in expected]
    threads = [threading.Thread(target=one.delete) for one in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# -- What can be missing ----------------------------------------------------------------------------------------------

PROGRAM = """
import sys
import ddlp
sys.path.insert(0, {tests!r})
def attempt(**options):
    batches = ddlp.Loader({pack!r}, batch_size=8, pipeline=ddlp.imagenet_train(33), output="dlpack", epochs=1,
                          **{{"device": "cuda:0", **options}})
    for batch in batches:
        capsule = batch.images.__dlpack__()
    return "no error"
try:
    {body}
except BaseException as error:
    print(type(error).__module__ + "." + type(error).__qualname__, error, sep="|")
"""


def run(pack, body="print(attempt())", **settings):
    """Runs a program in a process of its own, on a stand-in with these settings. Returns what it printed, and its
    exit status."""
    environment = {**os.environ, **{f"FAKE_CUDA_{key.upper()}": str(value) for key, value in settings.items()}}
    program = PROGRAM.format(tests=os.path.dirname(__file__), pack=str(pack), body=body)
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=300)
    assert ended.returncode == 0 and ended.stderr == "", ended.stderr
    return ended.stdout.strip()


@pytest.mark.parametrize(
    ("settings", "error", "part"),
    [
        ({"devices": 0}, "DeviceError", "the CUDA driver finds no device: `nvidia-smi`"),
        ({"init": 100}, "DeviceError", "the CUDA driver finds no device"),
        ({"init": 34}, "DeviceError", "libcuda.so.1 is the CUDA toolkit's stub"),
        ({"init": 803}, "DeviceError", "the CUDA driver failed in cuInit: "),
        ({"driver": 11080}, "DeviceError", "the CUDA driver supports CUDA 11.8, but 12.0 is needed"),
        ({"registration": "false"}, "DeviceError", "cannot register this process's memory"),
        ({"memory": 100_000}, "OutOfMemoryError", "smaller batches or fewer buffers"),
        ({"call": "cuMemAlloc_v2:9:2"}, "OutOfMemoryError", "a finished batch"),
        ({"lost": "9:700"}, "DeviceError", "the CUDA context of cuda:0 .* is lost.*ILLEGAL_ADDRESS"),
        ({"call": "cuMemcpyHtoDAsync_v2:3:719"}, "DeviceError", "is lost.*719"),
        ({"call": "cuLaunchKernel:2:702"}, "DeviceError", "is lost.*702"),
        ({"call": "cuLaunchKernel:2:4242"}, "DeviceError", "failed in cuLaunchKernel: an unknown error .4242."),
    ],
    ids=str,
)
def test_each_way_in_which_a_gpu_can_be_missing_has_its_sentence(pack, settings, error, part):
    kind, _, message = run(pack, **settings).partition("|")
    assert kind == f"ddlp.{error}", message
    assert re.search(part, message) and "\n" not in message, message


def test_a_device_that_is_not_there_is_named(pack):
    with pytest.raises(ddlp.DeviceError, match="there is no device cuda:7: this process sees 2"):
        loader(pack, device="cuda:7")


def test_a_machine_without_a_driver(pack, tmp_path):
    alone = {"LD_LIBRARY_PATH": str(tmp_path)}
    looks = [sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"]
    if subprocess.run(looks, env={**os.environ, **alone}, stderr=subprocess.DEVNULL).returncode == 0:
        pytest.skip("this machine has a driver")
    program = PROGRAM.format(tests="", pack=str(pack), body="print(attempt())")
    ended = subprocess.run([sys.executable, "-c", program], env={**os.environ, **alone}, text=True, capture_output=True)
    kind, _, message = ended.stdout.strip().partition("|")
    assert kind == "ddlp.DeviceError" and ended.stderr == ""
    assert message.startswith("there is no CUDA driver on this machine") and "\n" not in message


def test_builds_of_pytorch_without_cuda_are_told_apart(pack, pytorch):
    pytorch.version.hip = "6.0"
    with pytest.raises(ddlp.DeviceError, match="PyTorch 2.0 is built for ROCm"):
        loader(pack)
    pytorch.version = SimpleNamespace(cuda=None, hip=None)

    def without_cuda():
        raise AssertionError("Torch not compiled with CUDA enabled")

    pytorch.cuda.current_device = without_cuda
    for device in ("cuda", "cuda:0"):
        with pytest.raises(ddlp.DeviceError, match="PyTorch 2.0 is built for the CPU alone: install a wheel"):
            loader(pack, device=device)
    pytorch.version.cuda = "12.8"
    with pytest.raises(ddlp.DeviceError, match="PyTorch cannot use CUDA: Torch not"):
        loader(pack, device="cuda")
    pytorch.cuda._is_in_bad_fork = lambda: True
    for device in ("cuda", "cuda:0"):
        with pytest.raises(ddlp.UsageError, match="'spawn'"):
            loader(pack, device=device)


def test_memory_of_pytorch_that_is_exhausted_loses_no_batch(pack, pytorch):
    def exhausted(*_, **__):
        raise RuntimeError("CUDA out of memory")

    with loader(pack) as batches:
        iteration, pytorch.empty = iter(batches), exhausted
        with pytest.raises(RuntimeError, match="out of memory"):
            next(iteration)
        del pytorch.empty
        assert next(iteration).index == 0


def test_a_driver_that_has_shut_down_is_no_error_at_exit(pack):
    body = f"""
    import gpu
    batches = ddlp.Loader({str(pack)!r}, batch_size=8, output="dlpack", device="cuda:0")
    taken = [gpu.Taken(array) for array in next(iter(batches))]
    kept = next(iter(batches))
    gpu.DRIVER.fakeCudaShutDown()
    for one in taken:
        one.delete()
    print(len(taken))
    """
    assert run(pack, body=body.strip()) == "2"


def test_labels_are_mixed_on_the_device(pack):
    with loader(pack, mixup=1.0) as batches:
        labels = next(iter(batches)).labels
        assert labels.dtype == "float32" and labels.shape == (16, CLASSES)
        del labels
