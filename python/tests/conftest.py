"""What the tests share: a small dataset, and digests as `ddlp run --digest` prints them.

The tests run against an installed package: `scripts/python` builds one and runs them.
"""

import signal
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
