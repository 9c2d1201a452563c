"""Datasets that are Python objects."""

import importlib.util
import os
import pty
import re
import shutil
import subprocess
import sys
import tarfile
import termios
import time
import traceback
import types

import numpy
import pytest

import ddlp
from conftest import ddlp_command, digests


class Photos:
    """The photographs of a folder, as a program of its own would read them."""

    def __init__(self, folder):
        self.classes = sorted(path.name for path in folder.iterdir())
        self.files = [
            (path, label) for label, name in enumerate(self.classes) for path in sorted((folder / name).iterdir())
        ]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path, label = self.files[index]
        return path.read_bytes(), label


def loader(dataset, **options):
    return ddlp.Loader(dataset, **{"batch_size": 8, "output": "numpy", "dtype": "uint8", "layout": "NHWC", **options})


def test_an_object_is_a_dataset(photos):
    batches, folder = loader(Photos(photos)), loader(photos)
    assert batches.classes == folder.classes
    labels = [label for batch in folder for label in batch.labels]
    folder.set_epoch(0)
    assert digests(batches).ordered == digests(folder).ordered
    batches.set_epoch(0)
    assert [label for batch in batches for label in batch.labels] == labels
    assert "Photos" in repr(batches)


def test_a_state_goes_on_with_an_equal_object(photos):
    iteration = iter(batches := loader(Photos(photos)))
    next(iteration), next(iteration)
    resumed = loader(Photos(photos))
    resumed.load_state_dict(batches.state_dict())
    assert [batch.index for batch in resumed] == [2, 3, 4, 5, 6, 7]
    shorter = Photos(photos)
    del shorter.files[-1]
    with pytest.raises(ddlp.ConfigurationError, match="another dataset"):
        loader(shorter).load_state_dict(batches.state_dict())


@pytest.mark.parametrize("kind", [bytearray, memoryview, lambda data: numpy.frombuffer(data, numpy.uint8)])
def test_bytes_may_be_any_buffer_and_labels_any_integer(photos, kind):
    class Buffers(Photos):
        def __getitem__(self, index):
            data, label = super().__getitem__(index)
            return kind(data), numpy.int64(label)

    assert digests(loader(Buffers(photos))).ordered == digests(loader(photos)).ordered


def test_what_an_object_raises_ends_the_run_with_its_traceback(photos):
    class Failing(Photos):
        def __getitem__(self, index):
            if index == 33:
                raise KeyError("no such key")
            return super().__getitem__(index)

    with pytest.raises(ddlp.UnavailableError, match="item 33 of the dataset.*KeyError: 'no such key'") as caught:
        for _ in loader(Failing(photos), policy="skip"):
            pass
    cause = caught.value.__cause__
    assert isinstance(cause, KeyError)
    assert "__getitem__" in "".join(traceback.format_tb(cause.__traceback__))


@pytest.mark.parametrize(
    ("item", "part"),
    [
        (3, "item 0 of .* is a int, but must be"),
        ("photo.jpg", "a str"),
        (({"path": "photo.jpg"}, 3), "is .a dict, …., but must be"),
        ((b"photo", "cat"), "is .bytes, a str., but must be"),
        ((b"photo", -1), "is -1, but labels lie between 0 and"),
        (
            (numpy.zeros((8, 8, 3), "float32"), 0),
            r"is .a numpy.ndarray of shape .8, 8, 3., …., .*, such as path.read_bytes.*, or the image before its",
        ),
        ((numpy.zeros(9, "float32"), 0), r"is .a numpy.ndarray of shape .9,., …., but must be"),
    ],
)
def test_items_that_are_no_samples_are_described(item, part):
    with pytest.raises(ddlp.UnavailableError, match=part) as caught:
        loader([item])
    assert isinstance(caught.value.__cause__, (TypeError, ValueError))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_exception_that_ends_the_program_stays_as_it_is(photos, tmp_path, kind):
    class Ending(Photos):
        def __getitem__(self, index):
            if index == 33:
                raise kind
            return super().__getitem__(index)

    with pytest.raises(kind):
        list(loader(Ending(photos)))
    with pytest.raises(kind):
        ddlp.pack(Ending(photos), tmp_path / "out.ddlp", progress=False)


