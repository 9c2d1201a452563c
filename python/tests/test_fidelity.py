"""How exactly images are read: the options. Packs of pieces are read in the tests of the Rust library."""

import pytest

import ddlp


def loader(dataset, **options):
    return ddlp.Loader(dataset, **{"pipeline": ddlp.cifar_train(), "batch_size": 8, "output": "numpy", **options})


def epoch_of(batches):
    """Runs an epoch and returns the number of its batches."""
    return sum(1 for _ in batches)


@pytest.mark.parametrize("fidelity", [10, {0: 10}, {0: 10, 3: 10}, lambda epoch: 10])
def test_every_dataset_has_whole_images(pack, fidelity):
    with loader(pack, fidelity=fidelity) as whole:
        assert epoch_of(whole) == len(whole)
        assert "fidelity" not in whole.state_dict()


@pytest.mark.parametrize("fidelity", [5, {0: 5}, {0: 10, 30: 5}])
def test_a_dataset_of_whole_images_has_no_other_fidelity(pack, fidelity):
    with pytest.raises(ddlp.ConfigurationError, match=r"`fidelity`: it is 5.*--format pcr"):
        loader(pack, fidelity=fidelity)


def test_a_function_is_asked_once_for_each_epoch(pack):
    asked = []

    def fidelity(epoch):
        asked.append(epoch)
        return 10 if epoch < 2 else 5

    with loader(pack, fidelity=fidelity, epochs=4) as changing:
        assert asked == []
        epoch_of(changing)
        assert asked == [0, 1]
        epoch_of(changing)
        with pytest.raises(ddlp.ConfigurationError, match=r"`fidelity`\(2\): it is 5"):
            epoch_of(changing)
    assert asked == [0, 1, 2]


@pytest.mark.parametrize(
    ("fidelity", "message"),
    [
        (0, "`fidelity` is .*from 1 to 10"),
        (11, "`fidelity` is .*from 1 to 10"),
        ("5", "`fidelity` is '5', but must be a whole number"),
        (True, "`fidelity` is True, but must be a whole number"),
        (2.5, "`fidelity` is 2.5, but must be a whole number"),
        ({}, "`fidelity` is an empty dict"),
        ({3: 5}, r"for the epochs \[3\], but must begin with epoch 0"),
        ({0: "whole"}, r"`fidelity`\[0\] is 'whole', but must be a whole number"),
        ({"0": 5}, "an epoch of `fidelity` is '0', but must be a whole number"),
        ({-1: 5, 0: 5}, r"for the epochs \[-1, 0\]"),
    ],
)
def test_wrong_fidelities_are_refused(pack, fidelity, message):
    with pytest.raises(ddlp.ConfigurationError, match=message):
        loader(pack, fidelity=fidelity)


@pytest.mark.parametrize(
    ("answer", "message"),
    [(11, "it is 11, but must be a number from 1 to 10"), (None, "it is None, but must be a whole number")],
)
def test_a_function_must_name_a_scan_group(pack, answer, message):
    with loader(pack, fidelity=lambda epoch: answer) as wrong:
        with pytest.raises(ddlp.ConfigurationError, match=message):
            epoch_of(wrong)
