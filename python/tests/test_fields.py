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


def table_of(photos):
    """A table about the photographs in another order, and about a sample that is not there."""
    pyarrow = pytest.importorskip("pyarrow")
    names = sorted(str(path.relative_to(photos).with_suffix("")) for path in photos.rglob("*.jpg"))
    numbers = [*reversed(range(SAMPLES)), -1]
    return pyarrow.table(
        {
            "name": [*reversed(names), "elsewhere"],
            "number": pyarrow.array(numbers, pyarrow.int16()),
            "box": pyarrow.array([[number / 2, 0.1] for number in numbers], pyarrow.list_(pyarrow.float32())),
            "on": [number % 2 == 0 for number in numbers],
            "label": ["even" if number % 2 == 0 else "odd" for number in numbers],
        }
    )


@pytest.mark.parametrize("kind", ["memory", "parquet"])
def test_a_table_in_memory_or_parquet_gives_fields_by_the_names_of_samples(photos, tmp_path, kind):
    table = table_of(photos)
    if kind == "parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, tmp_path / "table.parquet")
        table = tmp_path / "table.parquet"
    with pickle.loads(pickle.dumps(loader(photos, fields=table))) as batches:
        assert batches.classes == ["even", "odd"]
        for batch in batches:
            ids = numpy.array(batch.sample_ids)
            assert list(batch) == ["image", "label", "number", "box", "on"]
            assert batch["number"].dtype == numpy.int64 and (batch["number"] == ids).all()
            assert (batch["box"] == numpy.stack([ids / 2, numpy.full(len(ids), 0.1)], 1).astype("float32")).all()
            assert (batch["on"] == (ids % 2 == 0)).all() and (batch["label"] == ids % 2).all()


def test_whole_numbers_of_a_table_are_labels_even_as_floats(photos):
    pyarrow, table = pytest.importorskip("pyarrow"), table_of(photos).select(["name", "number"]).slice(0, SAMPLES)
    labels = table["number"].cast(pyarrow.float64())
    with loader(photos, fields=pyarrow.table({"name": table["name"], "label": labels})) as batches:
        for batch in batches:
            assert batch["label"].tolist() == batch.sample_ids


def test_a_table_that_does_not_fit_says_where_and_why(photos, tmp_path):
    table = table_of(photos)
    pyarrow = pytest.importorskip("pyarrow")
    numbers = [float(number) for number in range(table.num_rows)]

    def labelled(label):
        return table.select(["name"]).append_column("label", pyarrow.array([*numbers[:7], label, *numbers[8:]]))

    (tmp_path / "broken.parquet").write_text("no table")
    for fields, message in [
        (table.slice(3), "Table has no row for 3 of the 60 samples"),
        (table.select(["number", "name"]), "the first column of .*Table must be texts"),
        (table.set_column(1, "number", [[None] * table.num_rows]), "row 0: column 'number' is None"),
        (table.select(["name"]), "at least two columns"),
        (labelled(-1.0), 'row 7: column "label": the label -1.0 is a number, but not a class index'),
        (labelled(0.5), 'row 7: column "label": the label 0.5 is a number, but not a class index'),
        (labelled(float("nan")), "row 7: column 'label' is nan"),
        (labelled(None), "row 7: column 'label' is None"),
        (tmp_path / "broken.parquet", "cannot read the fields in .*broken.parquet"),
        (tmp_path / "missing.parquet", "cannot read the fields in .*missing.parquet"),
        (7, "builtins.int, but must be a mapping"),
    ]:
        with pytest.raises(ddlp.ConfigurationError, match=message):
            loader(photos, fields=fields)


def test_a_text_has_the_labels_in_the_order_of_the_dataset(photos, tmp_path):
    text = tmp_path / "labels.txt"
    text.write_text("\n".join("ab"[number % 2] for number in range(SAMPLES)))
    with loader(photos, fields=text) as batches:
        assert batches.classes == ["a", "b"]
        for batch in batches:
            assert batch["label"].tolist() == [number % 2 for number in batch.sample_ids]


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
        ({"number": [1, 2]}, "'number' is not an array"),
        ({"number": numpy.array(3)}, "is one number"),
        ({"image": numpy.arange(SAMPLES)}, "prepared image"),
        ({"label": numpy.zeros(SAMPLES, dtype=numpy.float32)}, "one int64"),
        ({3: numpy.arange(SAMPLES)}, "a field is 3"),
        ("missing.csv", "missing.csv"),
    ],
)
def test_fields_that_do_not_fit_are_refused(pack, fields, message):
    with pytest.raises(ddlp.ConfigurationError, match=message):
        loader(pack, fields=fields)


def test_a_field_named_like_images_or_labels_is_refused(pack, photos, tmp_path):
    table = tmp_path / "table.csv"
    names = sorted(str(path.relative_to(photos)) for path in photos.rglob("*.jpg"))
    table.write_text("name,x\n" + "\n".join(f"{name},1" for name in names))
    numbers = {"x": numpy.arange(SAMPLES)}
    for dataset, fields, images_and_labels in [
        (pack, numbers, ("x", "y")),
        (pack, numbers, ("y", "x")),
        (photos, table, ("x", "y")),
    ]:
        with pytest.raises(ddlp.ConfigurationError, match="field is named 'x'"):
            loader(dataset, fields=fields, names=images_and_labels)
    with loader(pack, fields={"label": numpy.arange(SAMPLES)}, names=("image", "label")) as batches:
        batch = next(iter(batches))
        assert batch["label"].tolist() == batch.sample_ids


def test_a_tensor_with_a_gradient_gives_its_values(pack):
    class Tensor:
        """A tensor that needs a gradient, as PyTorch has them."""

        def detach(self):
            return numpy.arange(SAMPLES)

        def numpy(self):
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")

    with loader(pack, fields={"number": Tensor()}) as batches:
        batch = next(iter(batches))
        assert batch["number"].tolist() == batch.sample_ids


def test_a_pickled_loader_finds_its_table_and_pipeline_from_another_folder(photos, tmp_path, monkeypatch):
    names = sorted(str(path.relative_to(photos)) for path in photos.rglob("*.jpg"))
    (tmp_path / "table.csv").write_text("name,x\n" + "\n".join(f"{name},1" for name in names))
    (tmp_path / "small.toml").write_text("[[operations]]\nrandom_resized_crop = { size = 32 }\n")
    monkeypatch.chdir(tmp_path)
    with loader(photos, fields="table.csv", pipeline={0: ["small.toml"]}) as batches:
        pickled = pickle.dumps(batches)
    monkeypatch.chdir("/")
    with pickle.loads(pickled) as batches:
        batch = next(iter(batches))
        assert batch["x"].tolist() == [1] * 16 and batch["image"].shape == (16, 3, 32, 32)
