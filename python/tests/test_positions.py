"""Epochs and states: what the next iteration delivers."""

import itertools
import json
import shutil
from contextlib import ExitStack

import pytest

import ddlp
from conftest import digests


def loader(pack, **options):
    return ddlp.Loader(pack, **{"batch_size": 8, "output": "numpy", "dtype": "uint8", "layout": "NHWC", **options})


def places(batches):
    return [(batch.epoch, batch.index) for batch in batches]


EPOCH = list(range(8))


def test_each_iteration_is_the_next_epoch(pack):
    batches = loader(pack)
    assert len(batches) == 8
    for epoch in range(3):
        assert batches.epoch == epoch
        assert places(batches) == [(epoch, index) for index in EPOCH]


def test_an_iteration_after_a_break_is_the_next_epoch(pack):
    batches = loader(pack)
    for batch in batches:
        if batch.index == 2:
            break
    assert batches.epoch == 0
    assert places(batches) == [(1, index) for index in EPOCH]
    for batch in batches:
        if batch.index == 7:
            break
    assert places(batches) == [(3, index) for index in EPOCH], "a break at the last batch skips no epoch"


def test_an_iteration_that_got_no_batch_uses_no_epoch(pack):
    batches = loader(pack)
    iter(batches)
    assert places(batches) == [(0, index) for index in EPOCH]


def test_a_look_at_a_batch_costs_no_epoch(pack):
    batches = loader(pack, epochs=2)
    iter(batches)
    look = digests([next(iter(batches))]).samples
    assert batches.epoch == 0
    for epoch in range(2):
        seen = digests(batches).samples
        assert epoch != 0 or seen[:8] == look
    with pytest.raises(ddlp.ConfigurationError, match="all 2 epochs"):
        iter(batches)


def test_one_batch_of_each_epoch_is_another_one_each_time(pack):
    batches = loader(pack)
    firsts = [next(iter(batches)).epoch for _ in range(4)]
    assert firsts == [0, 0, 1, 2], "only the first one is a look"
    assert places(batches) == [(3, index) for index in EPOCH]
    assert [next(iter(batches)).epoch for _ in range(2)] == [4, 5], "after training there is no look"


def test_after_the_position_was_set_a_look_costs_no_epoch(pack):
    batches = loader(pack)
    for epoch in range(3):
        batches.set_epoch(epoch)
        for _ in range(2 if epoch == 1 else 0):
            assert next(iter(batches)).epoch == epoch
            batches.set_epoch(epoch)
        assert next(iter(batches)).epoch == epoch
        assert places(batches) == [(epoch, index) for index in EPOCH]
    batches.set_epoch(5)
    for epoch in range(5, 8):
        batches.set_epoch(epoch)
        assert next(iter(batches)).epoch == epoch


def test_a_state_counts_a_batch_unless_the_next_iteration_has_it_again(pack):
    def rest(state):
        resumed = loader(pack)
        resumed.load_state_dict(state)
        return places(resumed)

    batches = loader(pack)
    iteration = iter(batches)
    next(iteration)
    assert rest(batches.state_dict()) == [(0, index) for index in EPOCH[1:]], "the program can go on"
    del iteration
    state = batches.state_dict()
    assert rest(state) == places(batches) == [(0, index) for index in EPOCH], "a look"
    next(iter(batches))
    assert rest(batches.state_dict()) == [(1, index) for index in EPOCH[1:]], "no look"


def test_an_iteration_that_was_asked_for_a_second_batch_is_no_look(photos):
    image = next(photos.rglob("*.jpg")).read_bytes()

    class Samples(list):
        fails = True

        def __getitem__(self, index):
            if index == 17 and self.fails:
                raise RuntimeError("the network is down")
            return image, 0

    samples = Samples(range(30))
    batches = loader(samples, batch_size=10, shuffle=False)
    with pytest.raises(ddlp.UnavailableError):
        list(batches)
    state, samples.fails = batches.state_dict(), False
    resumed = loader(samples, batch_size=10, shuffle=False)
    resumed.load_state_dict(state)
    assert state["delivered"] == [0] and places(resumed) == [(0, 1), (0, 2)]


def test_a_state_after_a_look_in_a_resumed_epoch_is_the_state_that_was_loaded(pack):
    batches = loader(pack)
    for batch in batches:
        if batch.index == 2:
            break
    resumed = loader(pack)
    resumed.load_state_dict(batches.state_dict())
    assert next(iter(resumed)).index == 3
    assert resumed.state_dict() == batches.state_dict()
    resumed.close()
    assert resumed.state_dict() == batches.state_dict()


