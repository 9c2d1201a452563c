"""Batches in JAX, which takes them over by DLPack."""

import numpy
import pytest

import ddlp

jax = pytest.importorskip("jax")


def test_jax_sees_the_loaders_memory(pack):
    with ddlp.Loader(pack, batch_size=8, output="dlpack") as batches:
        array = next(iter(batches)).images
    taken = jax.dlpack.from_dlpack(array)
    assert taken.unsafe_buffer_pointer() == numpy.asarray(array).__array_interface__["data"][0]
    assert taken.shape == array.shape and str(taken.dtype) == array.dtype
