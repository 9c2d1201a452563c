"""Batches in JAX, which takes them over by DLPack."""

import re
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import ddlp

jax = pytest.importorskip("jax")

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def test_jax_sees_the_loaders_memory(pack):
    with ddlp.Loader(pack, batch_size=8, output="dlpack") as batches:
        array = next(iter(batches)).images
    taken = jax.dlpack.from_dlpack(array)
    assert taken.unsafe_buffer_pointer() == numpy.asarray(array).__array_interface__["data"][0]
    assert taken.shape == array.shape and str(taken.dtype) == array.dtype


def test_the_example_learns(tmp_path):
    draw = numpy.random.default_rng(0)
    labels = draw.integers(0, 10, 640, dtype=numpy.uint8)
    colours = draw.integers(0, 255, (10, 3, 1), dtype=numpy.uint8)[labels].repeat(1024, 2)
    numpy.concatenate([labels[:, None], colours.reshape(640, 3072)], axis=1).tofile(tmp_path / "data_batch_1.bin")
    command = [sys.executable, EXAMPLES / "cifar_jax.py", tmp_path]
    said = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", said)]
    assert len(losses) == 5 and losses[-1] < losses[0] / 2, said
