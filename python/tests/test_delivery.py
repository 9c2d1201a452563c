"""The moment at which a batch counts as delivered, and what a batch is afterwards."""

import copy
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest

import ddlp
from ddlp import _threads


def loader(pack, **options):
    return ddlp.Loader(pack, **{"batch_size": 8, "output": "numpy", "dtype": "uint8", "layout": "NHWC", **options})


@pytest.mark.parametrize("failure", [MemoryError, KeyboardInterrupt])
def test_a_batch_that_python_did_not_get_is_still_due(pack, failure):
    batches = loader(pack)
    iteration, maker = iter(batches), batches._maker

    def failing(_):
        raise failure

    for index in range(8):
        delivered = batches.state_dict()
        assert (delivered["epoch"], delivered["delivered"]) == (0, list(range(index)))
        batches._maker = maker._replace(output=failing)
        with pytest.raises(failure):
            next(iteration)
        assert batches.state_dict() == delivered, "a state taken now has the batch before it"
        batches._maker = maker
        assert next(iteration).index == index
    assert batches.state_dict()["epoch"] == 1 and next(iteration, None) is None


def test_a_batch_that_python_did_not_get_is_lost_to_no_resumed_loader(pack):
    batches = loader(pack)
    iteration = iter(batches)
    for _ in range(7):
        next(iteration)
    batches._maker = batches._maker._replace(output=None)
    with pytest.raises(TypeError):
        next(iteration)
    resumed = loader(pack)
    resumed.load_state_dict(batches.state_dict())
    assert [(batch.epoch, batch.index) for batch in resumed] == [(0, 7)]


# Opens a loader whose drive takes the connection and never answers.
OPENS = """
import sys, ddlp
print("opens", flush=True)
try:
    ddlp.Loader(sys.argv[1], output="numpy", drives=sys.argv[2])
except KeyboardInterrupt:
    print("interrupted", flush=True)
except ddlp.DriveError:
    print("too late", flush=True)
"""


def test_a_loader_that_waits_for_a_drive_while_it_opens_can_be_interrupted(pack):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}/nqn.2024-01.org.example:silent"
        command = [sys.executable, "-c", OPENS, pack, address]
        program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert program.stdout.readline() == "opens\n"
            connection, _ = listener.accept()
            program.send_signal(signal.SIGINT)
            said, _ = program.communicate(timeout=60)
            connection.close()
        finally:
            program.kill()
    assert said == "interrupted\n"


def test_a_batch_keeps_its_place_when_its_images_are_replaced(pack):
    with loader(pack) as batches:
        batch = next(iter(batches))
    replaced = batch._replace(images=None)
    assert replaced.images is None and replaced.labels is batch.labels
    for other in [replaced, copy.copy(batch), pickle.loads(pickle.dumps(batch))]:
        assert (other.epoch, other.index, other.prong, other.sample_ids) == (0, 0, 0, batch.sample_ids)
    made = type(batch)(*batch)
    assert made.images is batch.images and made.epoch is made.sample_ids is None


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_batch_of_length_0_is_a_tensor(tmp_path, dtype):
    torch = pytest.importorskip("torch")
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "corrupt.jpg").write_bytes(b"no image")
    with ddlp.Loader(tmp_path, batch_size=1, policy="skip", max_corrupt=1, dtype=dtype) as batches:
        empty = next((images + images, labels) for images, labels in batches)
    assert empty[0].shape == (0, 3, 224, 224) and empty[0].dtype == getattr(torch, dtype)
    assert empty[1].shape == (0,) and empty[1].dtype == torch.int64


def test_samples_come_in_the_order_of_the_dataset_without_shuffle(pack):
    with loader(pack, shuffle=False, epochs=2) as batches:
        for _ in range(2):
            assert [sample for batch in batches for sample in batch.sample_ids] == list(range(60))
        state = batches.state_dict()
    with loader(pack) as shuffled, pytest.raises(ddlp.ConfigurationError, match="shuffle false"):
        shuffled.load_state_dict(state)


