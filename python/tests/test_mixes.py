"""Several datasets in one loader, and epochs of any length."""

import collections
import pickle

import numpy
import pytest

import ddlp
from conftest import SAMPLES


class Objects:
    """Samples of a program's own: some files of a folder, whose class is the name of their folder."""

    def __init__(self, photos, count):
        self.files = sorted(photos.rglob("*.jpg"))[:count]
        self.classes = sorted({file.parent.name for file in self.files}, reverse=True)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        file = self.files[index]
        return file.read_bytes(), self.classes.index(file.parent.name)


def loader(dataset, **options):
    return ddlp.Loader(dataset, **{"pipeline": ddlp.cifar_train(), "batch_size": 8, "output": "numpy", **options})


def content(batches):
    return [(batch.epoch, batch.sample_ids, batch.images.tobytes(), batch.labels.tolist()) for batch in batches]


def test_epochs_take_exact_shares(photos, pack):
    mix = ddlp.Mix([photos, pack, Objects(photos, 5)], weights=[0.5, 0.3, 0.2])
    with loader(mix, epoch_samples=50, epochs=3) as batches:
        total = batches.samples
        assert total == 2 * SAMPLES + 5 and len(batches) == 7
        for _ in range(3):
            indices = numpy.array([i for batch in batches for i in batch.sample_ids]) % total
            of = numpy.searchsorted([SAMPLES, 2 * SAMPLES], indices, side="right")
            assert numpy.bincount(of).tolist() == [25, 15, 10]


def test_classes_of_one_name_are_one_class(photos):
    objects = Objects(photos, 20)
    assert len(objects.classes) > 1
    with loader(ddlp.Mix([photos, objects]), shuffle=False, epochs=1) as batches:
        assert batches.classes == sorted(folder.name for folder in photos.iterdir())
        labels = numpy.concatenate([batch.labels for batch in batches])
    with loader(photos, shuffle=False, epochs=1) as alone:
        expected = numpy.concatenate([batch.labels for batch in alone])
    # The objects are the first files of the folder, in the folder's order.
    assert numpy.array_equal(labels, numpy.concatenate([expected, expected[:20]]))


def test_a_mix_resumes_and_has_one_order_on_all_ranks(photos, pack):
    mix = ddlp.Mix([photos, pack], weights=(1, 3))
    with loader(mix, epoch_samples=40, epochs=2) as whole:
        expected = [batch for _ in range(2) for batch in content(whole)]
    with loader(mix, epoch_samples=40, epochs=2) as first:
        iterator = iter(first)
        begun = content(next(iterator) for _ in range(3))
        state = first.state_dict()
    with loader(pickle.loads(pickle.dumps(mix)), epoch_samples=40, epochs=2) as second:
        second.load_state_dict(state)
        assert begun + [batch for _ in range(2) for batch in content(second)] == expected
    ranks = []
    for rank in range(2):
        with loader(mix, epoch_samples=40, epochs=2, rank=rank, world_size=2) as half:
            ranks.append([batch for _ in range(2) for batch in content(half)])
    assert [a[1] + b[1] for a, b in zip(*ranks, strict=True)] == [ids for _, ids, _, _ in expected]
    with loader(ddlp.Mix([photos, pack], weights=(1, 2)), epoch_samples=40) as other:
        with pytest.raises(ddlp.ConfigurationError, match="epochs of 10 of 60 samples and 30 of 60 samples"):
            other.load_state_dict(state)


def test_epochs_go_on_where_the_one_before_stopped(pack):
    counts = collections.Counter()
    with loader(ddlp.Mix([pack]), epoch_samples=25) as batches:
        for epoch in range(1, 8):
            counts.update(i % SAMPLES for batch in batches for i in batch.sample_ids)
            passes = epoch * 25 // SAMPLES
            assert sum(counts.values()) == epoch * 25
            assert {counts[i] for i in range(SAMPLES)} <= {passes, passes + 1}


def test_a_mix_in_a_file_is_a_mix(photos, pack, tmp_path):
    file = tmp_path / "mix.toml"
    file.write_text(f'[[dataset]]\npath = "{photos}"\nweight = 1\n[[dataset]]\npath = "{pack}"\nweight = 3\n')
    mix = ddlp.Mix([photos, pack], weights=[1, 3])
    with loader(file, epochs=1) as of_file, loader(mix, epochs=1) as of_paths:
        assert content(of_file) == content(of_paths)
    with loader(mix, epochs=1) as of_list, loader(ddlp.Mix(iter([photos, pack]), [1, 3]), epochs=1) as of_iterator:
        assert content(of_list) == content(of_iterator)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 0], "but must be a finite number above 0"),
        ([1, -2], "is -2, but must be"),
        ([1, float("nan")], "is NaN, but must be"),
        ([1], "1 weights are given for 2 datasets"),
        ([1, "much"], "a number for each dataset"),
        ([1, 1e-12], "has no sample of"),
    ],
)
def test_wrong_weights_are_refused(photos, pack, weights, message):
    with pytest.raises(ddlp.ConfigurationError, match=message):
        loader(ddlp.Mix([photos, pack], weights=weights))


def test_datasets_that_cannot_be_mixed_are_refused(photos, pack, tmp_path):
    mix = ddlp.Mix([photos, pack])
    for wrong, error, message in [
        (ddlp.Mix([]), ddlp.ConfigurationError, "1 to 1024 datasets"),
        (ddlp.Mix([photos, mix]), ddlp.ConfigurationError, "cannot be part of another"),
        (ddlp.Mix([photos, tmp_path / "missing"]), ddlp.UnavailableError, "missing"),
        (ddlp.Mix([photos, tmp_path]), ddlp.UnavailableError, str(tmp_path)),
        (ddlp.Mix([Objects(photos, 0)]), ddlp.ConfigurationError, "is empty"),
        (ddlp.Mix([photos, 7]), TypeError, "a dataset is a path"),
    ]:
        with pytest.raises(error, match=message):
            loader(wrong)
    with pytest.raises(ddlp.ConfigurationError, match="list of datasets"):
        ddlp.Mix("photos")
    with pytest.raises(ddlp.ConfigurationError, match="describe the mix in a file"):
        loader(mix, drives="local")
    with pytest.raises(ddlp.ConfigurationError, match="pack each dataset"):
        ddlp.pack(mix, tmp_path / "all.ddlp")
