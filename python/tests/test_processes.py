"""Loaders and processes: signals, forks, pickles, threads, memory."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

import ddlp
from conftest import digests, wait_until
from ddlp import _ddlp

# A drive at a fraction of its speed, with a timeout of an hour: the program waits for minutes.
WAITS = """
import sys, ddlp
drive = ddlp.LocalDrive(throttle=0.001, threads=1)
options = {"output": "numpy", "strategy": "csd", "drives": drive, "drive_timeout_s": 3600}
loader = ddlp.Loader(sys.argv[1], batch_size=60, **options)
try:
    print("waits", flush=True)
    next(iter(loader))
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
"""


def drives_of(process):
    """Returns the local drives that a process has started."""
    tasks = Path(f"/proc/{process}/task")
    children = [child for task in tasks.iterdir() for child in (task / "children").read_text().split()]
    return [int(child) for child in children if b"ddlp-device" in Path(f"/proc/{child}/cmdline").read_bytes()]


def is_alive(process):
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_program_that_waits_ends_with_its_drive(pack, number):
    program = subprocess.Popen([sys.executable, "-c", WAITS, pack], stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout.readline() == "waits\n"
        drives = drives_of(program.pid)
        assert len(drives) == 1
        program.send_signal(number)
        # The drive's batch would take many minutes.
        said, _ = program.communicate(timeout=60)
    finally:
        program.kill()
    assert said == ("interrupted\n" if number == signal.SIGINT else "")
    assert program.returncode == -number
    wait_until(lambda: not is_alive(drives[0]))


def test_a_program_that_opens_an_endless_folder_can_be_interrupted():
    # The folders below /proc form cycles of links, so listing them takes minutes.
    program = "import ddlp; print('opens', flush=True); ddlp.Loader('/proc', output='numpy')"
    opening = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert opening.stdout.readline() == b"opens\n"
        time.sleep(0.5)
        opening.send_signal(signal.SIGINT)
        _, said = opening.communicate(timeout=60)
    finally:
        opening.kill()
    assert opening.returncode == -signal.SIGINT and said.endswith(b"KeyboardInterrupt\n"), said


def test_an_interrupted_iteration_can_go_on(pack):
    drive = ddlp.LocalDrive(throttle=0.02, threads=1)
    with ddlp.Loader(pack, batch_size=8, output="numpy", strategy="csd", drives=drive) as loader:
        iteration = iter(loader)

        def interrupt():
            while not loader.stats()["batches_delivered"]:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            for _ in iteration:
                pass
        # The interrupt may have come between a delivery and the body of the loop.
        delivered = loader.state_dict()["delivered"]
        assert len(delivered) < 8
        assert delivered + [batch.index for batch in iteration] == list(range(8))


def loader(pack, **options):
    return ddlp.Loader(pack, **{"batch_size": 8, "output": "numpy", "dtype": "uint8", "layout": "NHWC", **options})


def test_a_fork_of_a_program_with_a_running_loader_is_told(pack):
    batches = loader(pack, drives="local")
    iteration = iter(batches)
    next(iteration)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        for use in [lambda: next(iteration), lambda: iter(batches), lambda: batches.state_dict()]:
            try:
                use()
            except ddlp.UsageError as error:
                said.append("spawn" in str(error))
        del iteration, batches
        gc.collect()
        os.write(writer, repr(said).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == "[True, True, True]"
    assert os.waitpid(child, 0)[1] == 0
    assert [batch.index for batch in iteration] == list(range(1, 8)), "the fork did the loader no harm"


def unordered(batches):
    return digests(batches).unordered


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_loader_that_has_not_begun_works_in_another_process(pack, method):
    batches = loader(pack, drives="local")
    with ProcessPoolExecutor(1, mp_context=get_context(method)) as processes:
        assert processes.submit(unordered, batches).result(60) == unordered(batches)


def test_a_pickled_loader_finds_its_dataset_from_another_folder(pack, tmp_path, monkeypatch):
    monkeypatch.chdir(pack.parent)
    with loader(pack.name) as batches:
        pickled = pickle.dumps(batches)
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickled).close()


def test_a_loader_is_pickled_with_its_position_before_it_has_begun(pack):
    begun = loader(pack)
    iteration = iter(begun)
    next(iteration)
    with pytest.raises(ddlp.UsageError, match="state_dict"):
        pickle.dumps(begun)
    resumed = loader(pack)
    resumed.load_state_dict(begun.state_dict())
    copy = pickle.loads(pickle.dumps(resumed))
    assert [batch.index for batch in copy] == [batch.index for batch in resumed] == list(range(1, 8))


def test_two_loaders_run_in_two_threads(pack):
    found = {}

    def run(seed):
        found[seed] = digests(loader(pack, seed=seed, strategy="ordered", drives="local")).ordered

    threads = [threading.Thread(target=run, args=[seed]) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {seed: digests(loader(pack, seed=seed)).ordered for seed in range(2)}


def test_threads_share_an_iteration(pack):
    iteration, indices = iter(loader(pack)), []

    def take():
        for batch in iteration:
            indices.append(batch.index)

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(indices) == list(range(8))


def counted_meanwhile(work):
    """Returns how far another thread counted in milliseconds while this one worked, and how many passed."""
    counts, is_over = [0], threading.Event()

    def count():
        while not is_over.wait(0.001):
            counts[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    begun = time.monotonic()
    work()
    passed = time.monotonic() - begun
    counted = counts[0]
    is_over.set()
    thread.join()
    return counted, passed * 1000


def test_other_threads_go_on_while_rust_works(photos, pack, tmp_path):
    drive = ddlp.LocalDrive(throttle=0.01, threads=1)
    slow = loader(pack, strategy="csd", drives=drive, batch_size=30)
    iteration = iter(slow)
    works = [lambda: next(iteration), slow.close, lambda: ddlp.pack(str(photos), tmp_path / "out.ddlp", progress=False)]
    for number, work in enumerate(works):
        counted, passed = counted_meanwhile(work)
        # A busy machine counts more slowly. With the lock held, the other thread would count once.
        assert counted > passed / 100 or passed < 300, (number, counted, passed)


def test_another_thread_sees_the_progress_and_can_close(pack):
    drive = ddlp.LocalDrive(throttle=0.001, threads=1)
    batches = loader(pack, strategy="csd", drives=drive)
    ended = []

    def wait():
        try:
            for batch in batches:
                ended.append(batch.index)
            ended.append("as if the epoch were over")
        except ddlp.UsageError as error:
            ended.append("closed" if "closed" in str(error) else str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    # The drive begins when the thread asks for a batch.
    wait_until(lambda: batches.stats()["prongs"][1]["in_work"])
    # None of these calls waits until the thread has its batch.
    assert batches.state_dict()["delivered"] == [] and batches.report()["images"] == 0
    batches.close()
    thread.join(60)
    assert not thread.is_alive() and ended == ["closed"]


# A handler that saves the position and closes the loader, while the program waits for the first batch of a slow drive.
HANDLER = """
import os, signal, sys, threading, time, ddlp
drive = ddlp.LocalDrive(throttle=0.001, threads=1)
options = {"output": "numpy", "strategy": "csd", "drives": drive, "drive_timeout_s": 3600}
loader = ddlp.Loader(sys.argv[1], batch_size=60, **options)
iteration = iter(loader)

