"""Buckets: batches of images of different sizes."""

import os
import subprocess
import sys
import time

import numpy
import pytest

import ddlp
from conftest import SAMPLES, ddlp_command, digests

SIZES = [(48, 64), (64, 48), (56, 56)]


def recipe(height, width):
    return ddlp.Pipeline([ddlp.RandomResizedCrop((height, width)), ddlp.RandomHorizontalFlip()])


PIPELINES = [recipe(*size) for size in SIZES]


def loader(dataset, **options):
    defaults = {"batch_size": 8, "output": "numpy", "dtype": "uint8", "layout": "NHWC", "pipeline": PIPELINES}
    return ddlp.Loader(dataset, **{**defaults, **options})


def rows(batches):
    """Returns the image of each sample."""
    return {
        sample: image.copy() for batch in batches for sample, image in zip(batch.sample_ids, batch.images, strict=True)
    }


@pytest.mark.parametrize("drives", [None, "local"])
def test_each_batch_has_images_of_one_size(pack, drives):
    with loader(pack, drives=drives) as batches:
        assert len(batches) == sum(1 for _ in batches)
        found = rows(batches)
    assert len(found) == SAMPLES
    assert len({image.shape for image in found.values()}) > 1
    alone = [loader(pack, pipeline=pipeline) for pipeline in PIPELINES]
    for batches in alone:
        batches.set_epoch(1)
    alone = [rows(batches) for batches in alone]
    for sample, image in found.items():
        assert numpy.array_equal(image, alone[SIZES.index(image.shape[:2])][sample])


def test_buckets_are_those_of_the_command(pack, tmp_path):
    files = []
    for number, (height, width) in enumerate(SIZES):
        path = tmp_path / f"{number}.toml"
        path.write_text(
            f"operations = [{{ random_resized_crop = {{ size = [{height}, {width}] }} }}, "
            "{ random_horizontal_flip = { p = 0.5 } }]"
        )
        files.append(path)
    flags = [word for path in files for word in ("--pipeline", path)]
    said = ddlp_command("run", pack, "--batch", 8, "--quiet", "--digest", "--drive", "none", *flags)
    told = dict(line.split(" ") for line in said.splitlines() if "digest" in line)
    found = digests(loader(pack, pipeline=files))
    assert (found.unordered, found.ordered) == (told["digest"], told["ordered_digest"])


def test_a_state_resumes_in_the_middle(pack):
    whole = [batch.sample_ids for batch in loader(pack)]
    begun = loader(pack)
    iteration = iter(begun)
    for _ in range(3):
        next(iteration)
    resumed = loader(pack)
    resumed.load_state_dict(begun.state_dict())
    assert [batch.sample_ids for batch in resumed] == whole[3:]
    with pytest.raises(ddlp.ConfigurationError, match="pipeline|batches"):
        loader(pack, pipeline=PIPELINES[0]).load_state_dict(begun.state_dict())


def test_buckets_may_change_from_epoch_to_epoch(pack):
    growing = {0: "imagenet-val", 1: PIPELINES, 2: PIPELINES[:2]}
    with loader(pack, pipeline=growing, epochs=3) as batches:
        shapes = [{batch.images.shape[1:3] for batch in batches} for _ in range(3)]
    assert shapes[0] == {(224, 224)} and shapes[1] <= set(SIZES) and shapes[2] <= set(SIZES[:2])
    first = loader(pack, pipeline=growing)
    digests(first)
    resumed = loader(pack, pipeline=growing)
    resumed.load_state_dict(first.state_dict())
    assert next(iter(resumed)).images.shape[1:3] in SIZES


class Items:
    """Samples in this order, which come late if they `sleep`."""

    def __init__(self, photos, order, sleep=0):
        files = sorted(photos.rglob("*.jpg"))
        self.items = [(files[number].read_bytes(), 0) for number in order]
        self.sleep, self.asked = sleep, 0

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        self.asked += 1
        time.sleep(self.sleep)
        return self.items[index]


def test_a_state_is_of_the_same_sizes(photos):
    numbers = list(range(SAMPLES))
    begun = loader(Items(photos, numbers))
    next(iter(begun))
    same = loader(Items(photos, numbers))
    same.load_state_dict(begun.state_dict())
    other = loader(Items(photos, [0, *reversed(numbers[1:])]))
    with pytest.raises(ddlp.ConfigurationError, match="sizes|batches"):
        other.load_state_dict(begun.state_dict())


INTERRUPTED = """
import signal, sys, time
from pathlib import Path
import ddlp
sys.path.insert(0, {tests!r})
from test_buckets import Items, PIPELINES
signal.signal(signal.SIGALRM, signal.default_int_handler)
items = Items(Path({photos!r}), [0] * 2000, sleep=0.05)
signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    ddlp.Loader(items, pipeline=PIPELINES, batch_size=8, output="numpy")
except KeyboardInterrupt:
    time.sleep(0.3)
    asked = items.asked
    time.sleep(0.3)
    print(items.asked - asked)
"""


def test_an_interrupt_ends_the_reading_of_sizes(photos):
    program = INTERRUPTED.format(tests=os.path.dirname(__file__), photos=str(photos))
    ended = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, timeout=60)
    assert (ended.returncode, ended.stdout.strip()) == (0, "0"), ended.stderr


def test_wrong_buckets_are_explained(pack):
    with pytest.raises(ddlp.ConfigurationError, match="empty list"):
        loader(pack, pipeline=[])
    with pytest.raises(TypeError, match=r"ddlp\.Pipeline\(\["):
        loader(pack, pipeline=[ddlp.RandomHorizontalFlip()])
    with pytest.raises(ddlp.ConfigurationError, match="33 pipelines"):
        iter(loader(pack, pipeline=PIPELINES * 11))
    with pytest.raises(ddlp.ConfigurationError, match="cannot be used with a mix"):
        iter(loader(ddlp.Mix([pack, pack])))