def test_a_table_that_its_library_cannot_export_is_named():
    class Mixed:
        def __arrow_c_stream__(self, requested_schema=None):
            raise TypeError("Expected bytes, got a 'int' object")

    with pytest.raises(
        ddlp.ConfigurationError, match="the .*Mixed cannot be read as a table.*: TypeError: Exp"
    ) as caught:
        loader(Mixed())
    assert isinstance(caught.value.__cause__, TypeError)


def test_all_items_of_a_list_are_checked_at_once(photos):
    items = [Photos(photos)[index] for index in range(6)]
    with pytest.raises(ddlp.UnavailableError, match="item 4 of the dataset, a list, .*item 4 of list is .a numpy.nd"):
        loader([*items[:4], (numpy.zeros((8, 8, 3), "float32"), 0), items[5]])
    with pytest.raises(ddlp.UnavailableError, match="the label of item 2 of tuple is -1"):
        loader((*items[:2], (items[2][0], -1), *items[3:]))
    assert ddlp.Dataset(items).targets.tolist() == [label for _, label in items]
    with loader(items, batch_size=2) as batches:
        state = batches.state_dict()
    loader(list(items), batch_size=2).load_state_dict(state)
    for others in ([*items[:5], items[4]], [*items[:5], (items[5][0], items[5][1] + 1)]):
        with loader(others, batch_size=2) as batches, pytest.raises(ddlp.ConfigurationError, match="another dataset"):
            batches.load_state_dict(state)


def test_a_list_of_files_needs_labels_of_this_name(photos, tmp_path):
    first = next(photos.rglob("*.jpg"))
    path = tmp_path / "list.csv"
    path.write_text(f"path,target\n{first},3\n")
    said = r"line 1: no column is called label .the columns are path, target.: rename the column of labels"
    with pytest.raises(ddlp.UnavailableError, match=said):
        loader(path)
    path.write_text(f"path\n{first}\n")
    assert ddlp.Dataset(path).targets.tolist() == [0]


def test_class_names_that_are_not_unicode_are_named(photos):
    latin = Photos(photos)
    latin.classes = [os.fsdecode(name) for name in (b"caf\xe8", b"caf\xe9")]
    with pytest.raises(ddlp.ConfigurationError, match=r"class 'caf.udce8' is not Unicode text.*rename it"):
        loader(latin)


@pytest.mark.parametrize("index", [0, 40])
@pytest.mark.parametrize("kind", ["raises", "a path", "a label beyond the classes"])
def test_the_first_item_fails_as_any_other(photos, kind, index):
    class Wrong(Photos):
        def __getitem__(self, at):
            data, label = super().__getitem__(at)
            if at != index:
                return data, label
            if kind == "raises":
                raise KeyError("no such key")
            return ("photo.jpg", label) if kind == "a path" else (data, 10)

    cause = {"raises": KeyError, "a path": TypeError, "a label beyond the classes": ValueError}[kind]
    with pytest.raises(ddlp.UnavailableError, match=f"item {index} of the dataset, a .*Wrong") as caught:
        for _ in loader(Wrong(photos)):
            pass
    assert type(caught.value.__cause__) is cause
    with pytest.raises(ddlp.UnavailableError, match=f"item {index} of ") as caught:
        ddlp.pack(Wrong(photos), photos.parent / "wrong.ddlp", progress=False)
    assert type(caught.value.__cause__) is cause


def test_a_program_that_is_to_end_during_the_first_item_ends():
    class Ending(list):
        def __getitem__(self, index):
            sys.exit(3)

    with pytest.raises(SystemExit):
        loader(Ending([0]))


