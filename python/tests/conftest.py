"""What the tests share: a small dataset, servers, and digests as `ddlp run --digest` prints them.

The tests run against an installed package: `scripts/python` builds one and runs them.
"""

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import blake3
import numpy
import pytest

# A shell starts programs in the background with SIGINT ignored, and their children inherit that. The tests of Ctrl-C
# must not depend on how they were started.
signal.signal(signal.SIGINT, signal.default_int_handler)

SAMPLES = 60
CLASSES = 10


def wait_until(condition):
    """Waits until a condition is true, a minute at most."""
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "within a minute"
        time.sleep(0.01)


def ddlp_command(*arguments, **options):
    """Runs the command `ddlp` of the installed package and returns what it printed."""
    command = [str(Path(sys.executable).parent / "ddlp"), *map(str, arguments)]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options).stdout


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """A folder of photographs, one folder per class."""
    folder = tmp_path_factory.mktemp("data") / "photos"
    ddlp_command("sample-data", folder, "--images", SAMPLES)
    return folder


@pytest.fixture(scope="session")
def pack(photos):
    """The photographs as a pack."""
    path = photos.parent / "train.ddlp"
    ddlp_command("pack", photos, path)
    return path


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """The beginning of a dataset's URL in a Redis server."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("redis")
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
    wait_until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
    yield f"redis://127.0.0.1:{port}/0"
    process.kill()
    process.wait()


@pytest.fixture(scope="session")
def cassandra(tmp_path_factory):
    """The beginning of a dataset's URL in a node of Cassandra, whose keyspace `photos` is empty."""
    script = Path(__file__).resolve().parents[2] / "scripts/cassandra"
    fetched = subprocess.run([script, "--fetch"], stderr=subprocess.PIPE, text=True)
    if fetched.returncode == 3:
        pytest.skip(fetched.stderr.strip())
    assert fetched.returncode == 0, fetched.stderr
    with contextlib.ExitStack() as free:
        ports = [free.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(2)]
    folder = tmp_path_factory.mktemp("cassandra")
    log = folder / "log"
    options = ["--port", str(ports[0]), "--storage-port", str(ports[1])]
    with log.open("w") as output:
        process = subprocess.Popen([script, folder / "node", *options], stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: "Startup complete" in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        replication = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}"
        cql(ports[0], f"CREATE KEYSPACE photos WITH replication = {replication}")
        yield f"cql://127.0.0.1:{ports[0]}/photos"
    finally:
        process.kill()
        process.wait()


def cql(port, statement):
    """Executes a statement at a node of Cassandra on this machine."""
    with socket.create_connection(("127.0.0.1", port)) as node, node.makefile("rb") as answers:
        text = statement.encode()
        startup = b"\0\x01\0\x0bCQL_VERSION\0\x053.0.0"
        for opcode, body in [(1, startup), (7, len(text).to_bytes(4) + text + b"\0\x01\0")]:
            node.sendall(bytes([4, 0, 0, 0, opcode]) + len(body).to_bytes(4) + body)
            header = answers.read(9)
            answer = answers.read(int.from_bytes(header[5:]))
            assert header[4] != 0, answer


@pytest.fixture(scope="session")
def mixed_photos(photos):
    """The folder with an image that has to be repaired, and one that cannot be decoded."""
    folder = photos.parent / "mixed"
    shutil.copytree(photos, folder)
    first, second, *_ = sorted(folder.rglob("*.jpg"))
    # Bytes between two markers: it decodes with a warning.
    first.write_bytes(first.read_bytes().replace(b"\xff\xda", b"\0\0\0\xff\xda", 1))
    second.write_bytes(b"this is no image")
    return folder


class Digests:
    """The digests of `ddlp run --digest`, from what Python sees."""

    def __init__(self):
        self.sum = 0
        self.chain = blake3.blake3()
        self.samples = []

    def update(self, batch):
        """Adds a batch of uint8 images in NHWC."""
        images = numpy.ascontiguousarray(batch.images)
        assert images.dtype == numpy.uint8 and images.shape[3] == 3
        for sample_id, row in zip(batch.requested_ids, images, strict=True):
            hashed = blake3.blake3(sample_id.to_bytes(8, "little") + row.tobytes()).digest()
            self.sum = (self.sum + int.from_bytes(hashed[:16], "little")) % (1 << 128)
            self.chain.update(hashed)
            self.samples.append(sample_id)

    @property
    def unordered(self):
        return f"{self.sum:032x}"

    @property
    def ordered(self):
        return self.chain.hexdigest()


def digests(batches):
    """Returns the digests of batches."""
    digest = Digests()
    for batch in batches:
        digest.update(batch)
    return digest
