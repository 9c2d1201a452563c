"""Fields beside a dataset: from arrays and from a table."""

import pickle

import numpy
import pytest

import ddlp
from conftest import SAMPLES


def loader(dataset, **options):
    return ddlp.Loader(dataset, **{"batch_size": 16, "output": "numpy", "dtype": "uint8", "epochs": 1, **options})


@pytest.mark.parametrize("strategy, drives", [("ordered", None), ("mte", "local")])
def test_each_batch_has_the_values_of_its_samples(pack, strategy, drives):
    boxes = numpy.random.default_rng(0).random((SAMPLES, 2, 3), dtype=numpy.float32)
    fields = {"box": boxes, "number": numpy.arange(SAMPLES), "flags": numpy.arange(SAMPLES, dtype=numpy.uint8)}
    seen = []
    with loader(pack, fields=fields, strategy=strategy, drives=drives) as batches:
        assert batches.samples == SAMPLES
        for batch in batches:
            assert list(batch) == ["image", "label", "box", "number", "flags"]
            ids = batch.sample_ids
            assert batch["image"].shape[0] == len(ids) and batch["number"].tolist() == ids
            assert (batch["box"] == boxes[ids]).all() and batch["flags"].dtype == numpy.uint8
            seen += ids
    assert sorted(seen) == list(range(SAMPLES))


def test_a_table_gives_fields_and_labels(photos, tmp_path):
    names = sorted(str(path.relative_to(photos)) for path in photos.rglob("*.jpg"))
    assert len(names) == SAMPLES
    table = tmp_path / "table.csv"
    lines = [f"{name},{number / 2},{'even' if number % 2 == 0 else 'odd'}" for number, name in enumerate(names)]
    table.write_text("name,half,label\n" + "\n".join(lines))
    with loader(photos, fields=table, names=("x", "y")) as batches:
        assert batches.classes == ["even", "odd"]
        for batch in batches:
            assert list(batch) == ["x", "y", "half"] and batch["half"].dtype == numpy.float32
            assert batch["half"].tolist() == [number / 2 for number in batch.sample_ids]
            assert batch["y"].tolist() == [number % 2 for number in batch.sample_ids]


def test_tensors_are_arrays(pack):
    torch = pytest.importorskip("torch")
    with loader(pack, output="torch", fields={"at": torch.arange(SAMPLES, dtype=torch.float32)}) as batches:
        batch = next(iter(batches))
        assert batch["at"].tolist() == batch.sample_ids


def test_a_pickled_loader_keeps_its_fields(pack):
    with pickle.loads(pickle.dumps(loader(pack, fields={"number": numpy.arange(SAMPLES)}))) as batches:
        batch = next(iter(batches))
        assert batch["number"].tolist() == batch.sample_ids


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"number": numpy.arange(SAMPLES - 1)}, '\'number|"number"'),
        ({"number": numpy.arange(SAMPLES, dtype=numpy.float64)}, "astype"),
        ({"number": [1, 2]}, "'number' is no array"),
        ({"number": numpy.array(3)}, "is one number"),
        ({"image": numpy.arange(SAMPLES)}, "prepared image"),
        ({"label": numpy.zeros(SAMPLES, dtype=numpy.float32)}, "one int64"),
        ("missing.csv", "missing.csv"),
    ],
)
def test_fields_that_do_not_fit_are_refused(pack, fields, message):
    with pytest.raises(ddlp.ConfigurationError, match=message):
        loader(pack, fields=fields)