def test_a_label_beyond_the_classes_is_named(photos):
    wrong = Photos(photos)
    wrong.files[40] = (wrong.files[40][0], 10)
    with pytest.raises(ddlp.UnavailableError, match="label of item 40 .* is 10, but its classes are numbered 0 to 9"):
        for _ in loader(wrong):
            pass


def test_an_item_is_always_the_same_pair(photos):
    class Random(Photos):
        def __init__(self, folder):
            super().__init__(folder)
            self.asked = 0

        def __getitem__(self, index):
            self.asked += index == 7
            data, label = super().__getitem__(index)
            return data, (self.asked % 2 if index == 7 else label)

    batches = loader(Random(photos), epochs=2)
    with pytest.raises(ddlp.UnavailableError, match="label of item 7 .* is 0, but was 1 before"):
        for _ in batches:
            pass
        batches.set_epoch(1)
        for _ in batches:
            pass


def test_an_object_that_is_not_safe_for_threads_mixes_up_nothing(photos):
    class Unsafe(Photos):
        def __getitem__(self, index):
            self.at = index
            # Lets other threads run.
            time.sleep(0.002)
            return super().__getitem__(self.at)

    expected = digests(loader(Photos(photos))).ordered
    assert digests(loader(Unsafe(photos), threads=4)).ordered == expected


def test_an_endless_object_is_refused():
    class Endless(list):
        def __len__(self):
            return 2**62

    with pytest.raises(ddlp.ConfigurationError, match="at most 1073741824 .*epoch_samples"):
        loader(Endless())


def test_an_item_that_is_no_image_is_corrupt(photos):
    wrong = Photos(photos)

    class Damaged(Photos):
        def __getitem__(self, index):
            return (b"no image", 0) if index == 7 else super().__getitem__(index)

    assert sorted(digests(loader(Damaged(photos), policy="skip")).samples) == [n for n in range(len(wrong)) if n != 7]
    with pytest.raises(ddlp.CorruptError, match="item 7"):
        for _ in loader(Damaged(photos)):
            pass


def test_what_is_no_dataset_is_refused(photos):
    for nothing in [3, object(), {1, 2}]:
        with pytest.raises(TypeError):
            loader(nothing)
    with pytest.raises(ddlp.ConfigurationError, match="is empty"):
        loader([])
    with pytest.raises(ddlp.ConfigurationError, match="ddlp.pack"):
        loader(Photos(photos), drives="local")


def test_an_object_is_packed_like_its_files(photos, tmp_path):
    seen = []
    figures = ddlp.pack(Photos(photos), tmp_path / "object.ddlp", progress=lambda *now: seen.append(now))
    ddlp.pack(str(photos), str(tmp_path / "folder.ddlp"), verify=True, progress=False)
    assert figures["samples"] == 60 and figures["rejected"] == figures["repaired"] == []
    assert figures["file_bytes"] == (tmp_path / "object.ddlp").stat().st_size
    assert ("packing", 60, 60) in seen and seen[-1][0] == "syncing"
    expected = digests(loader(photos)).ordered
    with loader(tmp_path / "object.ddlp") as batches:
        assert batches.classes == Photos(photos).classes
        assert digests(batches).ordered == digests(loader(tmp_path / "folder.ddlp")).ordered == expected


