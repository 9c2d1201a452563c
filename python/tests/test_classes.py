"""Classes that the program names, and what they number."""

import pickle
import warnings

import pytest

import ddlp

ALL = [f"class_{number:03}" for number in range(10)]


def loader(dataset, **options):
    return ddlp.Loader(dataset, **{"batch_size": 8, "output": "numpy", "shuffle": False, "epochs": 1, **options})


def labels(batches):
    return [label for batch in batches for label in batch.labels.tolist()]


@pytest.fixture
def validation(photos, tmp_path):
    """A list with images of two of the ten classes."""
    files = [next((photos / name).iterdir()) for name in ("class_002", "class_007")]
    text = "".join(f"{file},{file.parent.name}\n" for file in files)
    (tmp_path / "val.csv").write_text(f"path,label\n{text}")
    return tmp_path / "val.csv"


def test_classes_number_the_labels_of_a_list(validation, photos):
    assert labels(loader(validation)) == [0, 1]
    with pickle.loads(pickle.dumps(loader(validation, classes=tuple(ALL)))) as batches:
        assert labels(batches) == [2, 7] and batches.class_to_idx["class_002"] == 2
        assert batches.class_to_idx == loader(photos).class_to_idx
    mixed = loader(validation, classes=ALL, mixup=0.2)
    assert next(iter(mixed)).labels.shape == (2, 10)


@pytest.mark.parametrize("words", [("cat", "7"), ("1", "-1"), ("99999999", "0.5")])
def test_given_classes_decide_that_labels_are_names(validation, tmp_path, words):
    names = [line.split(",")[0] for line in validation.read_text().splitlines()[1:]]
    lines = "".join(f"{name},{word}\n" for name, word in zip(names, words, strict=True))
    validation.write_text(f"path,label\n{lines}")
    with pytest.raises(ddlp.UnavailableError, match="`classes`"):
        loader(validation)
    classes = ["first", *reversed(words)]
    (tmp_path / "mix.toml").write_text('[[dataset]]\npath = "val.csv"\n')
    for dataset in [validation, tmp_path / "mix.toml", ddlp.Mix([validation])]:
        assert labels(loader(dataset, classes=classes)) == [2, 1]
    with loader(validation, classes=classes, strategy="csd", drives="local") as batches:
        assert labels(batches) == [2, 1]
    ddlp.pack(validation, tmp_path / "val.ddlp", classes=classes, progress=False)
    assert labels(loader(tmp_path / "val.ddlp")) == [2, 1]
    with pytest.raises(ddlp.UnavailableError, match=f"line 2: .* {words[0]} is not among the 1 given classes"):
        loader(validation, classes=[words[1]])


def test_a_list_that_numbers_its_own_classes_is_warned_of(validation, photos):
    with pytest.warns(UserWarning, match="numbers its classes by their sorted names.*`classes`") as caught:
        batches = loader(validation)
    assert [warning.filename for warning in caught] == [__file__]
    assert any("by their sorted names" in note for note in batches.report()["notes"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader(validation, classes=ALL)
        loader(photos)


def test_a_state_keeps_the_classes(validation):
    state = loader(validation, classes=ALL).state_dict()
    loader(validation, classes=ALL).load_state_dict(state)
    for other, part in [(None, "the dataset's own"), (ALL[::-1], "class_009 = 0")]:
        with pytest.raises(ddlp.ConfigurationError, match=f"classes class_000 = 0, this run has {part}"):
            loader(validation, classes=other).load_state_dict(state)


def test_a_pack_keeps_the_classes(validation, tmp_path):
    ddlp.pack(validation, tmp_path / "val.ddlp", classes=ALL, progress=False)
    with loader(tmp_path / "val.ddlp") as batches:
        assert labels(batches) == [2, 7] and batches.classes == ALL


def test_classes_number_labels_of_fields_and_the_classes_of_objects(validation, tmp_path):
    (tmp_path / "labels.txt").write_text("class_007\nclass_002\n")
    with loader(validation, fields=tmp_path / "labels.txt", classes=ALL) as batches:
        assert [batch["label"].tolist() for batch in batches] == [[7, 2]] and batches.classes == ALL

    class Object(list):
        classes = ["class_007"]

    data = validation.read_text().split()[1].split(",")[0]
    with open(data, "rb") as file:
        assert labels(loader(Object([(file.read(), 0)]), classes=ALL)) == [7]


@pytest.mark.parametrize(
    ("classes", "part"),
    [
        (ALL[:5], "1 of the dataset's classes are not among the 5 given ones, such as class_007"),
        ([*ALL, "class_002"], "have the name class_002 for the numbers 2 and 10"),
        ([*ALL, 7], "classes has 7 as name of class 10, but names are texts"),
        ("class_002", "must be a list of the names"),
        ([], "classes is empty"),
    ],
)
def test_classes_that_do_not_fit_are_refused(validation, tmp_path, classes, part):
    with pytest.raises(ddlp.ConfigurationError, match=part):
        loader(validation, classes=classes)
    with pytest.raises(ddlp.ConfigurationError, match=part):
        ddlp.pack(validation, tmp_path / "val.ddlp", classes=classes, progress=False)
