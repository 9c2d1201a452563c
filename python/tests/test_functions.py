"""`ddlp.Function`: a function of the program within a pipeline."""

import functools
import pickle
import threading

import numpy
import pytest

import ddlp
from conftest import SAMPLES, digests

BEFORE = (ddlp.RandomResizedCrop(64), ddlp.RandomHorizontalFlip())


def loader(pack, *functions, **options):
    pipeline = ddlp.Pipeline([*BEFORE, *functions])
    given = {"batch_size": 16, "output": "numpy", "dtype": "uint8", "layout": "NHWC", "pipeline": pipeline}
    return ddlp.Loader(pack, **{**given, **options})


def noisy(image, rng):
    return image + rng.integers(0, 9, image.shape, numpy.uint8)


def inverted(image):
    image[...] = 255 - image
    return image


def corner(image):
    return image[:20, :30]


def test_the_function_gets_each_image_as_the_operations_before_it_left_it(pack):
    seen, threads = [], set()

    def checked(image):
        assert image.shape == (64, 64, 3) and image.dtype == numpy.uint8 and image.flags.writeable
        seen.append(image)
        threads.add(threading.get_ident())
        return 255 - image

    plain, changed = loader(pack), loader(pack, ddlp.Function(checked), epochs=1)
    for before, after in zip(plain, changed, strict=True):
        assert numpy.array_equal(255 - before.images, after.images)
    assert len(seen) == SAMPLES and threading.get_ident() not in threads
    invert = digests(loader(pack, ddlp.RandomInvert(1.0))).ordered
    assert digests(loader(pack, ddlp.Function(inverted))).ordered == invert


def test_operations_may_follow_and_the_function_may_change_the_size(pack):
    whole = loader(pack)
    small = loader(pack, ddlp.Function(corner, output=(20, 30, 3)), ddlp.RandomInvert(1.0))
    for before, after in zip(whole, small, strict=True):
        assert numpy.array_equal(255 - before.images[:, :20, :30], after.images)
    first = ddlp.Pipeline(
        [
            ddlp.Function(lambda image: image[::2, ::2][:90, :80], (90, 80), "halved"),
            ddlp.Resize(32),
            ddlp.CenterCrop(32),
        ]
    )
    with loader(pack, pipeline=first) as batches:
        assert next(iter(batches)).images.shape[1:] == (32, 32, 3)


def test_floats_are_normalised_after_the_function(pack):
    options = {"dtype": "float32", "layout": "NCHW", "normalize": ddlp.IMAGENET}
    mean, std = (numpy.array(values).reshape(3, 1, 1) for values in ddlp.IMAGENET)
    function = ddlp.Function(inverted)
    with loader(pack, function) as pixels, loader(pack, function, **options) as floats:
        images, values = next(iter(pixels)).images, next(iter(floats)).images
    exact = (images.transpose(0, 3, 1, 2) / 255 - mean) / std
    assert numpy.array_equal(values, exact.astype(numpy.float32))


def test_a_function_that_draws_from_its_generator_gives_the_same_images_in_every_run(pack):
    function = ddlp.Function(noisy)
    once = digests(loader(pack, function, threads=1)).ordered
    assert once == digests(loader(pack, function, threads=3)).ordered != digests(loader(pack)).ordered
    resumed = loader(pack, function)
    iteration = iter(batches := loader(pack, function))
    next(iteration)
    resumed.load_state_dict(batches.state_dict())
    assert digests(resumed).ordered == digests(iteration).ordered


def test_ranks_have_the_images_of_a_run_alone_and_views_differ(pack):
    def by_id(**options):
        images = {}
        for batch in loader(pack, ddlp.Function(noisy), **options):
            images |= dict(zip(map(int, batch.sample_ids), (image.copy() for image in batch.images), strict=True))
        return images

    alone = by_id()
    ranks = [by_id(rank=rank, world_size=2) for rank in range(2)]
    assert sorted([*ranks[0], *ranks[1]]) == sorted(alone)
    assert all(numpy.array_equal(image, alone[at]) for one in ranks for at, image in one.items())
    still = ddlp.Pipeline([ddlp.Resize(64), ddlp.CenterCrop(64), ddlp.Function(noisy)])
    with loader(pack, pipeline=still, views=2, batch_size=8) as views:
        batch = next(iter(views))
    images = numpy.asarray(batch.images)
    assert not any(numpy.array_equal(one, other) for i, one in enumerate(images) for other in images[:i])