def test_pack_has_the_options_of_the_command(photos, tmp_path):
    by_command, by_python = tmp_path / "command.ddlp", tmp_path / "python.ddlp"
    ddlp_command("pack", photos, by_command, "--format", "raw", "--max-side", 100)
    ddlp.pack(photos, by_python, format="raw", max_side=100, threads=1)
    assert by_python.read_bytes() == by_command.read_bytes()
    ddlp_command("pack", photos, by_command, "--jpeg", "rows", "--force")
    ddlp.pack(photos, by_python, jpeg="rows", force=True, strict=True)
    assert by_python.read_bytes() == by_command.read_bytes()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({}, "exists: .*force=True"),
        ({"format": "png"}, 'is "png", but must be one of "encoded", "raw"'),
        ({"jpeg": "whole"}, 'is "whole", but must be one of'),
        ({"format": "raw", "jpeg": "kept"}, "stores no files"),
        ({"max_side": 3}, "needs"),
        ({"format": "raw", "max_side": 0}, "must be 1 to 65535"),
        ({"format": "raw", "max_side": -1}, "`max_side` is -1, but must be 1 to 65535"),
        ({"format": "raw", "max_side": 1.5}, "`max_side` is 1.5, but must be a whole number"),
        ({"threads": -1}, "`threads` is -1, but must be 1 to 1024"),
    ],
)
def test_what_pack_cannot_do_is_named(photos, pack, options, part):
    with pytest.raises(ddlp.ConfigurationError, match=part):
        ddlp.pack(photos, pack, **options)


def test_pack_says_what_is_wrong_with_its_source(photos, tmp_path):
    out = tmp_path / "out.ddlp"
    with pytest.raises(ddlp.UnavailableError, match="missing"):
        ddlp.pack("missing", out)
    with pytest.raises(ddlp.ConfigurationError, match="belongs to"):
        ddlp.pack(photos, photos / Photos(photos).classes[0] / "out.ddlp")
    with pytest.raises(ddlp.SystemRefusedError, match="cannot create"):
        ddlp.pack(photos, tmp_path / "no folder" / "out.ddlp")

    class Failing(Photos):
        def __getitem__(self, index):
            if index == 33:
                raise KeyError("no such key")
            return super().__getitem__(index)

    with pytest.raises(ddlp.UnavailableError, match="item 33") as caught:
        ddlp.pack(Failing(photos), out)
    assert isinstance(caught.value.__cause__, KeyError)
    figures = ddlp.pack(Failing(photos), tmp_path / "others.ddlp", allow_unreadable=True)
    assert [name for name, _ in figures["rejected"]] == ["item 33"]

    class Damaged(Photos):
        def __getitem__(self, index):
            return (b"no image", 0) if index == 7 else super().__getitem__(index)

    with pytest.raises(ddlp.CorruptError, match="item 7"):
        ddlp.pack(Damaged(photos), out, strict=True)
    assert not out.exists()
    assert [name for name, _ in ddlp.pack(Damaged(photos), out)["rejected"]] == ["item 7"]


def test_packing_can_be_interrupted(photos, tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ddlp.pack(str(photos), tmp_path / "out.ddlp", progress=interrupt)
    assert list(tmp_path.iterdir()) == []


# Packs a folder on a terminal; with an argument, without tqdm.
ON_A_TERMINAL = """
import sys
import tarfile
if sys.argv[3:]:
    sys.modules["tqdm"] = None
import ddlp
ddlp.pack(sys.argv[1], sys.argv[2], force=True)
"""


@pytest.mark.parametrize("without_tqdm", [[], ["without"]])
def test_packing_shows_its_progress_on_a_terminal(photos, tmp_path, without_tqdm):
    if not without_tqdm:
        pytest.importorskip("tqdm")
    shown, program = pty.openpty()
    termios.tcsetwinsize(program, (24, 100))
    command = [sys.executable, "-c", ON_A_TERMINAL, photos, tmp_path / "out.ddlp", *without_tqdm]
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=program)
    os.close(program)
    said = b""
    try:
        while part := os.read(shown, 4096):
            said += part
    except OSError:
        # Linux reports the end of a terminal as an error.
        pass
    os.close(shown)
    assert re.search(r"\b60 of 60 images|\b60/60 ", said.decode()), said


def photos_table(photos, **columns):
    pyarrow = pytest.importorskip("pyarrow")
    samples = [sample for sample in map(Photos(photos).__getitem__, range(60))]
    files, labels = zip(*samples, strict=True)
    columns = {"image": pyarrow.array(files), "label": pyarrow.array(labels), **columns}
    return pyarrow.table(columns)


