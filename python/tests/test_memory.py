"""Arrays are views of the loader's own memory: nothing is copied, and no buffer is used twice at a time."""

import gc
import importlib.util
import os
import zlib

import numpy
import pytest

import ddlp
from conftest import digests

TORCH = pytest.param("torch", marks=pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="needs PyTorch"))


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def loader(pack, **options):
    return ddlp.Loader(pack, **{"batch_size": 8, "output": "numpy", **options})


def address(images):
    return images.__array_interface__["data"][0]


def test_views_of_both_protocols_see_the_same_memory(pack):
    with loader(pack, output="dlpack") as batches:
        array = next(iter(batches)).images
    assert array.shape == (8, 3, 224, 224) and array.dtype == "float32" and array.writable and len(array) == 8
    by_buffer, by_dlpack = numpy.asarray(array), numpy.from_dlpack(array)
    assert address(by_buffer) == address(by_dlpack)
    assert memoryview(array).format == "f" and memoryview(array).shape == array.shape
    by_buffer[7, 2, 223, 223] = 18.0
    assert by_dlpack[7, 2, 223, 223] == 18.0


def test_tensors_see_the_same_memory(pack, torch):
    with loader(pack, output="dlpack") as batches:
        array = next(iter(batches)).images
    by_buffer, tensor = numpy.asarray(array), torch.from_dlpack(array)
    assert address(by_buffer) == tensor.data_ptr()
    tensor[0, 0, 0, 0] = 17.0
    assert by_buffer[0, 0, 0, 0] == 17.0
    by_buffer[7, 2, 223, 223] = 18.0
    assert tensor[7, 2, 223, 223] == 18.0


def test_tensors_are_the_default(pack, torch):
    with ddlp.Loader(pack, batch_size=8) as batches:
        images, labels = next(iter(batches))
    assert images.dtype == torch.float32 and images.shape == (8, 3, 224, 224) and images.is_contiguous()
    assert labels.dtype == torch.int64 and labels.shape == (8,)
    with loader(pack) as batches:
        assert numpy.array_equal(next(iter(batches)).images, images.numpy())


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_strided_views_agree(pack, layout):
    with loader(pack, output="dlpack", dtype="uint8", layout=layout) as batches:
        array = next(iter(batches)).images
    assert numpy.array_equal(numpy.asarray(array), numpy.from_dlpack(array))
    if layout == "NCHW":
        with pytest.raises(BufferError, match="order"):
            zlib.crc32(array)


def test_dlpack_of_both_versions(pack):
    with loader(pack, output="dlpack") as batches:
        array = next(iter(batches)).labels
    assert array.__dlpack_device__() == (1, 0)
    assert 'capsule object "dltensor"' in repr(array.__dlpack__())
    assert 'capsule object "dltensor_versioned"' in repr(array.__dlpack__(max_version=(1, 0)))
    for refused in [{"stream": 1}, {"dl_device": (2, 0)}, {"copy": True}]:
        with pytest.raises(BufferError):
            array.__dlpack__(**refused)


def test_bfloat16_comes_by_dlpack(pack, torch):
    with loader(pack, output="torch", dtype="bfloat16", normalize=ddlp.IMAGENET) as batches:
        rounded = next(iter(batches)).images
    with loader(pack, output="torch", normalize=ddlp.IMAGENET) as batches:
        single = next(iter(batches)).images
    assert rounded.dtype == torch.bfloat16
    assert torch.allclose(rounded.float(), single, rtol=2**-8, atol=0)


def test_numpy_has_no_bfloat16(pack):
    with pytest.raises(ddlp.ConfigurationError, match="bfloat16"):
        loader(pack, dtype="bfloat16")
    with loader(pack, dtype="bfloat16", output="dlpack") as batches:
        images = next(iter(batches)).images
    for view in (memoryview, numpy.asarray, numpy.array):
        with pytest.raises(BufferError, match="bfloat16"):
            view(images)


