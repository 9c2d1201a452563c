"""Figures for Prometheus and for `ddlp top`."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

import ddlp
from conftest import SAMPLES, ddlp_command

ROOT = Path(__file__).resolve().parents[2]
# Figures of sensors, which not every machine has, and of stores, which test_redis.py has.
ELSEWHERE = ("ddlp_agent_temperature", "ddlp_agent_power", "ddlp_agent_energy", "ddlp_store_")


@pytest.fixture
def address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def figures(address):
    """Returns the figures by name and labels."""
    with urllib.request.urlopen(f"http://{address}/metrics") as page:
        lines = page.read().decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_figures_are_served_as_long_as_the_loader_is_open(pack, address):
    with ddlp.Loader(pack, batch_size=16, output="numpy", metrics=address) as loader:
        for _ in loader:
            pass
        found = figures(address)
        assert float(found["ddlp_run_images_total"]) == float(found['ddlp_prong_images_total{prong="cpu"}']) == SAMPLES
        assert float(found["ddlp_run_epoch"]) == 1
        # Another run of the same loader takes the address over.
        loader.set_epoch(5)
        next(iter(loader))
        found = figures(address)
        assert float(found["ddlp_run_epoch"]) == 5 and float(found["ddlp_run_epoch_delivered"]) == 1
    with pytest.raises(OSError):
        figures(address)


def test_a_run_that_ended_goes_on_at_the_same_address(pack, address):
    with ddlp.Loader(pack, batch_size=16, output="numpy", metrics=address, epochs=1) as loader:
        for again in range(3):
            loader.set_epoch(0)
            assert [batch.index for batch in loader] == [0, 1, 2, 3]
            assert float(figures(address)["ddlp_run_images_total"]) == SAMPLES, again


def test_a_run_that_failed_goes_on_at_the_same_address(photos, address):
    image = next(photos.rglob("*.jpg")).read_bytes()

    class Samples:
        fails = True

        def __len__(self):
            return 30

        def __getitem__(self, index):
            if index == 17 and self.fails:
                raise RuntimeError("the network is down")
            return image, 0

    samples = Samples()
    with ddlp.Loader(samples, batch_size=10, output="numpy", metrics=address, shuffle=False) as loader:
        with pytest.raises(ddlp.UnavailableError):
            list(loader)
        samples.fails = False
        loader.load_state_dict(loader.state_dict())
        assert [batch.index for batch in loader] == [1, 2]


def test_an_address_that_is_taken_is_named(pack, address):
    with ddlp.Loader(pack, output="numpy", metrics=address):
        with pytest.raises(ddlp.ConfigurationError, match=address):
            ddlp.Loader(pack, output="numpy", metrics=address)


def seen(*options):
    """Returns what `ddlp top` shows."""
    return json.loads(ddlp_command("top", "--once", "--json", *options))


def page_of(path):
    """Returns the page with the figures that a program serves at a socket."""
    with socket.socket(socket.AF_UNIX) as own:
        own.connect(str(path))
        own.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        return own.makefile().read()


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """The folder of the programs that `ddlp top` finds."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "ddlp"


def test_top_shows_a_loader_and_its_local_drive(pack, own_folder):
    with ddlp.Loader(pack, batch_size=16, output="numpy", drives="local", strategy="csd") as loader:
        for _ in loader:
            pass
        shown = seen()
        (run,), (agent,) = shown["loaders"], shown["agents"]
        assert run["process"] == os.getpid() and "pytest" in run["command"] and run["images"] == SAMPLES
        assert [(prong["name"], prong["is_up"]) for prong in run["prongs"]] == [("cpu", True), ("csd", True)]
        assert run["images_per_s"] == 0 and not run["is_stalled"], "nobody asks for a batch"
        assert (run["epoch"], run["epoch_batches"]) == (1, 4)
        assert "ddlp-device" in agent["command"] and agent["samples"] >= SAMPLES
        text = ddlp_command("top", "--once")
        assert f"loader {os.getpid()} " in text and f"agent {agent['process']} " in text and "\x1b" not in text
    assert list(own_folder.iterdir()) == []
    assert seen() == {"loaders": [], "agents": [], "silent": []}


def test_top_shows_batches_that_wait_for_the_program(pack, own_folder):
    with ddlp.Loader(pack, batch_size=8, output="numpy", buffers=4) as loader:
        kept = next(iter(loader))
        until, places = time.monotonic() + 60, None
        while places != (0, 3) and time.monotonic() < until:
            (run,) = seen()["loaders"]
            places = run["free_buffers"], run["ready_batches"]
        assert (places, kept.index) == ((0, 3), 0)


def test_every_figure_that_a_document_names_is_served(pack, own_folder):
    """The figures of sensors and of the kernel are there only on machines that have them."""
    documented = set()
    for document in ("docs/grafana.json", "docs/metrics.md"):
        documented |= set(re.findall(r"\bddlp_[a-z0-9_]+", (ROOT / document).read_text()))
    with ddlp.Loader(pack, batch_size=16, output="numpy", drives="local", strategy="csd") as loader:
        for _ in loader:
            pass
        pages = [page_of(socket) for socket in own_folder.iterdir()]
    assert len(pages) == 2
    served = set(re.findall(r"\bddlp_[a-z0-9_]+", "".join(pages)))
    lacking = {name for name in documented if name not in served and not name.startswith(ELSEWHERE)}
    assert not lacking


def test_top_shows_what_serves_its_figures_at_an_address(pack, own_folder, address):
    with ddlp.Loader(pack, batch_size=16, output="numpy", metrics=address) as loader:
        next(iter(loader))
        for socket_of_loader in own_folder.iterdir():
            socket_of_loader.unlink()
        (run,) = seen("--metrics", address)["loaders"]
        assert (run["address"], run["process"], run["images"]) == (address, None, 16)
    (silent,) = seen("--metrics", address)["silent"]
    assert silent["address"] == address and "refused" in silent["why"]


# A loader that waits for a drive at a fraction of its speed: no batch comes for minutes.
WAITS = """
import sys, ddlp
drive = ddlp.LocalDrive(throttle=0.001, threads=1)
options = {"output": "numpy", "strategy": "csd", "drives": drive, "drive_timeout_s": 3600}
next(iter(ddlp.Loader(sys.argv[1], batch_size=60, **options)))
"""


def test_top_shows_a_stall_and_forgets_programs_that_were_killed(pack, own_folder):
    program = subprocess.Popen([sys.executable, "-c", WAITS, pack])
    try:
        shown = seen()
        while program.poll() is None and not any(run["is_stalled"] for run in shown["loaders"]):
            shown = seen()
        (run,), (agent,) = shown["loaders"], shown["agents"]
        assert run["free_buffers"] > 0 and run["ready_batches"] == 0
        assert run["waits"] == 1 and [prong["in_work"] > 0 for prong in run["prongs"]] == [False, True]
        assert "\ufffd" not in run["command"] and "import sys, ddlp drive" in run["command"]
    finally:
        program.kill()
        program.wait()
    until = time.monotonic() + 60
    while Path(f"/proc/{agent['process']}").exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert seen() == {"loaders": [], "agents": [], "silent": []}
    assert list(own_folder.iterdir()) == []