def test_a_table_is_a_dataset(photos):
    import pyarrow

    table = photos_table(photos)
    classes = Photos(photos).classes
    nested = pyarrow.array([{"bytes": value.as_py(), "path": None} for value in table["image"]])
    labels = list(map(int, table["label"].to_pylist()))
    expected = digests(loader(photos)).ordered
    for same in [
        table,
        pyarrow.concat_tables([table.slice(0, 7), table.slice(7)]),
        photos_table(photos, image=nested, number=pyarrow.array(range(60))),
        photos_table(photos, image=table["image"].cast(pyarrow.large_binary())),
        photos_table(photos, image=table["image"].cast(pyarrow.binary_view())),
        ddlp.ArrowTable(table.rename_columns(["x", "y"]), image="x", label="y", classes=classes),
    ]:
        batches = loader(same)
        of_samples = {}
        for batch in batches:
            of_samples.update(zip(batch.sample_ids, batch.labels.tolist(), strict=True))
        assert [of_samples[index] for index in range(60)] == labels
        batches.set_epoch(0)
        assert digests(batches).ordered == expected
    assert batches.classes == classes


def hub_column(rows):
    """Returns a column of images as Hugging Face stores it, of pairs of bytes and path."""
    import pyarrow

    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    return pyarrow.array([{"bytes": data, "path": path} for data, path in rows], kind)


def test_a_table_may_name_its_samples(photos):
    table, names = photos_table(photos), [f"image {number}" for number in range(60)]
    named = table.append_column("who", [names])
    dataset = ddlp.Dataset(ddlp.ArrowTable(named, name="who"))
    assert [dataset.name(number) for number in (0, 59)] == ["image 0", "image 59"]
    assert ddlp.Dataset(ddlp.ArrowTable(named)).name(59) == "row 59"
    with pytest.raises(ddlp.ConfigurationError, match="no column x of texts; its columns are image, label, who"):
        ddlp.Dataset(ddlp.ArrowTable(named, name="x"))
    nameless = table.append_column("who", [[None, *names[1:]]])
    with pytest.raises(ddlp.ConfigurationError, match="row 0 of the table has no name"):
        ddlp.Dataset(ddlp.ArrowTable(nameless, name="who"))
    with pytest.raises(ddlp.ConfigurationError, match="name of ddlp.ArrowTable is 3"):
        ddlp.Dataset(ddlp.ArrowTable(named, name=3))