@pytest.mark.parametrize("sets_epoch", [False, True])
def test_after_a_look_a_resumed_epoch_goes_on_where_it_was_resumed(pack, sets_epoch):
    batches = loader(pack)
    for batch in batches:
        if batch.index == 2:
            break
    resumed = loader(pack)
    resumed.load_state_dict(batches.state_dict())
    assert next(iter(resumed)).index == 3
    if sets_epoch:
        resumed.set_epoch(0)
    assert places(resumed) == [(0, index) for index in EPOCH[3:]]


def test_iterations_of_a_few_batches_each_are_epochs(pack):
    batches = loader(pack)
    for epoch in range(3):
        assert places(itertools.islice(batches, 2)) == [(epoch, 0), (epoch, 1)]


def test_set_epoch_begins_that_epoch(pack):
    batches = loader(pack)
    next(iter(batches))
    batches.set_epoch(0)
    assert places(batches) == [(0, index) for index in EPOCH]
    batches.set_epoch(1)
    assert places(batches) == [(1, index) for index in EPOCH]
    batches.set_epoch(5)
    assert batches.epoch == 5
    fifth = digests(batches)
    fresh = loader(pack)
    fresh.set_epoch(5)
    assert digests(fresh).ordered == fifth.ordered
    wrong = [
        (-1, "count from 0"),
        (1.5, "is 1.5, but must be a whole"),
        ("1", "is '1', but must"),
        (2**32, "from 0 on"),
    ]
    for epoch, message in wrong:
        with pytest.raises(ddlp.ConfigurationError, match=message):
            batches.set_epoch(epoch)
    assert batches.epoch == 6


def test_an_epoch_beyond_the_last_is_refused(pack):
    with loader(pack, epochs=3) as batches:
        batches.set_epoch(2)
        with pytest.raises(ddlp.ConfigurationError, match="has 3 epochs"):
            batches.set_epoch(3)
        assert batches.epoch == 2


def test_epochs_end(pack):
    batches = loader(pack, epochs=2)
    assert [epoch for _ in range(2) for epoch, _ in places(batches)] == [0] * 8 + [1] * 8
    assert batches.epoch == 2
    with pytest.raises(ddlp.ConfigurationError, match="2 epochs"):
        iter(batches)


def test_an_iteration_after_the_last_epoch_was_left_keeps_the_position(pack):
    batches = loader(pack, epochs=1)
    for batch in batches:
        if batch.index == 2:
            break
    before = batches.state_dict()
    with pytest.raises(ddlp.ConfigurationError, match="all 1 epochs"):
        iter(batches)
    assert batches.state_dict() == before and before["delivered"] == [0, 1, 2]
    batches.load_state_dict(before)
    assert places(batches) == [(0, index) for index in EPOCH[3:]]


@pytest.mark.parametrize("strategy", ["ordered", "mte", "wrr"])
def test_a_resumed_epoch_is_equal_to_the_bit(pack, strategy):
    options = {"strategy": strategy, "drives": "local"}
    if strategy == "ordered":
        whole = digests(loader(pack)).ordered
    with loader(pack, **options) as batches:
        iteration = iter(batches)
        first = [next(iteration) for _ in range(2)]
        found = digests(first)
        first.clear()
        for _ in range(3):
            found.update(next(iteration))
        state = json.loads(json.dumps(batches.state_dict()))
    with loader(pack, **options) as resumed:
        resumed.load_state_dict(state)
        assert resumed.epoch == 0 and len(resumed) == 8
        for batch in resumed:
            found.update(batch)
        assert places(resumed)[0][0] == 1, "after the resumed epoch comes a whole one"
    assert found.unordered == digests(loader(pack)).unordered
    if strategy == "ordered":
        assert found.ordered == whole


def test_a_state_of_the_end_of_an_epoch_goes_on_with_the_next_one(pack):
    batches = loader(pack)
    states = []
    for _ in batches:
        states.append(batches.state_dict())
    after = batches.state_dict()
    assert after == states[-1]
    resumed = loader(pack)
    resumed.load_state_dict(after)
    assert places(resumed) == [(1, index) for index in EPOCH]
    resumed.load_state_dict(states[-2])
    assert places(resumed) == [(0, 7)]
    assert places(resumed) == [(1, index) for index in EPOCH]


def test_set_epoch_of_the_resumed_epoch_keeps_its_position(pack):
    batches = loader(pack)
    for batch in batches:
        if batch.index == 5:
            break
    resumed = loader(pack)
    resumed.load_state_dict(batches.state_dict())
    resumed.set_epoch(0)
    assert places(resumed) == [(0, 6), (0, 7)]