def test_functions_go_into_compose_lists_mixes_and_other_operations(pack, photos):
    torchvision = pytest.importorskip("torchvision")
    resized = torchvision.transforms.RandomResizedCrop(64)
    pipeline = ddlp.Compose([resized, ddlp.Function(inverted), torchvision.transforms.ToTensor()])
    plain = ddlp.Compose([resized, ddlp.RandomInvert(1.0)])
    same = [digests(loader(pack, pipeline=one)).ordered for one in (pipeline, plain)]
    assert same[0] == same[1]
    sometimes = ddlp.RandomApply([ddlp.Function(inverted)], 0.5)
    with loader(pack, sometimes) as some, loader(pack) as none:
        changed = sum(
            not numpy.array_equal(one, other)
            for with_it, without in zip(some, none, strict=True)
            for one, other in zip(with_it.images, without.images, strict=True)
        )
    assert 10 < changed < 50
    mix = ddlp.Mix([pack, photos], (0.5, 0.5))
    with loader(mix, ddlp.Function(inverted), epochs=1) as batches:
        assert sum(len(batch) for batch in batches) > 0


@pytest.mark.parametrize(
    ("function", "part"),
    [
        (lambda image: None, "returned None, but must return an image"),
        (lambda image: image[:10], r"uint8 of shape \(10, 64, 3\), but must return uint8 of shape \(64, 64, 3\)"),
        (lambda image: image / 255, "returned float64"),
        (lambda image: [][len(image)], "list index out of range"),
    ],
)
@pytest.mark.parametrize("policy", ["fail", "skip", "replace"])
def test_a_function_that_fails_ends_the_run_with_its_exception_whatever_the_policy(pack, function, part, policy):
    with loader(pack, ddlp.Function(function, name="mine"), policy=policy) as batches:
        with pytest.raises(ddlp.FunctionError, match=part) as raised:
            list(batches)
        assert isinstance(raised.value.__cause__, TypeError | IndexError)
        assert ".jpg" in str(raised.value) and "the function `mine` failed" in str(raised.value)


def test_a_state_knows_the_function_by_its_name(pack):
    with loader(pack, ddlp.Function(inverted)) as batches:
        next(iter(batches))
        state = batches.state_dict()
    with (
        loader(pack, ddlp.Function(noisy)) as other,
        pytest.raises(ddlp.ConfigurationError, match=r"test_functions\.(inverted|noisy)"),
    ):
        other.load_state_dict(state)
    with loader(pack, ddlp.Function(noisy, name="test_functions.inverted")) as renamed:
        renamed.load_state_dict(state)


def test_names_are_those_of_modules_and_functions():
    for function, name in (
        (inverted, "inverted"),
        (functools.partial(noisy, rng=None), "noisy"),
        (Callable(), "Callable"),
    ):
        assert list(ddlp.Pipeline([*BEFORE, ddlp.Function(function)]).functions) == [f"{__name__}.{name}"]
    with pytest.raises(ddlp.ConfigurationError, match=r"two functions .* have the name .*<lambda>"):
        ddlp.Pipeline([*BEFORE, ddlp.Function(lambda image: image), ddlp.Function(lambda image: 255 - image)])
    both = ddlp.Pipeline([*BEFORE, ddlp.Function(inverted), ddlp.Function(inverted)])
    assert list(both.functions) == [f"{__name__}.inverted"]
    assert pickle.loads(pickle.dumps(both)) == both


class Callable:
    def __call__(self, image):
        return image


def test_what_cannot_go_with_the_function_is_named(pack):
    with pytest.raises(ddlp.ConfigurationError, match=r"function `.*inverted`.*leave `drives` out"):
        loader(pack, ddlp.Function(inverted), drives="local")
    with pytest.raises(ddlp.ConfigurationError, match="needs a function of an image"):
        ddlp.Function(3)
    for output in (20, (20, 30, 1), (0, 20), "20"):
        with pytest.raises(ddlp.ConfigurationError, match="output"):
            ddlp.Function(inverted, output)
    described = ddlp.Pipeline([*BEFORE, ddlp.Function(inverted)]).to_dict()
    with pytest.raises(ddlp.ConfigurationError, match="inverted`, which this run does not have"):
        loader(pack, pipeline=ddlp.Pipeline.from_dict(described))
    with pytest.raises(TypeError, match=r"per_sample.*ddlp\.Function"):
        ddlp.Loader(pack, per_sample=inverted)


def test_a_function_that_holds_its_loader_is_collected(pack):
    import gc
    import weakref

    holder = Callable()
    holder.loader = loader(pack, ddlp.Function(holder))
    next(iter(holder.loader))
    holder.loader.close()
    seen = weakref.ref(holder)
    del holder
    gc.collect()
    assert seen() is None
