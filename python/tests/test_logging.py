"""The log: Python's `logging`, and RUST_LOG."""

import logging
import os
import re
import subprocess
import sys
import threading
import time

import ddlp
from ddlp import _command, _ddlp

# Loses its drive in the middle of an epoch, and closes. A handler of `logging` may ask the loader for anything.
LOSES = """
import logging, os, signal, sys, ddlp
from pathlib import Path

class Asks(logging.Handler):
    def emit(self, record):
        said.append((record.name, record.levelname, record.getMessage(), loader.stats()["faults"]))

said = []
logging.getLogger("ddlp").addHandler(Asks())
loader = ddlp.Loader(sys.argv[1], batch_size=4, output="numpy", drives=ddlp.LocalDrive(throttle=0.05), strategy="csd")
tasks = Path("/proc/self/task").iterdir()
children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
for batch in loader:
    if batch.index == 1:
        os.kill(children[0], signal.SIGKILL)
loader.close()
while not said:
    pass
print(said[0])
"""


def test_faults_are_warnings_of_the_logger(pack):
    said = subprocess.run([sys.executable, "-c", LOSES, pack], capture_output=True, text=True, timeout=120, check=True)
    assert "('ddlp.host.recorder', 'WARNING', " in said.stdout and "prong=" in said.stdout, said


# The lines that an agent writes to standard error are records of the log.
TALKS = """#!/bin/sh
seq 1 3000 >&2
exec {agent} "$@"
"""


def test_records_that_no_handler_takes_are_counted_and_said_once(pack, tmp_path):
    talks = tmp_path / "talks"
    talks.write_text(TALKS.format(agent=_command.agent()))
    talks.chmod(0o755)
    goes_on, said = threading.Event(), []

    class Waits(logging.Handler):
        def emit(self, record):
            goes_on.wait(60)
            said.append(record.getMessage())

    log, waits = logging.getLogger("ddlp"), Waits()
    log.addHandler(waits)
    log.setLevel(logging.INFO)
    try:
        ddlp.Loader(pack, output="numpy", drives=ddlp.LocalDrive(agent=str(talks))).close()
        goes_on.set()
        _ddlp.flush_log()
        until = time.monotonic() + 60
        while not any("dropped" in message for message in said) and time.monotonic() < until:
            time.sleep(0.01)
    finally:
        goes_on.set()
        log.removeHandler(waits)
        log.setLevel(logging.NOTSET)
    counted = [re.match(r"(\d+) records of the log were dropped", message) for message in said]
    (dropped,) = (int(count[1]) for count in counted if count)
    # The agent's own lines count as well.
    logged = sum(message.isdigit() for message in said)
    assert logged < 3000 <= logged + dropped


def test_the_level_of_the_logger_and_rust_log_choose_what_is_logged(pack, caplog):
    with caplog.at_level(logging.DEBUG, "ddlp"):
        ddlp.Loader(pack, output="numpy", drives="local").close()
        until = time.monotonic() + 60
        while "agent started" not in caplog.text and time.monotonic() < until:
            time.sleep(0.01)
    assert "agent started" in caplog.text
    program = "import sys, ddlp; ddlp.Loader(sys.argv[1], output='numpy', drives='local').close()"
    for level, expected in [("ddlp_host=debug", True), ("off", False)]:
        run = [sys.executable, "-c", program, pack]
        said = subprocess.run(run, stderr=subprocess.PIPE, text=True, env={**os.environ, "RUST_LOG": level}).stderr
        assert ("agent started" in said) == expected, said