def test_a_table_may_name_files(photos, tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    paths = [str(path) for path, _ in Photos(photos).files]
    expected = digests(loader(photos)).ordered
    files = Photos(photos).files
    half = [(None, str(path)) if row % 2 else (path.read_bytes(), None) for row, (path, _) in enumerate(files)]
    named = photos_table(photos, path=paths).drop_columns(["image"])
    for same in [
        photos_table(photos, image=hub_column(half)),
        ddlp.ArrowTable(named, image="path"),
        ddlp.ArrowTable(
            photos_table(photos, path=pyarrow.array(paths, pyarrow.large_string())).drop_columns(["image"]),
            image="path",
        ),
    ]:
        assert digests(loader(same)).ordered == expected
    ddlp.pack(ddlp.ArrowTable(named, image="path", classes=Photos(photos).classes), tmp_path / "named.ddlp")
    assert digests(loader(tmp_path / "named.ddlp")).ordered == expected
    with pytest.raises(ddlp.ConfigurationError, match="has no column of image files .*"):
        loader(named)
    monkeypatch.chdir(photos)
    below = [str(path.relative_to(photos)) for path, _ in Photos(photos).files]
    assert digests(loader(photos_table(photos, image=hub_column([(None, path) for path in below])))).ordered == expected


def test_a_file_that_a_table_names_and_that_is_missing_ends_the_run(photos, tmp_path):
    files = [(None, str(path)) for path, _ in Photos(photos).files]
    (tmp_path / "folder").mkdir()
    for missing in [tmp_path / "missing.jpg", tmp_path / "folder"]:
        files[40] = (None, str(missing))
        with pytest.raises(ddlp.UnavailableError, match=f"row 40 .*{missing}"):
            for _ in loader(photos_table(photos, image=hub_column(files)), policy="skip"):
                pass


def test_a_table_stays_where_it_is(photos, tmp_path):
    import pyarrow

    table = photos_table(photos)
    with pyarrow.OSFile(str(tmp_path / "photos.arrow"), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as out:
        out.write_table(table)
    with pyarrow.memory_map(str(tmp_path / "photos.arrow")) as file:
        before = pyarrow.total_allocated_bytes()
        batches = loader(pyarrow.ipc.open_file(file).read_all())
        assert digests(batches).ordered == digests(loader(photos)).ordered
        assert pyarrow.total_allocated_bytes() - before < 10_000, "the images lie in the mapped file"


def test_a_table_may_come_from_parquet_polars_or_pandas(photos, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(photos_table(photos), tmp_path / "photos.parquet")
    expected = digests(loader(photos)).ordered
    assert digests(loader(parquet.read_table(tmp_path / "photos.parquet"))).ordered == expected
    if importlib.util.find_spec("polars"):
        import polars

        assert digests(loader(polars.read_parquet(tmp_path / "photos.parquet"))).ordered == expected


def test_a_state_goes_on_with_an_equal_table(photos):
    iteration = iter(batches := loader(photos_table(photos)))
    next(iteration), next(iteration)
    resumed = loader(photos_table(photos))
    resumed.load_state_dict(batches.state_dict())
    assert [batch.index for batch in resumed] == [2, 3, 4, 5, 6, 7]


def test_a_table_that_is_no_dataset_is_explained(photos):
    import pyarrow

    table = photos_table(photos)
    files, labels = table["image"], table["label"]
    for wrong, part in [
        (table.drop_columns(["image"]), "the table has no column of image files .* by ddlp.ArrowTable.table, image="),
        (photos_table(photos, label=files), "no column of whole numbers for the labels"),
        (pyarrow.table({"a": files, "b": labels, "c": labels}), "that has the labels.*b, c"),
        (
            ddlp.ArrowTable(table, image="photo"),
            "no column photo of image files; its columns are image, label",
        ),
        (photos_table(photos, image=pyarrow.array([None] * 60, pyarrow.binary())), "row 0 .* neither bytes"),
        (photos_table(photos, image=hub_column([(None, None)] * 60)), "row 0 .* neither bytes"),
        (photos_table(photos, image=hub_column([(None, "hf://a/b.jpg")] * 60)), "row 0 .* address hf://a/b.jpg"),
        (ddlp.ArrowTable([1, 2]), "builtins.list is not one"),
        (
            ddlp.ArrowTable(photos_table(photos, label=["cat"] * 60), label="label"),
            "the column label of the table holds Utf8, but must hold whole numbers: encode the labels",
        ),
        (photos_table(photos, label=pyarrow.array([0] * 59 + [-1])), "row 59 .* label -1, but labels lie between"),
        (photos_table(photos, label=pyarrow.array([0] * 59 + [2**32 - 1])), "row 59 .* label 4294967295, but labels"),
        (ddlp.ArrowTable(table, classes=["one"]), "but its classes are numbered 0 to 0"),
        (table.slice(0, 0), "is empty"),
    ]:
        with pytest.raises(ddlp.ConfigurationError, match=part):
            loader(wrong)


def test_a_table_with_damaged_offsets_is_refused():
    pyarrow = pytest.importorskip("pyarrow")
    for offsets in [[0, 10, 2**30, 20], [0, 15, 10, 20]]:
        buffers = [None, pyarrow.py_buffer(numpy.array(offsets, numpy.int32)), pyarrow.py_buffer(bytes(20))]
        images = pyarrow.Array.from_buffers(pyarrow.binary(), 3, buffers)
        with pytest.raises(ddlp.ConfigurationError, match="damaged in the 3 rows from row 0"):
            loader(pyarrow.table({"image": images, "label": [0, 1, 2]}))


# Opens a stream of a dataset whose files Python code reads, on threads of pyarrow.
STREAM = """
import faulthandler, sys
import ddlp, pyarrow.dataset
from pyarrow.fs import FSSpecHandler, PyFileSystem
import fsspec
faulthandler.dump_traceback_later(60, exit=True)
files = PyFileSystem(FSSpecHandler(fsspec.filesystem("file")))
stream = pyarrow.dataset.dataset(sys.argv[1], filesystem=files, format="parquet").scanner().to_reader()
print(len(ddlp.Loader(stream, batch_size=1, output="numpy")))
"""


def test_a_stream_may_need_the_interpreter(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("fsspec")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"image": [b"x" * 1000] * 200, "label": [0] * 200})
    parquet.write_table(table, tmp_path / "photos.parquet", row_group_size=20)
    command = [sys.executable, "-c", STREAM, str(tmp_path)]
    assert subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout.strip() == "200"


def test_a_table_is_packed(photos, tmp_path):
    table = photos_table(photos)
    for packed, classes in [
        (table, []),
        (ddlp.ArrowTable(table, classes=Photos(photos).classes), Photos(photos).classes),
    ]:
        ddlp.pack(packed, tmp_path / "table.ddlp", force=True)
        with loader(tmp_path / "table.ddlp") as batches, loader(photos) as expected:
            assert batches.classes == classes
            assert numpy.array_equal(next(iter(batches)).labels, next(iter(expected)).labels)
        assert digests(loader(tmp_path / "table.ddlp")).ordered == digests(loader(photos)).ordered


def test_a_dataset_of_hugging_face_is_a_dataset(photos):
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("PIL")
    samples = Photos(photos)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=samples.classes)})
    rows = [samples[index] for index in range(60)]
    columns = {"image": [{"bytes": data, "path": None} for data, _ in rows], "label": [label for _, label in rows]}
    dataset = datasets.Dataset.from_dict(columns, features=features)
    batches = loader(dataset)
    assert batches.classes == samples.classes
    assert digests(batches).ordered == digests(loader(photos)).ordered
    backwards = loader(dataset.select(range(59, -1, -1)), shuffle=False)
    assert [label for batch in backwards for label in batch.labels] == [label for _, label in reversed(rows)]