def of_all_ranks(ranks):
    """Returns the sample ids of each global batch, by its place. Each of the iterations is that of a rank."""
    joined = {}
    for rank in ranks:
        for batch in rank:
            joined.setdefault((batch.epoch, batch.index), []).extend(batch.sample_ids)
    return {place: sorted(samples) for place, samples in joined.items()}


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 4), (4, 2)])
def test_another_number_of_ranks_goes_on_in_the_middle_of_an_epoch(pack, before, after):
    first = [iter(loader(pack, rank=rank, world_size=before)) for rank in range(before)]
    begun = [loader(pack, rank=rank, world_size=before) for rank in range(before)]
    for batches in begun:
        iteration = iter(batches)
        next(iteration), next(iteration)
    ranks = [loader(pack, rank=rank, world_size=after) for rank in range(after)]
    for rank in ranks:
        rank.load_state_dict(begun[0].state_dict())
    whole = of_all_ranks(first)
    assert of_all_ranks(ranks) == {place: samples for place, samples in whole.items() if place[1] >= 2}


@pytest.mark.parametrize("strategy", ["mte", "wrr"])
@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2)])
def test_another_number_of_ranks_goes_on_at_the_end_of_an_epoch(pack, strategy, before, after):
    options = {"strategy": strategy, "drives": "local"}
    with ExitStack() as open_loaders:

        def ranks(world):
            made = [loader(pack, rank=rank, world_size=world, **options) for rank in range(world)]
            return [open_loaders.enter_context(rank) for rank in made]

        begun, others = ranks(before), ranks(after)
        assert len(of_all_ranks(begun)) == 8
        for other in others:
            other.load_state_dict(begun[0].state_dict())
        expected = loader(pack)
        expected.set_epoch(1)
        assert of_all_ranks(others) == of_all_ranks([expected])
        # Within an epoch, the ranks may have had different batches.
        next(iter(begun[1]))
        with pytest.raises(ddlp.ConfigurationError, match="ranks"):
            others[0].load_state_dict(begun[1].state_dict())


def test_a_state_of_another_run_is_refused_and_changes_nothing(pack):
    batches = loader(pack)
    with pytest.raises(ddlp.ConfigurationError, match="seed 1"):
        batches.load_state_dict(loader(pack, seed=1).state_dict())
    assert places(batches) == [(0, index) for index in EPOCH]


def test_an_older_iteration_is_over(pack):
    batches = loader(pack)
    older = iter(batches)
    next(older)
    newer = iter(batches)
    with pytest.raises(ddlp.UsageError, match="another iteration"):
        next(older)
    assert places([next(newer)]) == [(0, 0)]


def test_a_closed_loader_says_so_and_keeps_its_position_and_figures(pack):
    with loader(pack) as batches:
        iteration = iter(batches)
        next(iteration)
    assert batches.state_dict()["delivered"] == [0]
    assert batches.report()["images"] == batches.stats()["images"] == 8
    page = batches.report().to_html()
    assert page.startswith("<!doctype html>") and "images/s" in page
    shown = batches.report()._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and 'sandbox="allow-scripts"' in shown and "<script" not in shown
    with pytest.raises(ddlp.ConfigurationError, match="figures of a run"):
        ddlp.Report(images=8).to_html()
    for use in [lambda: next(iteration), lambda: iter(batches), lambda: len(batches)]:
        with pytest.raises(ddlp.UsageError, match="closed"):
            use()
    batches.close()


def test_a_loader_keeps_its_position_when_a_state_is_refused(pack):
    batches = loader(pack)
    iteration = iter(batches)
    next(iteration), next(iteration)
    before = batches.state_dict()
    with pytest.raises(ddlp.ConfigurationError, match="seed 1"):
        batches.load_state_dict(loader(pack, seed=1).state_dict())
    assert batches.state_dict() == before
    assert places(batches) == [(1, index) for index in EPOCH], "as after any iteration that was left early"


def test_an_iteration_goes_on_when_a_state_is_refused(pack):
    batches = loader(pack)
    iteration = iter(batches)
    next(iteration)
    other = loader(pack, seed=1).state_dict()
    for refused in [other, {}, {"epoch": "x"}, {"epoch": 3}]:
        with pytest.raises(ddlp.ConfigurationError, match="state"):
            batches.load_state_dict(refused)
    assert places(iteration) == [(0, index) for index in EPOCH[1:]]


def test_a_closed_loader_opens_no_run(pack):
    batches = loader(pack, drives="local")
    batches.set_epoch(3)
    batches.close()
    assert batches.state_dict()["epoch"] == batches.epoch == 3 and batches.report()["images"] == 0
    with pytest.raises(ddlp.UsageError, match="closed"):
        batches.set_epoch(4)
    closed = loader(pack)
    closed.close()
    with pytest.raises(ddlp.ConfigurationError, match="seed 1"):
        closed.load_state_dict(loader(pack, seed=1).state_dict())
    with pytest.raises(ddlp.UsageError, match="closed"):
        iter(closed).__next__()