def test_batches_with_names_are_dicts(pack):
    with loader(pack) as pairs, loader(pack, names=("pixels", "target")) as dicts:
        for pair, named in zip(pairs, dicts, strict=True):
            assert list(named) == ["pixels", "target"] and isinstance(named, dict)
            assert numpy.array_equal(named["pixels"], pair.images) and numpy.array_equal(named["target"], pair.labels)
            assert (named.epoch, named.index, named.sample_ids) == (pair.epoch, pair.index, pair.sample_ids)
    for names in [("one",), ("same", "same")]:
        with pytest.raises(ddlp.ConfigurationError, match="two names"):
            loader(pack, names=names)


def test_an_epoch_may_have_any_number_of_samples(pack):
    with loader(pack, epoch_samples=100) as batches:
        assert len(batches) == 13
        assert sum(len(batch.images) for batch in batches) == 100
        assert batches.epoch == 1


def test_a_loader_knows_its_classes(photos, pack):
    names = sorted(folder.name for folder in photos.iterdir())
    with loader(pack) as batches:
        assert batches.classes == names
        assert batches.class_to_idx == {name: label for label, name in enumerate(names)}


def test_a_thread_that_prefetches_waits_for_its_consumer(pack):
    batches, taken, kept = loader(pack, buffers=3), threading.Semaphore(0), []

    def prefetch():
        for batch in batches:
            kept.append(batch)
            taken.release()

    thread = threading.Thread(target=prefetch, daemon=True)
    thread.start()
    for _ in range(3):
        assert taken.acquire(timeout=60)
    # Longer than the program may wait if no other thread could let go of a batch.
    thread.join(3)
    assert thread.is_alive()
    indices = []
    for number in range(8):
        assert number < 3 or taken.acquire(timeout=60)
        indices.append(kept.pop(0).index)
    thread.join(60)
    assert indices == list(range(8)) and not thread.is_alive()


@pytest.mark.parametrize(("daemon", "limit"), [(True, "_PATIENCE_WITH_DAEMONS_S"), (False, "_PATIENCE_S")])
def test_other_threads_do_not_hide_that_a_program_keeps_all_batches(pack, monkeypatch, daemon, limit):
    monkeypatch.setattr(f"ddlp._threads.{limit}", 3.0)
    ends = threading.Event()
    threading.Thread(target=ends.wait, daemon=daemon).start()
    try:
        with pytest.raises(ddlp.UsageError, match="let go of none for [3-9] s.*buffers"):
            list(loader(pack, buffers=3))
    finally:
        ends.set()


def test_workers_without_work_do_not_hide_that_a_program_keeps_all_batches(pack, monkeypatch):
    # Libraries may have daemon threads.
    monkeypatch.setattr("ddlp._threads._PATIENCE_WITH_DAEMONS_S", 1.0)
    with ThreadPoolExecutor(2) as workers:
        workers.submit(len, "").result()
        with pytest.raises(ddlp.UsageError, match="buffers"):
            list(loader(pack, buffers=3))


def test_a_worker_that_has_work_may_let_go_of_batches():
    ends = threading.Event()
    with ThreadPoolExecutor(1) as workers:
        try:
            workers.submit(ends.wait)
            assert _threads.patience(False) == _threads._PATIENCE_S
        finally:
            ends.set()


def test_batches_that_only_garbage_keeps_come_back(pack):
    import gc

    gc.disable()
    try:
        indices = []
        for batch in loader(pack, buffers=3):
            cycle = [batch]
            cycle.append(cycle)
            indices.append(batch.index)
            del batch, cycle
        assert indices == list(range(8))
    finally:
        gc.enable()


@pytest.mark.parametrize("drives", [None, "local"])
def test_what_a_forked_process_writes_stays_there(pack, drives):
    strategy = "csd" if drives else "cpu"
    with loader(pack, drives=drives, strategy=strategy) as batches:
        iteration = iter(batches)
        batch = next(iteration)
        before = batch.images.copy()
        child = os.fork()
        if child == 0:
            has_read = numpy.array_equal(batch.images, before)
            batch.images[...] = 255
            os._exit(0 if has_read and (batch.images == 255).all() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert numpy.array_equal(batch.images, before)
        assert [batch.index for batch in iteration] == list(range(1, 8))