def test_a_dataset_of_hugging_face_stays_where_it_is(photos, tmp_path):
    datasets, pyarrow = pytest.importorskip("datasets"), pytest.importorskip("pyarrow")
    pytest.importorskip("PIL")
    files, labels = zip(*map(Photos(photos).__getitem__, range(60)), strict=True)
    columns = {"image": [{"bytes": data, "path": None} for data in files], "label": list(labels)}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(tmp_path / "hub")
    dataset = datasets.load_from_disk(tmp_path / "hub")
    before = pyarrow.total_allocated_bytes()
    batches = loader(dataset)
    assert digests(batches).ordered == digests(loader(photos)).ordered
    assert pyarrow.total_allocated_bytes() - before < sum(map(len, files)) / 10, "the images lie in the mapped files"


def test_a_dataset_of_hugging_face_may_name_files(photos):
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("PIL")
    samples = Photos(photos)
    names = datasets.ClassLabel(names=samples.classes)
    features = datasets.Features({"image": datasets.Image(), "label": names})
    columns = {"image": [str(path) for path, _ in samples.files], "label": [label for _, label in samples.files]}
    dataset, unnamed = datasets.Dataset.from_dict(columns, features=features), datasets.Dataset.from_dict(columns)
    expected = digests(loader(photos)).ordered
    assert digests(loader(dataset)).ordered == expected
    assert digests(loader(ddlp.ArrowTable(unnamed, image="image"))).ordered == expected