def test_an_epoch_that_failed_does_not_look_finished(photos, tmp_path):
    folder = tmp_path / "photos" / "only"
    folder.mkdir(parents=True)
    for number, image in enumerate(sorted(photos.rglob("*.jpg"))[:8]):
        (folder / f"{number}.jpg").write_bytes(b"no image" if number == 3 else image.read_bytes())
    batches = loader(tmp_path / "photos", batch_size=4)
    with pytest.raises(ddlp.CorruptError):
        list(batches)
    with pytest.raises(ddlp.UsageError, match="ended with an error"):
        list(batches)


def growing(pack, **options):
    pipelines = {0: ddlp.imagenet_train(32), 2: ddlp.imagenet_train(64), 3: "imagenet-val"}
    return loader(pack, pipeline=pipelines, **options)


def digest_of_epoch(pack, pipeline, epoch):
    batches = loader(pack, pipeline=pipeline)
    batches.set_epoch(epoch)
    return digests(batches).ordered


@pytest.mark.parametrize("drives", [None, "local"])
def test_a_pipeline_may_change_from_epoch_to_epoch(pack, drives):
    expected = [
        digest_of_epoch(pack, pipeline, epoch)
        for epoch, pipeline in enumerate(
            [ddlp.imagenet_train(32), ddlp.imagenet_train(32), ddlp.imagenet_train(64), ddlp.imagenet_val()]
        )
    ]
    with growing(pack, epochs=4, drives=drives) as batches:
        assert [digests(batches).ordered for _ in range(4)] == expected
        with pytest.raises(ddlp.ConfigurationError, match="all 4 epochs"):
            iter(batches)
        for epoch in [2, 0, 3, 1]:
            batches.set_epoch(epoch)
            assert batches.epoch == epoch and digests(batches).ordered == expected[epoch]


def test_a_state_resumes_with_the_pipeline_of_its_epoch(pack):
    whole = [digests(epoch).samples for epoch in [growing(pack, epochs=4)] for _ in range(4)]
    for epoch in range(4):
        for taken in [0, 3]:
            begun = growing(pack, epochs=4)
            begun.set_epoch(epoch)
            iteration = iter(begun)
            for _ in range(taken):
                next(iteration)
            resumed = growing(pack, epochs=4)
            resumed.load_state_dict(begun.state_dict())
            assert resumed.epoch == epoch
            assert digests(resumed).samples == whole[epoch][8 * taken :]
    at_the_end = growing(pack)
    for _ in range(2):
        digests(at_the_end)
    resumed = growing(pack)
    resumed.load_state_dict(at_the_end.state_dict())
    assert next(iter(resumed)).images.shape[1] == 64


def test_a_state_of_another_pipeline_is_refused(pack):
    other = loader(pack, pipeline=ddlp.imagenet_train(48))
    for begins in [False, True]:
        if begins:
            next(iter(other))
        with growing(pack) as batches, pytest.raises(ddlp.ConfigurationError, match="pipeline"):
            batches.load_state_dict(other.state_dict())


def test_a_refused_move_to_another_pipeline_changes_nothing(pack):
    other = growing(pack, seed=5)
    other.set_epoch(2)
    with growing(pack) as batches:
        iteration = iter(batches)
        next(iteration)
        with pytest.raises(ddlp.ConfigurationError, match="seed 5"):
            batches.load_state_dict(other.state_dict())
        assert places(iteration) == [(0, index) for index in EPOCH[1:]]


def test_a_step_of_headspace_cannot_move_to_another_pipeline(pack):
    with growing(pack, batch_size=2) as batches:
        with pytest.raises(ddlp.UsageError, match="step of headspace"):
            batches.headspace(lambda _: batches.set_epoch(2), 0.2)
        assert len(places(batches)) == 30 and batches.epoch == 1


def test_a_loader_goes_on_when_the_run_of_another_pipeline_cannot_open(pack, tmp_path):
    path = tmp_path / "train.ddlp"
    shutil.copy(pack, path)
    with growing(path) as batches:
        list(itertools.islice(batches, 2))
        before = batches.state_dict()
        path.rename(tmp_path / "elsewhere.ddlp")
        with pytest.raises(ddlp.UnavailableError):
            batches.set_epoch(2)
        assert batches.state_dict() == before and batches.report()["images"] == 16
        (tmp_path / "elsewhere.ddlp").rename(path)
        assert places(batches) == [(1, index) for index in EPOCH], "as after any iteration that was left early"


def test_pipelines_begin_with_epoch_0(pack):
    for wrong in [{}, {1: ddlp.imagenet_train(32)}]:
        with pytest.raises(ddlp.ConfigurationError, match="epoch 0"):
            loader(pack, pipeline=wrong)
