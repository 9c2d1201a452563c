"""The examples for other libraries learn, on small files in the format of CIFAR-10."""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.fixture
def cifar(tmp_path):
    """Images whose colour is that of their class."""
    draw = numpy.random.default_rng(0)
    labels = draw.integers(0, 10, 640, dtype=numpy.uint8)
    colours = draw.integers(0, 255, (10, 3, 1), dtype=numpy.uint8)[labels].repeat(1024, 2)
    numpy.concatenate([labels[:, None], colours.reshape(640, 3072)], axis=1).tofile(tmp_path / "data_batch_1.bin")
    return tmp_path


@pytest.mark.parametrize(
    ("example", "library"),
    [
        ("numpy", "numpy"),
        ("jax", "jax"),
        ("lightning", "lightning"),
        ("accelerate", "accelerate"),
        ("trainer", "transformers"),
    ],
)
def test_the_example_learns(cifar, example, library):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"cifar_{example}.py needs {library}")
    check_that_it_learns(example, cifar)


def check_that_it_learns(example, cifar, **options):
    command = [sys.executable, EXAMPLES / f"cifar_{example}.py", cifar, "--epochs", "5"]
    said = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options).stdout
    losses = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", said)]
    assert len(losses) == 5 and losses[-1] < losses[0] / 2, said
    return said


def test_accelerate_starts_several_processes(cifar):
    pytest.importorskip("accelerate")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *launch, EXAMPLES / "cifar_accelerate.py", cifar]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true"}
    said = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, env=environment).stdout
    assert len(re.findall(r"epoch \d: loss .*, 2 processes", said)) == 2, said


def test_the_example_learns_in_the_workers_of_ray(cifar):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("cifar_ray.py needs ray")
    # Ray writes to the home directory. Its sockets need a short path, and `tmp_path` may be long.
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as home:
        own = {"HOME": home, "RAY_TMPDIR": home, "RAY_ADDRESS": "local", "RAY_USAGE_STATS_ENABLED": "0"}
        # Ray waits without end if it lacks a resource. On a busy machine, it takes minutes to start its processes.
        said = check_that_it_learns("ray", cifar, env={**os.environ, **own}, timeout=900)
    assert "each of 2 workers" in said
