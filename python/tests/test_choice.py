"""Choices of samples, the samples of a dataset, and its division into parts."""

import collections
import pickle
import traceback

import numpy
import pytest

import ddlp
from conftest import CLASSES, SAMPLES, ddlp_command, digests


def loader(dataset, **options):
    return ddlp.Loader(dataset, **{"pipeline": ddlp.cifar_train(), "batch_size": 8, "output": "numpy", **options})


def content(batches):
    return [
        (batch.epoch, batch.sample_ids, numpy.array(batch.images).tobytes(), batch.labels.tolist()) for batch in batches
    ]


def indices_of(batches):
    return [sample_id % SAMPLES for batch in batches for sample_id in batch.sample_ids]


class Bytes:
    """Samples of a program's own."""

    def __init__(self, photos):
        self.files = sorted(photos.rglob("*.jpg"))
        self.classes = sorted({file.parent.name for file in self.files})

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        file = self.files[index]
        return file.read_bytes(), self.classes.index(file.parent.name)


CHOSEN = [3, 50, 7, 21, 22, 59, 0, 13, 40]


@pytest.mark.parametrize("form", ["list", "array", "int32", "range", "generator"])
def test_indices_of_any_kind_choose_samples(pack, form):
    forms = {
        "list": CHOSEN,
        "array": numpy.array(CHOSEN),
        "int32": numpy.array(CHOSEN, "int32"),
        "range": range(5, 40, 4),
        "generator": (index for index in CHOSEN),
    }
    with loader(pack, indices=forms[form], epochs=2) as chosen:
        assert len(chosen) == 2 and chosen.samples == SAMPLES
        epochs = [indices_of(chosen) for _ in range(2)]
    expected = list(range(5, 40, 4)) if form == "range" else CHOSEN
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(expected) and epochs[0] != epochs[1]


def test_chosen_samples_have_the_pixels_and_labels_of_the_whole_dataset(photos, pack):
    def rows(dataset, **options):
        with loader(dataset, epochs=1, **options) as batches:
            return {
                sample_id: (label, image.tobytes())
                for batch in batches
                for sample_id, label, image in zip(batch.sample_ids, batch.labels.tolist(), batch.images, strict=True)
            }

    for dataset in (photos, pack, Bytes(photos)):
        whole = rows(dataset)
        assert rows(dataset, indices=CHOSEN) == {index: whole[index] for index in CHOSEN}
    with_drive = rows(pack, indices=CHOSEN, drives="local", strategy="csd")
    assert with_drive == rows(pack, indices=CHOSEN)


@pytest.mark.parametrize("name", ["indices.npy", "indices.txt"])
def test_indices_may_lie_in_a_file(pack, tmp_path, name):
    path = tmp_path / name
    if name.endswith("npy"):
        numpy.save(path, numpy.array(CHOSEN))
    else:
        path.write_text("".join(f"{index}\n" for index in CHOSEN))
    with loader(pack, indices=path, shuffle=False, epochs=1, dtype="uint8", layout="NHWC") as chosen:
        assert indices_of(chosen) == CHOSEN
        chosen.set_epoch(0)
        expected = digests(chosen).unordered
    options = ["--indices", path, "--no-shuffle", "--pipeline", "cifar-train", "--drive", "none"]
    assert expected in ddlp_command("run", pack, "--quiet", "--digest", *options)


def test_a_function_names_the_indices_of_each_epoch(pack):
    asked = []

    def hardest(epoch):
        asked.append(epoch)
        return numpy.arange(epoch, epoch + 3)

    with loader(pack, indices=hardest, shuffle=False, epochs=4) as chosen:
        assert [indices_of(chosen) for _ in range(4)] == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    assert asked == [0, 0, 1, 2, 3]
    with loader(pack, indices=lambda epoch: [1] if epoch < 2 else [1, -2], epochs=4, shuffle=False) as chosen:
        assert [indices_of(chosen) for _ in range(2)] == [[1], [1]]
        with pytest.raises(ddlp.ConfigurationError, match=r"`indices`\(2\): it\[1\] is -2, but samples are numbered"):
            list(chosen)
    with pytest.raises(ddlp.ConfigurationError, match=r"`indices`\(0\): ZeroDivisionError") as caught:
        loader(pack, indices=lambda epoch: 1 // epoch)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("epoch", [0, 2])
@pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt])
def test_what_a_function_of_the_epoch_raises_is_the_cause(pack, epoch, kind):
    def failing(at):
        if at == epoch:
            raise kind("no such key")
        return CHOSEN

    with pytest.raises((ddlp.ConfigurationError, KeyboardInterrupt)) as caught:
        with loader(pack, indices=failing, epochs=4) as chosen:
            for _ in range(3):
                list(chosen)
    raised = caught.value.__cause__ if kind is KeyError else caught.value
    assert type(raised) is kind and "failing" in "".join(traceback.format_tb(raised.__traceback__))