@pytest.mark.parametrize("output", [TORCH, "numpy"])
@pytest.mark.parametrize("strategy", ["cpu", "csd", "ordered"])
def test_writing_to_a_batch_changes_no_other_batch(pack, output, strategy):
    options = {"output": output, "dtype": "uint8", "layout": "NHWC", "drives": "local", "strategy": strategy}
    expected = digests(loader(pack, **{**options, "drives": None, "strategy": "cpu"})).unordered

    def overwritten():
        with loader(pack, epochs=2, **options) as batches:
            for epoch in range(2):
                for batch in batches:
                    if epoch == 0:
                        batch.images[...] = 255
                        assert (batch.images == 255).all()
                    yield epoch, batch

    # The second epoch has other random crops: compare it with the second epoch of an undisturbed loader.
    again = digests(batch for epoch, batch in overwritten() if epoch == 1).unordered
    undisturbed = loader(pack, **{**options, "drives": None, "strategy": "cpu"})
    undisturbed.set_epoch(1)
    assert again == digests(undisturbed).unordered != expected


def test_batches_of_a_drive_lie_in_the_memory_that_it_shares(pack):
    def mapping_of(place):
        """Returns the line of the mapping in which an address of this process lies."""
        with open("/proc/self/maps") as mappings:
            for line in mappings:
                first, end = (int(number, 16) for number in line.split()[0].split("-"))
                if first <= place < end:
                    return line
        return ""

    with loader(pack, dtype="uint8", layout="NHWC", drives="local", strategy="csd") as batches:
        assert all("/memfd:" in mapping_of(address(batch.images)) for batch in batches)
    with loader(pack, dtype="uint8", layout="NHWC") as batches:
        assert not any("/memfd:" in mapping_of(address(batch.images)) for batch in batches)


def test_a_buffer_returns_when_the_last_view_is_gone(pack):
    with loader(pack, output="numpy", strategy="cpu", buffers=2, threads=1) as batches:
        iteration = iter(batches)
        kept = next(iteration).images[0, 0]
        copy = kept.copy()
        places = {address(next(iteration).images) for _ in range(4)}
        assert len(places) == 1, "one of two buffers is kept, so all other batches come in the other one"
        assert numpy.array_equal(kept, copy)
        kept_at = address(kept)
        del kept
        gc.collect()
        places |= {address(next(iteration).images) for _ in range(2)}
        assert kept_at in places


def test_batches_outlive_their_loader(pack):
    batches = loader(pack, output="numpy", drives="local", dtype="uint8", strategy="csd")
    batch = next(iter(batches))
    copy = batch.images.copy()
    batches.close()
    del batches
    gc.collect()
    assert numpy.array_equal(batch.images, copy)
    batch.images[...] = 0


def resident_mb():
    """Returns the memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def test_a_closed_loader_keeps_its_figures_and_no_memory(pack):
    before = resident_mb()
    batches = loader(pack, batch_size=60, buffers=8, epochs=20)
    kept = [batch.images for _ in range(8) for batch in batches]
    buffer_mb = kept[0].nbytes / 1e6
    first = kept[0].copy()
    del kept[1:]
    # Buffers that are not in use stay with the loader as long as it is open.
    assert resident_mb() - before > 8 * buffer_mb
    figures = batches.stats()
    batches.close()
    assert resident_mb() - before < 4 * buffer_mb
    assert numpy.array_equal(kept[0], first)
    assert batches.report()["images"] == batches.stats()["images"] == figures["images"] == 480
    assert batches.epoch == 8 and batches.samples == 60
    kept.clear()
    assert resident_mb() - before < 3 * buffer_mb


@pytest.fixture
def impatient(monkeypatch):
    """Waits briefly for daemon threads of libraries, which never let go of a batch."""
    monkeypatch.setattr("ddlp._threads._PATIENCE_WITH_DAEMONS_S", 1.0)


@pytest.mark.usefixtures("impatient")
def test_keeping_all_batches_is_an_error_that_names_buffers(pack):
    with pytest.raises(ddlp.UsageError, match="buffers"):
        list(loader(pack, buffers=3))
    assert len(list(loader(pack, buffers=12))) == 8, "with enough buffers all batches can be kept"


@pytest.mark.usefixtures("impatient")
def test_a_consumer_that_kept_all_batches_can_go_on(pack):
    with loader(pack, buffers=3) as batches:
        iteration = iter(batches)
        kept = [next(iteration) for _ in range(3)]
        with pytest.raises(ddlp.UsageError, match="buffers"):
            next(iteration)
        kept.clear()
        assert [batch.index for batch in iteration] == [3, 4, 5, 6, 7]
