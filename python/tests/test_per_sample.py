"""The option `per_sample`: a function of the program changes the image of each sample."""

import threading

import numpy
import pytest

import ddlp
from conftest import SAMPLES, digests


def loader(pack, **options):
    return ddlp.Loader(pack, **{"batch_size": 16, "output": "numpy", "dtype": "uint8", "layout": "NHWC", **options})


def noisy(image, seed):
    """Adds noise that the seed gives."""
    return image + numpy.random.default_rng(seed).integers(0, 9, image.shape, numpy.uint8)


def inverted(image, seed):
    image[...] = 255 - image
    return image


def test_the_function_gets_each_image_and_a_seed(pack):
    seeds, threads = set(), set()

    def checked(image, seed):
        assert image.shape == (224, 224, 3) and image.dtype == numpy.uint8 and image.flags.writeable
        seeds.add(seed)
        threads.add(threading.get_ident())
        return 255 - image

    plain, changed = loader(pack), loader(pack, per_sample=checked, epochs=1)
    for before, after in zip(plain, changed, strict=True):
        assert numpy.array_equal(255 - before.images, after.images)
    assert len(seeds) == SAMPLES and threading.get_ident() not in threads
    assert digests(loader(pack, per_sample=inverted)).ordered == digests(loader(pack, per_sample=checked)).ordered


def test_floats_are_normalised_after_the_function(pack):
    options = {"dtype": "float32", "layout": "NCHW", "normalize": ddlp.IMAGENET}
    mean, std = (numpy.array(values).reshape(3, 1, 1) for values in ddlp.IMAGENET)
    with loader(pack, per_sample=inverted) as pixels, loader(pack, per_sample=inverted, **options) as floats:
        images, values = next(iter(pixels)).images, next(iter(floats)).images
    exact = (images.transpose(0, 3, 1, 2) / 255 - mean) / std
    assert numpy.array_equal(values, exact.astype(numpy.float32))


def test_a_function_that_draws_from_its_seed_gives_the_same_images_in_every_run(pack):
    once = digests(loader(pack, per_sample=noisy, threads=1)).ordered
    assert once == digests(loader(pack, per_sample=noisy, threads=3)).ordered != digests(loader(pack)).ordered
    resumed = loader(pack, per_sample=noisy)
    iteration = iter(batches := loader(pack, per_sample=noisy))
    next(iteration)
    resumed.load_state_dict(batches.state_dict())
    assert digests(resumed).ordered == digests(iteration).ordered


@pytest.mark.parametrize(
    ("function", "part"),
    [
        (lambda image, seed: None, "returned None, but must return an image"),
        (lambda image, seed: image[:100], r"uint8 of shape \(100, 224, 3\), but must return uint8 of shape \(224, 224"),
        (lambda image, seed: image / 255, "returned float64"),
        (lambda image: image, "takes 1 positional argument"),
        (lambda image, seed: [][seed], "list index out of range"),
    ],
)
def test_a_function_that_fails_ends_the_run_with_its_exception(pack, function, part):
    with loader(pack, per_sample=function) as batches:
        with pytest.raises(ddlp.PerSampleError, match=part) as raised:
            list(batches)
        assert isinstance(raised.value.__cause__, TypeError | IndexError)
        assert "sample class_" in str(raised.value) or ".jpg" in str(raised.value)


def test_what_cannot_go_with_the_function_is_named(pack):
    with pytest.raises(ddlp.ConfigurationError, match="`per_sample`.*leave `drives` out"):
        loader(pack, per_sample=inverted, drives="local")
    with pytest.raises(ddlp.ConfigurationError, match="must be a function of an image and a seed"):
        loader(pack, per_sample=3)


def test_a_function_that_holds_its_loader_is_collected(pack):
    import gc
    import weakref

    class Holder:
        def __call__(self, image, seed):
            return image

    holder = Holder()
    holder.loader = loader(pack, per_sample=holder)
    next(iter(holder.loader))
    holder.loader.close()
    seen = weakref.ref(holder)
    del holder
    gc.collect()
    assert seen() is None