@pytest.mark.parametrize(
    "options",
    [
        {"indices": CHOSEN},
        {"indices": lambda epoch: CHOSEN[epoch % 3 :] + CHOSEN[: epoch % 3]},
        {"weights": numpy.arange(SAMPLES)},
        {"repeats": 3},
        {"views": 2},
        {"indices": CHOSEN, "weights": "balanced", "repeats": 2, "views": 3, "epoch_samples": 20},
    ],
)
def test_a_choice_resumes_and_refuses_another_one(pack, options):
    with loader(pack, epochs=2, batch_size=4, **options) as whole:
        expected = [batch for _ in range(2) for batch in content(whole)]
    with loader(pack, epochs=2, batch_size=4, **options) as first:
        iterator = iter(first)
        begun = content(next(iterator) for _ in range(2))
        state = first.state_dict()
    with loader(pack, epochs=2, batch_size=4, **options) as second:
        second.load_state_dict(pickle.loads(pickle.dumps(state)))
        assert begun + [batch for _ in range(2) for batch in content(second)] == expected
    with loader(pack, epochs=2, batch_size=4, indices=[5, 6, 7], epoch_samples=state["epoch_samples"]) as other:
        with pytest.raises(ddlp.ConfigurationError, match="the state was saved with indices"):
            other.load_state_dict(state)


def test_weights_draw_samples_with_replacement(pack):
    weights = [0.0] * SAMPLES
    weights[5], weights[9] = 1.0, 3.0
    with loader(pack, weights=weights, epoch_samples=4000, batch_size=500, epochs=1) as drawn:
        ids = [sample_id for batch in drawn for sample_id in batch.sample_ids]
    assert len(set(ids)) == 4000, "each draw has random choices of its own"
    counts = collections.Counter(sample_id % SAMPLES for sample_id in ids)
    assert set(counts) == {5, 9} and 2800 < counts[9] < 3200


def test_classes_have_weights(photos):
    files = sorted(photos.rglob("*.jpg"))
    # One sample of the first class, and all of the second.
    labels = ddlp.Dataset(photos).targets
    chosen = [int(numpy.flatnonzero(labels == 0)[0]), *numpy.flatnonzero(labels == 1).tolist()]
    assert len(files) == SAMPLES and len(chosen) > 3
    with loader(photos, indices=chosen, epoch_samples=2000, batch_size=500, epochs=1, weights="balanced") as balanced:
        counts = numpy.bincount(numpy.concatenate([batch.labels for batch in balanced]), minlength=CLASSES)
    assert abs(counts[0] - 1000) < 150 and counts[:2].sum() == 2000
    weights = numpy.zeros(CLASSES, "float32")
    weights[4] = 2
    with loader(photos, weights=weights, epochs=1) as one:
        assert {label for batch in one for label in batch.labels.tolist()} == {4}


def test_ranks_take_turns_at_repeated_samples(pack):
    def of_rank(rank, world_size):
        with loader(pack, repeats=3, epochs=1, rank=rank, world_size=world_size, last="drop") as part:
            return indices_of(part)

    whole = of_rank(0, 1)
    assert len(whole) == SAMPLES // 8 * 8
    assert all(len(set(whole[at : at + 3])) == 1 for at in range(0, len(whole) - 2, 3))
    assert [of_rank(rank, 2) for rank in range(2)] == [whole[0::2], whole[1::2]]


