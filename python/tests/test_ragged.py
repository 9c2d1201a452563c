"""Images of different sizes in one batch: on canvases, and as ragged batches."""

import numpy
import pytest

import ddlp
from conftest import SAMPLES

PIPELINE = ddlp.Pipeline(
    [ddlp.Resize(64, max_size=100), ddlp.RandomHorizontalFlip(), ddlp.PadTo(96, fill=(255, 0, 255))]
)


def loader(dataset, **options):
    defaults = {"batch_size": 8, "output": "numpy", "dtype": "uint8", "layout": "NHWC", "pipeline": PIPELINE}
    return ddlp.Loader(dataset, **{**defaults, **options})


@pytest.mark.parametrize("drives", [None, "local"])
def test_a_ragged_batch_has_views_of_each_image_in_its_own_size(pack, drives):
    canvases = {}
    for batch in loader(pack):
        assert batch.images.shape[1:] == (96, 96, 3)
        for sample, size, canvas in zip(batch.sample_ids, batch.sizes, batch.images, strict=True):
            canvases[sample] = size, canvas.copy()
    seen = set()
    with loader(pack, ragged=True, drives=drives) as batches:
        for images, labels in batches:
            assert isinstance(images, list) and len(images) == len(labels)
        for batch in loader(pack, ragged=True, drives=drives):
            for sample, size, image in zip(batch.sample_ids, batch.sizes, batch.images, strict=True):
                assert (size, image.shape) == (canvases[sample][0], (*size, 3))
                assert max(size) == 96 or min(size) == 64
                assert numpy.array_equal(image, canvases[sample][1][: size[0], : size[1]])
                rest = canvases[sample][1].copy()
                rest[: size[0], : size[1]] = (255, 0, 255)
                assert (rest == (255, 0, 255)).all()
                assert image.base is not None and numpy.shares_memory(image, image.base)
                seen.add(sample)
    assert seen == set(range(SAMPLES)) and len({size for size, _ in canvases.values()}) > 3


def test_floats_and_planes_are_cut_too(pack):
    options = {"ragged": True, "dtype": "float32", "layout": "NCHW"}
    plain = {}
    for batch in loader(pack):
        plain.update(zip(batch.sample_ids, batch.images.copy(), strict=True))
    for batch in loader(pack, **options):
        for sample, (height, width), image in zip(batch.sample_ids, batch.sizes, batch.images, strict=True):
            assert image.shape == (3, height, width) and image.dtype == numpy.float32
            expected = plain[sample][:height, :width].transpose(2, 0, 1) / numpy.float32(255)
            assert numpy.allclose(image, expected, atol=1e-6)


def test_named_batches_have_the_field_size(pack):
    batch = next(iter(loader(pack, names=("image", "label"))))
    assert batch["size"].tolist() == [list(size) for size in batch.sizes]
    assert next(iter(loader(pack, pipeline="imagenet-val"))).sizes is None


def test_sizes_may_be_numbers_of_numpy(pack):
    assert ddlp.PadTo(numpy.int64(70)).size == 70
    pipeline = ddlp.Pipeline([ddlp.Resize(numpy.int64(64)), ddlp.PadTo(numpy.int64(70))])
    assert next(iter(loader(pack, pipeline=pipeline))).images.shape[1:] == (70, 70, 3)


def test_pytorch_gets_views(pack):
    pytest.importorskip("torch")
    for batch in loader(pack, output="torch", ragged=True, layout="NCHW", dtype="float32"):
        assert [tuple(image.shape) for image in batch.images] == [(3, *size) for size in batch.sizes]


def test_what_ragged_needs_is_said(pack):
    with pytest.raises(ddlp.ConfigurationError, match="ends with PadTo"):
        loader(pack, pipeline="imagenet-val", ragged=True)
    with pytest.raises(ddlp.ConfigurationError, match="choose another one"):
        loader(pack, names=("size", "label"))
    with pytest.raises(ddlp.ConfigurationError, match="ddlp.Array cannot"):
        loader(pack, output="dlpack", ragged=True)
    with pytest.raises(ddlp.ConfigurationError, match="PadTo"):
        iter(loader(pack, mixup=0.2, classes=10))