def save(*_):
    print(loader.state_dict()["delivered"], loader.report()["images"], flush=True)
    try:
        next(iteration)
    except ddlp.UsageError as error:
        print("handler" in str(error), flush=True)
    loader.close()

def interrupt():
    # The drive has work once the program waits for its batch.
    while not loader.stats()["prongs"][1]["in_work"]:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGALRM)

signal.signal(signal.SIGALRM, save)
threading.Thread(target=interrupt, daemon=True).start()
try:
    next(iteration)
except ddlp.UsageError as error:
    print("closed" in str(error), loader.report()["images"], flush=True)
"""


def test_a_handler_of_a_signal_can_save_the_position_and_close(pack):
    program = [sys.executable, "-c", HANDLER, pack]
    said = subprocess.run(program, check=True, text=True, stdout=subprocess.PIPE, timeout=60).stdout
    assert said.splitlines() == ["[] 0", "True", "True 0"]


def test_a_loader_that_is_no_longer_used_ends_its_drive_at_once(pack):
    gc.disable()
    try:
        batches = loader(pack, drives="local")
        next(iter(batches))
        assert len(drives_of(os.getpid())) == 1
        del batches
        assert not drives_of(os.getpid())
    finally:
        gc.enable()


def test_a_loader_keeps_its_drive_when_its_position_changes(pack):
    with loader(pack, drives="local", strategy="csd") as batches:
        drive, images = drives_of(os.getpid()), 0
        assert len(drive) == 1
        for position in range(4):
            if position == 2:
                batches.set_epoch(7)
            if position == 3:
                batches.load_state_dict(batches.state_dict())
            for batch in batches:
                images += len(batch.images)
                if batch.index == 2:
                    break
            del batch
            assert drives_of(os.getpid()) == drive
        figures = batches.report()
        assert figures["images"] == batches.stats()["images"] == images, "the figures go on"
        # A busy machine makes any drive slow.
        assert {fault["kind"] for fault in figures["faults"]} <= {"slow"}
        assert [prong["images"] for prong in figures["prongs"]] == [0, images]
        assert [epoch["epoch"] for epoch in figures["epochs"]] == [0, 1, 7, 7]
    assert not drives_of(os.getpid())


class Photos:
    """A dataset that holds its loader, and the loader's iteration."""

    def __init__(self, folder):
        self.files = [(path, 0) for path in sorted(folder.rglob("*.jpg"))]
        self.loader = loader(self, batch_size=20)
        self.iteration = iter(self.loader)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path, label = self.files[index]
        return path.read_bytes(), label