def test_views_are_a_list_of_images_with_the_labels_once(pack):
    with loader(pack, views=2, epochs=1, fields={"number": numpy.arange(SAMPLES)}) as batches:
        for batch in batches:
            first, second = batch["image"]
            assert first.shape == second.shape and (first != second).any()
            assert len(first) == len(batch["label"]) == len(batch["number"]) == len(batch.sample_ids)
            assert batch["number"].tolist() == [sample_id % SAMPLES for sample_id in batch.sample_ids]
    with loader(pack, views=3, epochs=1, drives="local", strategy="mte", pipeline=ddlp.imagenet_val(64)) as batches:
        for (first, second, third), _ in batches:
            assert (first == second).all() and (first == third).all(), "without random choices, views are equal"
    with pytest.raises(ddlp.ConfigurationError, match="several `views` divide"):
        loader(pack, views=2, output="dlpack")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"indices": []}, "`indices` has no index"),
        ({"indices": [0, 1, 60]}, r"`indices`\[2\] is 60, but the dataset has 60 samples, numbered from 0"),
        ({"indices": [0, -1]}, r"`indices`\[1\] is -1, but samples are numbered from 0"),
        ({"indices": [0, 1.5]}, r"`indices`\[1\] is 1.5, but must be a whole number"),
        ({"indices": [True]}, r"`indices`\[0\] is True"),
        ({"indices": numpy.ones(SAMPLES, bool)}, "the type bool.*flatnonzero"),
        ({"indices": numpy.ones((2, 2), int)}, r"the shape \(2, 2\)"),
        ({"indices": 7}, "`indices` is 7, but must be a list"),
        ({"indices": [0], "policy": "replace"}, "leaves out"),
        ({"weights": [1.0] * 3}, "`weights` has 3 weights, but the dataset has 60 samples and 10 classes"),
        ({"weights": [1.0, -1.0] * 30}, r"`weights`\[1\] is -1"),
        ({"weights": [0.0] * SAMPLES}, "every weight"),
        ({"weights": "class"}, '"balanced"'),
        ({"weights": {"a": 1}}, "is a mapping"),
        ({"weights": "balanced", "shuffle": False}, "`shuffle` is false"),
        ({"repeats": 0}, "`repeats` is 0, but must be a whole number from 1 to 256"),
        ({"views": 1.5}, "`views` is 1.5, but must be a whole number"),
        ({"views": 2, "policy": "skip"}, '`policy` must be "fail"'),
        ({"views": 2, "mixup": 0.2}, "`mixup` and `cutmix`"),
    ],
)
def test_a_wrong_choice_is_named(pack, options, said):
    with pytest.raises(ddlp.ConfigurationError, match=said):
        loader(pack, **options)


def test_a_dataset_knows_its_samples(photos, pack):
    files = sorted(photos.rglob("*.jpg"))
    classes = sorted(folder.name for folder in photos.iterdir())
    labels = [classes.index(file.parent.name) for file in files]
    of_folder, of_pack = ddlp.Dataset(photos), ddlp.Dataset(pack)
    for dataset in (of_folder, of_pack):
        assert len(dataset) == len(dataset.samples) == SAMPLES and dataset.classes == classes
        assert dataset.class_to_idx[classes[3]] == 3
        assert dataset.targets.dtype == numpy.int64 and dataset.targets.tolist() == labels
        dataset.targets[:] = 0
        assert [label for _, label in dataset.samples] == labels, "targets are a copy"
        assert dataset.name(-1) == str(files[-1].relative_to(photos))
        with pytest.raises(IndexError):
            dataset.name(SAMPLES)
    assert list(of_folder.samples) == [(str(file), label) for file, label in zip(files, labels, strict=True)]
    assert of_pack.samples[:2] == [(of_pack.name(at), labels[at]) for at in range(2)]
    assert "60 samples" in repr(of_pack)


def test_a_loader_shows_its_dataset_and_takes_one(photos, pack):
    with loader(pack, indices=CHOSEN, epochs=1) as chosen:
        dataset = chosen.dataset
        assert len(dataset) == SAMPLES and dataset is chosen.dataset
        expected = content(chosen)
    with loader(dataset, indices=CHOSEN, epochs=1) as again:
        copy = pickle.loads(pickle.dumps(again))
        assert content(again) == expected
    with copy:
        assert content(copy) == expected
    names = ["another", *dataset.classes]
    with loader(ddlp.Dataset(pack, classes=names), epochs=1, drives="local", strategy="csd") as named:
        assert named.classes == names and min(label for batch in named for label in batch.labels) > 0
    labels = numpy.arange(SAMPLES) % 7
    with loader(pack, fields={"label": labels}) as relabelled:
        assert relabelled.dataset.targets.tolist() == labels.tolist()
        with pytest.raises(ddlp.ConfigurationError, match="come from the `fields`"):
            loader(relabelled.dataset)
    with pytest.raises(ddlp.UsageError, match="the loader is closed"):
        copy.dataset  # noqa: B018 (it raises)


def test_the_labels_of_an_object_are_those_that_it_shows(photos):
    objects = Bytes(photos)
    with pytest.raises(ddlp.ConfigurationError, match="attribute `targets`"):
        ddlp.Dataset(objects).targets  # noqa: B018 (it raises)
    objects.targets = [objects.classes.index(file.parent.name) for file in objects.files]
    assert ddlp.Dataset(objects).targets.tolist() == objects.targets
    del objects.targets[-1]
    with pytest.raises(ddlp.ConfigurationError, match="has 59 labels, but the dataset has 60 items"):
        ddlp.split(objects, (0.5, 0.5), by="class")


