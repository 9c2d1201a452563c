"""What training would gain if loading were free."""

import json

import pytest

import ddlp
from conftest import SAMPLES, ddlp_command


def loader(pack, **options):
    return ddlp.Loader(pack, **{"batch_size": 8, "output": "numpy", "dtype": "uint8", **options})


def test_a_headspace_has_figures_and_says_them_in_words(pack):
    batches = loader(pack)
    seen = []
    headspace = batches.headspace(lambda batch: seen.append((batch.images.shape, len(batch.labels))), seconds=0.2)
    assert set(seen) <= {((count, 3, 224, 224), count) for count in (8, SAMPLES % 8)}
    assert headspace["steps"] >= 40 and len(seen) >= headspace["steps"]
    assert headspace["with_loading"]["min"] > 0 and headspace["from_memory"]["median"] > 0
    assert headspace["stages"]["threads"] > 0 and headspace["stages"]["drives"] == []
    text = str(headspace)
    assert "batches from memory" in text and "gain" in text and "bound" in text
    assert headspace._repr_html_().startswith("<pre>with loading")


def test_the_loader_goes_on_where_it_was(pack):
    batches = loader(pack, epochs=2)
    first = iter(batches)
    assert [next(first).index for _ in range(3)] == [0, 1, 2]
    before = batches.state_dict()
    states = []
    batches.headspace(lambda batch: states.append(batches.state_dict()), seconds=0.1)
    assert all(state == before for state in states), "a state that is saved meanwhile is that of the position"
    assert batches.state_dict() == before
    assert [batch.index for batch in first] == [3, 4, 5, 6, 7], "the same iteration goes on"
    assert [batch.index for batch in batches] == list(range(8))


def test_a_step_that_raises_ends_the_measurement(pack):
    batches = loader(pack)

    def fail(batch):
        raise ZeroDivisionError("in a step")

    with pytest.raises(ZeroDivisionError, match="in a step"):
        batches.headspace(fail)
    assert batches.state_dict()["delivered"] == []
    assert next(iter(batches)).index == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda batches: next(iter(batches)),
        lambda batches: batches.set_epoch(3),
        lambda batches: batches.headspace(lambda batch: None),
    ],
)
def test_a_step_cannot_move_its_loader(pack, use):
    batches = loader(pack)
    with pytest.raises(ddlp.UsageError, match="headspace"):
        batches.headspace(lambda batch: use(batches))
    assert next(iter(batches)).index == 0


def test_a_step_that_closes_the_loader_ends_the_measurement(pack):
    batches = loader(pack)
    with pytest.raises(ddlp.UsageError, match="closed"):
        batches.headspace(lambda batch: batches.close())


def test_a_step_that_keeps_all_batches_gets_an_error(pack, monkeypatch):
    # Libraries may have daemon threads.
    monkeypatch.setattr("ddlp._threads._PATIENCE_WITH_DAEMONS_S", 1.0)
    kept = []
    with pytest.raises(ddlp.UsageError, match="keeps the images"):
        loader(pack, buffers=2).headspace(lambda batch: kept.append(batch.images))


def test_too_few_batches_and_wrong_times_are_named(pack):
    with pytest.raises(ddlp.ConfigurationError, match="epochs"):
        loader(pack, batch_size=SAMPLES, epochs=2).headspace(lambda batch: None)
    for seconds in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ddlp.ConfigurationError, match="seconds"):
            loader(pack).headspace(lambda batch: None, seconds=seconds)


def test_pipelines_by_epoch_are_measured_at_the_position(pack):
    growing = {0: ddlp.imagenet_train(64), 1: ddlp.imagenet_train(96)}
    batches = loader(pack, pipeline=growing)
    list(batch.index for batch in batches)
    sizes = set()
    batches.headspace(lambda batch: sizes.add(batch.images.shape[2]), seconds=0.1)
    assert sizes == {96}


def test_the_command_prints_what_python_does(pack):
    options = ["--headspace=0.2", "--step-ms", 1, "--batch-size", 8, "--drive", "none", "--json", "-", "--quiet"]
    figures = json.loads(ddlp_command("run", pack, *options))
    python = loader(pack).headspace(lambda batch: None, seconds=0.1)
    assert set(figures) | {"text"} == set(python)
