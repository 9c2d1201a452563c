"""Files of splits: `ddlp.split(..., out=...)`, `ddlp split`, and the option `split`."""

import json
import pathlib
import threading

import pytest

import ddlp
from conftest import ddlp_command

numpy = pytest.importorskip("numpy", reason="NumPy is not installed")


def ids(place, **options):
    with ddlp.Loader(place, batch_size=5, drives=[], output="numpy", **options) as loader:
        return sorted(sample_id for batch in loader for sample_id in batch.sample_ids)


@pytest.mark.parametrize("balance", [None, "original", "class"])
def test_the_package_and_the_command_write_the_same_file(pack, tmp_path, balance):
    file, other = tmp_path / "splits.json", tmp_path / "other.json"
    where = "id < 48"
    parts = ddlp.split(pack, (0.7, 0.2, 0.1), balance=balance, where=where, seed=5, out=file)
    ddlp_command(
        *("split", pack, "--ratios", "0.7,0.2,0.1", "--balance", balance or "none", "--where", where, "--seed", "5"),
        *("--out", other),
    )
    assert file.read_bytes() == other.read_bytes()
    read = ddlp.read_split(file)
    assert list(read) == ["train", "val", "test"]
    for part, (name, indices) in zip(parts, read.items(), strict=True):
        assert part.tolist() == indices.tolist() == ids(pack, split=f"{file}:{name}")
    assert not set(read["train"]) & set(read["val"]) and max(read["train"]) < 48
    if balance == "class":
        targets = ddlp.Dataset(pack).targets
        counts = [numpy.bincount(targets[indices]).tolist() for indices in read.values()]
        assert all(len(set(count)) == 1 for count in counts)


def test_one_share_is_that_of_the_command(pack, tmp_path):
    other = tmp_path / "other.json"
    ddlp_command("split", pack, "--ratios", "1", "--where", "id < 50", "--out", other)
    for name, parts in [("int", (1,)), ("list", [1]), ("float", (1.0,))]:
        ddlp.split(pack, parts, where="id < 50", out=tmp_path / name)
        assert (tmp_path / name).read_bytes() == other.read_bytes()


def test_a_file_is_replaced_as_a_whole(pack, tmp_path):
    file, link = tmp_path / "splits.json", tmp_path / "link.json"
    link.symlink_to(file)
    for seed in range(3):
        ddlp.split(pack, (0.5, 0.5), seed=seed, out=link)
    assert link.is_symlink() and sorted(tmp_path.iterdir()) == [link, file]
    written = [threading.Thread(target=ddlp.split, args=(pack, (0.5, 0.5)), kwargs={"out": file}) for _ in range(4)]
    for thread in written:
        thread.start()
    while any(thread.is_alive() for thread in written):
        assert list(ddlp.read_split(file)) == ["train", "val"]
    assert sorted(tmp_path.iterdir()) == [link, file]


def test_no_file_of_the_dataset_is_replaced(pack, photos, tmp_path):
    linked = tmp_path / "linked.json"
    linked.symlink_to(pack)
    image, other = (pathlib.Path(path) for path, _ in ddlp.Dataset(photos).samples[:2])
    hard = photos.parent / "hard.json"
    hard.hardlink_to(image)
    before = pack.read_bytes(), image.read_bytes()
    listed = tmp_path / "list.csv"
    listed.write_text(f"path,label\n{image},0\n{other},1\n")
    for place, out in [
        *((pack, out) for out in (pack, linked, pack.with_name("classes.txt"))),
        *((photos, out) for out in (image, hard, image.with_name("new.json"), photos / "x.tar", photos / "new.PNG")),
        (listed, listed),
    ]:
        with pytest.raises(ddlp.ConfigurationError, match="belongs to the dataset"):
            ddlp.split(place, (0.5, 0.5), out=out)
    hard.unlink()
    assert (pack.read_bytes(), image.read_bytes()) == before and "label" in listed.read_text()


def test_divisions_of_any_kind_can_be_kept(pack, tmp_path):
    file = tmp_path / "splits.json"
    few, many = ddlp.split(pack, (10, 30), indices=range(40), by=[0, 1] * 30, names=["few", "many"], out=file)
    assert ids(pack, split=f"{file}:few") == few.tolist() and ids(pack, split=f"{file}:many") == many.tolist()
    assert json.loads(file.read_text())["query"] is None


def test_a_state_keeps_to_its_split(pack, tmp_path):
    file = tmp_path / "splits.json"
    ddlp.split(pack, (0.5, 0.5), out=file)
    options = {"batch_size": 5, "drives": [], "epochs": 2, "output": "numpy"}
    with ddlp.Loader(pack, split=f"{file}:train", **options) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with ddlp.Loader(pack, split=f"{file}:val", **options) as loader:
        with pytest.raises(ddlp.ConfigurationError, match="part train of the split"):
            loader.load_state_dict(state)


def test_what_does_not_fit_is_named(pack, photos, tmp_path):
    file = tmp_path / "splits.json"
    ddlp.split(pack, (0.5, 0.5), out=file)
    for place, split, said in [
        (photos, f"{file}:train", "it divides another dataset"),
        (pack, f"{file}:test", "its parts are train, val"),
        (pack, str(file), "a colon and the name of a part"),
        (pack, 3, "`split` is 3"),
        (pack, f"{pack}:train", "is no file of a split"),
    ]:
        with pytest.raises(ddlp.ConfigurationError, match=said):
            ddlp.Loader(place, batch_size=5, drives=[], output="numpy", split=split)
    with pytest.raises(ddlp.ConfigurationError, match="`split` and `indices`"):
        ddlp.Loader(pack, batch_size=5, drives=[], output="numpy", split=f"{file}:train", indices=[1])
    for arguments, said in [
        ({"where": "lable = 1"}, "there is no column lable"),
        ({"where": 3}, "`where` is 3"),
        ({"where": "id < 9", "indices": [1]}, "`where` and `indices`"),
        ({"balance": "fair"}, "balance is 'fair'"),
        ({"balance": "class", "by": [1] * 60}, "`by` and `balance`"),
        ({"names": ["a", "b"]}, "`names` are those of the parts"),
        ({"out": file, "names": ["a"]}, "1 names for 2 parts"),
        ({"out": tmp_path / "none" / "s.json"}, "cannot be written"),
    ]:
        with pytest.raises(ddlp.ConfigurationError, match=said):
            ddlp.split(pack, (0.5, 0.5), **arguments)