def test_a_dataset_of_hugging_face_with_a_transform_is_refused(photos, tmp_path):
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("PIL")
    files, labels = zip(*map(Photos(photos).__getitem__, range(60)), strict=True)
    columns = {"image": [{"bytes": data, "path": None} for data in files], "label": list(labels)}
    dataset = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
    transformed = dataset.with_transform(lambda rows: rows)
    for wrong in [transformed, transformed.select([1, 0]), ddlp.ArrowTable(transformed), ddlp.Mix([transformed])]:
        with pytest.raises(ddlp.ConfigurationError, match="has a transform .*with_format.None.*pipeline"):
            loader(wrong)
    with pytest.raises(ddlp.ConfigurationError, match="has a transform"):
        ddlp.pack(transformed, tmp_path / "wrong.ddlp")
    # A format that only names the type of arrays changes no image.
    expected = digests(loader(photos)).ordered
    for same in [transformed.with_format(None), dataset.with_format("numpy"), dataset.with_format("arrow")]:
        assert digests(loader(same)).ordered == expected
    gray = dataset.cast_column("image", datasets.Image(mode="L"))
    for wrong in [gray, ddlp.ArrowTable(gray, image="image")]:
        with pytest.raises(ddlp.ConfigurationError, match="'image' .* the mode 'L', but the loader makes RGB"):
            loader(wrong)


def test_a_transform_is_found_in_a_dataset_that_only_looks_like_one_of_hugging_face(monkeypatch, tmp_path):
    """Needs no package: a stub has what the loader asks a dataset of Hugging Face for."""

    class Dataset:
        format = {"type": "custom"}

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(Dataset=Dataset))
    dataset = Dataset()
    for wrong in [dataset, ddlp.ArrowTable(dataset), ddlp.Mix([dataset])]:
        with pytest.raises(ddlp.ConfigurationError, match="has a transform .*with_format.None.*pipeline"):
            loader(wrong)
    with pytest.raises(ddlp.ConfigurationError, match="has a transform"):
        ddlp.pack(dataset, tmp_path / "wrong.ddlp")


def test_what_hugging_face_has_that_is_no_dataset_is_explained(photos):
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict({"image": [b"x"], "label": [0]})
    for wrong, part in [
        (dataset.to_iterable_dataset(), "streams its samples .*without streaming=True"),
        (datasets.DatasetDict({"train": dataset, "test": dataset}), "give one of them, by its name .'train', 'test'."),
    ]:
        with pytest.raises(ddlp.ConfigurationError, match=part):
            loader(wrong)
        with pytest.raises(ddlp.ConfigurationError, match=part):
            ddlp.pack(wrong, photos.parent / "wrong.ddlp")


def test_kind_decides_what_a_folder_is(photos, tmp_path):
    shutil.copytree(photos / "class_000", tmp_path / "both" / "class_000")
    image = next((photos / "class_001").iterdir())
    with tarfile.open(tmp_path / "both" / "0.tar", "w") as shard:
        shard.add(image, "0.jpg")
    with pytest.raises(ddlp.UnavailableError, match="say by `kind` which one it is .tar or folder"):
        loader(tmp_path / "both")
    for drives in [[], "local"]:
        for kind, samples in [("tar", 1), ("folder", 6)]:
            with loader(tmp_path / "both", kind=kind, drives=drives, strategy="csd" if drives else "cpu") as batches:
                assert sum(len(batch.images) for batch in batches) == batches.samples == samples
    figures = ddlp.pack(tmp_path / "both", tmp_path / "both.ddlp", kind="tar", progress=False)
    assert figures["samples"] == 1
    with pytest.raises(ddlp.ConfigurationError, match="`kind`.*zip.*folder.*tar"):
        loader(tmp_path / "both", kind="zip")
    with pytest.raises(ddlp.ConfigurationError, match="`kind`.*zip.*folder, list, tar"):
        ddlp.pack(tmp_path / "both", tmp_path / "zip.ddlp", kind="zip", progress=False)
    with pytest.raises(ddlp.ConfigurationError, match="only a path can be of several kinds"):
        loader(ddlp.Mix([photos]), kind="folder")
