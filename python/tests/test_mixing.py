"""MixUp and CutMix on batches."""

import math
import pickle

import numpy
import pytest

import ddlp
from conftest import CLASSES, SAMPLES


def loader(dataset, **options):
    usual = {"batch_size": 16, "output": "numpy", "dtype": "float32", "layout": "NHWC", "epochs": 1}
    return ddlp.Loader(dataset, **{**usual, **options})


def batches(*arguments, **options):
    with loader(*arguments, buffers=40, **options) as all_of:
        return list(all_of)


def shares(labels, classes):
    """Returns the labels of a batch that is not mixed."""
    return numpy.eye(classes, dtype=numpy.float32)[labels]


@pytest.mark.parametrize("drives", [None, "local"])
def test_mixup_mixes_each_row_with_the_one_before(pack, drives):
    plain, mixed = batches(pack), batches(pack, drives=drives, mixup=1.0)
    assert len(mixed) == 4
    for before, after in zip(plain, mixed, strict=True):
        assert after.labels.dtype == numpy.float32 and after.labels.shape == (len(after.sample_ids), CLASSES)
        assert before.sample_ids == after.sample_ids
        own, other = shares(before.labels, CLASSES), numpy.roll(shares(before.labels, CLASSES), 1, 0)
        # A row that mixes two classes shows the weight.
        pairs = zip(after.labels, own.argmax(1), other.argmax(1), strict=True)
        weight = next(label[a] for label, a, b in pairs if a != b)
        rest = numpy.float32(1) - weight
        assert (after.labels == rest * other + weight * own).all()
        assert (after.images == rest * numpy.roll(before.images, 1, 0) + weight * before.images).all()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["uint8", "float16"])
def test_cutmix_takes_a_rectangle_of_the_row_before(pack, dtype, layout):
    options = {"dtype": dtype, "layout": layout}
    for before, after in zip(batches(pack, **options), batches(pack, cutmix=1.0, **options), strict=True):
        axes = (0, 1) if layout == "NCHW" else (0, 3)
        rolled = numpy.roll(before.images, 1, 0)
        of_other = (after.images != before.images).any(axis=axes)
        rows, columns = numpy.flatnonzero(of_other.any(1)), numpy.flatnonzero(of_other.any(0))
        place = (slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1))
        place = (slice(None), slice(None), *place) if layout == "NCHW" else (slice(None), *place)
        expected = before.images.copy()
        expected[place] = rolled[place]
        assert (after.images == expected).all()
        kept = 1 - len(rows) * len(columns) / (224 * 224)
        own, other = shares(before.labels, CLASSES), numpy.roll(shares(before.labels, CLASSES), 1, 0)
        assert numpy.allclose(after.labels, kept * own + (1 - kept) * other, atol=0.01)


def test_both_together_and_labels_of_more_classes(pack):
    found = batches(pack, mixup=0.2, cutmix=1.0, classes=1000, names=("x", "y"), fields={"n": numpy.arange(SAMPLES)})
    for batch in found:
        assert list(batch) == ["x", "y", "n"] and batch["y"].shape[1] == 1000
        assert numpy.allclose(batch["y"].sum(1), 1) and batch["n"].tolist() == batch.sample_ids


def test_a_share_of_the_batches_is_mixed(pack):
    found = batches(pack, mixup=1.0, mix_probability=0.5, batch_size=2, seed=1)
    mixed = [bool((batch.labels.max(1) < 1).any()) for batch in found]
    assert 0 < sum(mixed) < len(mixed)
    assert pickle.loads(pickle.dumps(loader(pack, cutmix=0.5)))._arguments["cutmix"] == 0.5


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mixup": -1}, "mixup.*must be a finite number of 0 or more"),
        ({"mixup": math.inf}, "mixup. is inf, but must be a finite number"),
        ({"mix_probability": math.nan}, "mix_probability. is nan, but must be a finite number"),
        ({"cutmix": "much"}, "cutmix.*must be a finite number of 0 or more"),
        ({"mix_probability": 2}, "mix_probability.*from 0 to 1"),
        ({"classes": 0}, "classes.*from 1 to"),
    ],
)
def test_wrong_options_are_refused(pack, options, message):
    with pytest.raises(ddlp.ConfigurationError, match=message):
        loader(pack, **options)


def test_classes_are_needed_and_must_be_enough(pack, photos):
    class Bytes:
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return next(photos.rglob("*.jpg")).read_bytes(), index

    with pytest.raises(ddlp.ConfigurationError, match="give their number .`classes`"):
        loader(Bytes(), mixup=1.0)
    assert batches(Bytes(), mixup=1.0, classes=4)[0].labels.shape == (4, 4)
    with pytest.raises(ddlp.ConfigurationError, match="has the label 9, but with 9 `classes`"):
        batches(pack, mixup=1.0, classes=9)