@pytest.mark.parametrize("by", [None, "class"])
def test_parts_are_disjoint_complete_and_reproducible(photos, pack, by):
    parts = ddlp.split(pack, (0.5, 0.3, 0.2), by=by, seed=3)
    assert [len(part) for part in parts] == [30, 18, 12]
    assert sorted(numpy.concatenate(parts).tolist()) == list(range(SAMPLES))
    assert all(part.flags.writeable for part in parts)
    again = ddlp.split(ddlp.Dataset(photos), (0.5, 0.3, 0.2), by=by, seed=3)
    assert [part.tolist() for part in parts] == [part.tolist() for part in again]
    assert ddlp.split(pack, (0.5, 0.5), by=by)[0].tolist() != ddlp.split(pack, (0.5, 0.5), by=by, seed=1)[0].tolist()
    if by == "class":
        labels = ddlp.Dataset(pack).targets
        of_class = numpy.bincount(labels, minlength=CLASSES)
        for part, share in zip(parts, (0.5, 0.3, 0.2), strict=True):
            assert (abs(numpy.bincount(labels[part], minlength=CLASSES) - share * of_class) < 2).all()


def test_folds_are_each_validated_once(pack):
    folds = ddlp.split(pack, folds=7, by="class")
    assert sorted(index for _, val in folds for index in val.tolist()) == list(range(SAMPLES))
    for train, val in folds:
        assert sorted([*train.tolist(), *val.tolist()]) == list(range(SAMPLES)) and len(val) in (8, 9)
    with loader(pack, indices=folds[0][1], shuffle=False, epochs=1) as val:
        assert indices_of(val) == folds[0][1].tolist()
        rest = ddlp.split(val, (0.5, 0.5), indices=folds[0][0])
    assert sorted([*rest[0].tolist(), *rest[1].tolist()]) == folds[0][0].tolist()
    assert [len(part) for part in ddlp.split(pack, (50, 10))] == [50, 10]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"parts": (0.8, 0.3)}, "add up to 1.1, but must add up to 1"),
        ({"parts": (50, 9)}, "59 samples together, but the dataset has 60"),
        ({"parts": (1.0, 0.0)}, "each must be above 0"),
        ({"parts": (0.999, 0.001)}, "part 1 of .* would have none of the 60 samples"),
        ({"parts": 0.8}, "but must be a list of shares"),
        ({}, "give either the parts"),
        ({"parts": (0.5, 0.5), "folds": 2}, "give either the parts"),
        ({"folds": 1}, "folds is 1, but must be 2 to 60"),
        ({"parts": (0.5, 0.5), "by": "name"}, "by is 'name'"),
        ({"parts": (0.5, 0.5), "by": [1, 2]}, "by has 2 numbers"),
        ({"parts": (0.5, 0.5), "indices": [3, 4, 3]}, r"`indices`\[2\] is 3, as is `indices`\[0\]"),
        ({"parts": (0.5, 0.5), "indices": [60]}, r"`indices`\[0\] is 60"),
        ({"parts": (0.5, 0.5), "seed": -1}, "seed is -1"),
    ],
)
def test_a_wrong_division_is_named(pack, arguments, said):
    with pytest.raises(ddlp.ConfigurationError, match=said):
        ddlp.split(pack, **arguments)


def test_a_shuffle_window_takes_each_sample_once_and_resumes(pack):
    options = {"shuffle_window": 4, "epochs": 2}
    with loader(pack, **options) as windowed, loader(pack, epochs=2) as full:
        expected = [batch for _ in range(2) for batch in content(windowed)]
        first_epoch = [sample_id for _, ids, *_ in expected[: len(windowed)] for sample_id in ids]
        assert sorted(indices_of(full)) == sorted(first_epoch)
    with loader(pack, **options) as first:
        iterator = iter(first)
        begun = content(next(iterator) for _ in range(2))
        state = first.state_dict()
    assert state["shuffle_window"] == 4
    with loader(pack, **options) as second:
        second.load_state_dict(state)
        assert begun + [batch for _ in range(2) for batch in content(second)] == expected
    with loader(pack, epochs=2) as other:
        with pytest.raises(ddlp.ConfigurationError, match="shuffle window 4, this run has"):
            other.load_state_dict(state)


def test_a_shuffle_window_needs_a_pack(photos):
    with pytest.raises(ddlp.ConfigurationError, match=r"`shuffle_window`.*ddlp pack SOURCE OUT"):
        loader(photos, shuffle_window=4)