def test_a_dataset_that_holds_its_loader_is_garbage_with_it(photos):
    def use():
        dataset = Photos(photos)
        next(dataset.iteration)
        return weakref.ref(dataset)

    dataset, until = use(), time.monotonic() + 60
    # The object is not garbage while a thread of the loader calls it.
    while dataset() is not None and time.monotonic() < until:
        gc.collect()
    assert dataset() is None


class Sleeping:
    """A dataset whose second half comes late until `wakes` is set."""

    def __init__(self, photos):
        self.image = next(photos.rglob("*.jpg")).read_bytes()
        self.wakes, self.sleeps = threading.Event(), threading.Event()

    def __len__(self):
        return 40

    def __getitem__(self, index):
        if index >= 20 and not self.wakes.is_set():
            self.sleeps.set()
            self.wakes.wait(20)
        return self.image, 0


@pytest.mark.parametrize("ends", [lambda batches: batches.close(), lambda batches: batches.set_epoch(5)])
def test_an_interrupt_is_seen_while_threads_of_a_run_end(photos, ends):
    samples = Sleeping(photos)
    batches = loader(samples, batch_size=4, threads=1, shuffle=False, pipeline=ddlp.imagenet_train(32))
    iteration = iter(batches)
    assert [next(iteration).index for _ in range(4)] == [0, 1, 2, 3]
    assert samples.sleeps.wait(20)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            ends(batches)
        assert time.monotonic() - begun < 10
        # Nor does what comes next wait without looking.
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises((KeyboardInterrupt, ddlp.UsageError)):
            next(iter(batches))
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert time.monotonic() - begun < 15
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        samples.wakes.set()
        signal.signal(signal.SIGALRM, before)
    batches.load_state_dict({**batches.state_dict(), "epoch": 7, "delivered": []})
    assert [(batch.epoch, batch.index) for batch in batches] == [(7, index) for index in range(10)]
    batches.close()


def test_a_loader_that_is_closed_while_it_moves_stays_closed(pack):
    batches = loader(pack, drives="local")
    run = batches._run

    class Closes:
        """A run during whose move another thread closes the loader."""

        is_forked = False

        def __getattr__(self, name):
            return getattr(run, name)

        def go_to(self, state):
            batches.close()
            return run.go_to(state)

    state = batches.state_dict()
    for move in [lambda: batches.set_epoch(5), lambda: batches.load_state_dict({**state, "epoch": 3})]:
        batches._run = Closes()
        move()
        assert not drives_of(os.getpid())
        with pytest.raises(ddlp.UsageError, match="closed"):
            iter(batches)
        batches.load_state_dict(state)
        assert drives_of(os.getpid())
        run = batches._run
    batches.close()


def test_a_fork_drops_batches_and_logs_while_threads_of_its_parent_do(pack):
    batches = loader(pack, strategy="cpu", threads=2)
    kept = [next(iter(batches))]
    for _ in range(20):
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            kept.clear()
            gc.collect()
            _ddlp.flush_log()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    assert next(iter(batches)).index == 0


def resident_memory():
    """Returns the memory of this process in kB: what it has allocated, and what it shares with drives."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def thread_count():
    return len(list(Path("/proc/self/task").iterdir()))


def test_loaders_leave_no_memory_behind(pack):
    def build_and_drop(count):
        for number in range(count):
            drive = {"drives": "local", "strategy": "csd", "dtype": "uint8"} if number % 20 == 1 else {}
            batches = loader(pack, threads=1, **drive)
            if number % 2:
                next(iter(batches))
        del batches
        gc.collect()
        return resident_memory()

    before = build_and_drop(60)
    threads = thread_count()
    assert build_and_drop(200) < before * 1.05
    assert not drives_of(os.getpid())
    assert thread_count() <= threads
