"""Exceptions: each kind has its class, and its message says what to do."""

import enum
import math
from pathlib import Path

import numpy
import pytest

import ddlp


@pytest.mark.parametrize(
    ("options", "error", "part"),
    [
        ({"batch_size": 0}, ddlp.ConfigurationError, "`batch_size` is 0"),
        ({"batch_size": "many"}, ddlp.ConfigurationError, '`batch_size` is "many", but must be a whole number from 1'),
        ({"strategy": "fast"}, ddlp.ConfigurationError, '`strategy` is "fast", but must be "ordered", "mte"'),
        ({"policy": "ignore"}, ddlp.ConfigurationError, '`policy` is "ignore", but must be "fail"'),
        ({"threads": -1}, ddlp.ConfigurationError, "`threads` is -1, but must be a whole number from 1 to 1024"),
        ({"drives": ddlp.LocalDrive(threads="two")}, ddlp.ConfigurationError, '`threads` is "two"'),
        ({"output": "tensorflow"}, ddlp.ConfigurationError, "numpy"),
        ({"dtype": "float64"}, ddlp.ConfigurationError, '`dtype` is "float64"'),
        ({"dtype": "uint8", "normalize": ddlp.IMAGENET}, ddlp.ConfigurationError, "normalize"),
        ({"pipeline": "imagenet"}, ddlp.ConfigurationError, "imagenet-train"),
        ({"pipeline": 224}, TypeError, "pipeline"),
        ({"pipeline": "missing.toml"}, ddlp.ConfigurationError, "missing.toml cannot be read"),
        ({"strategy": "csd"}, ddlp.ConfigurationError, "needs a drive"),
        ({"buffers": 1}, ddlp.ConfigurationError, "`buffers` is 1"),
        ({"rank": 1}, ddlp.ConfigurationError, "world_size"),
        ({"rank": 2, "world_size": 2}, ddlp.ConfigurationError, "less than 2"),
        ({"last": "drop", "batch_size": 512}, ddlp.ConfigurationError, "no whole batch"),
        ({"drives": "tcp://127.0.0.1:1/nqn.2024-01.org.example:none"}, ddlp.DriveError, "agent"),
        ({"drives": ddlp.LocalDrive(agent="/no/such/agent")}, ddlp.DriveError, "/no/such/agent"),
        ({"drives": ddlp.LocalDrive(throttle=2.0)}, ddlp.ConfigurationError, "throttle"),
        ({"drives": [3]}, TypeError, "not a drive"),
        ({"drives": "none"}, ddlp.ConfigurationError, '"auto", /dev/nvmeX'),
        ({"drives": "usual"}, ddlp.ConfigurationError, "an empty list stands for no drive"),
        ({"normalize": (1, 2)}, ddlp.ConfigurationError, "must be mean and standard deviation"),
        ({"normalize": 1}, ddlp.ConfigurationError, "such as ddlp.IMAGENET"),
        ({"normalize": ((1, 2, 3),)}, ddlp.ConfigurationError, "`normalize` is"),
        ({"epoch_samples": 5_000_000_000}, ddlp.ConfigurationError, "from 1 to 4294967295"),
        ({"epochs": 0}, ddlp.ConfigurationError, "`epochs` is 0, but must be a whole number from 1 to 4294967295"),
        ({"epochs": 2**32}, ddlp.ConfigurationError, "`epochs` is 4294967296, but must be"),
        ({"epochs": 1.5}, ddlp.ConfigurationError, "epochs is 1.5, but must be a whole number"),
        ({"pipeline": {0: "imagenet-val", 1.5: "imagenet-val"}}, ddlp.ConfigurationError, "pipeline is 1.5, but must"),
        ({"pipeline": {0: "imagenet-val", "1": "imagenet-val"}}, ddlp.ConfigurationError, "pipeline is '1', but must"),
        ({"normalize": ((0, 0, 0), (1, 1, math.inf))}, ddlp.ConfigurationError, "`normalize` is .* finite numbers"),
        ({"drives": ddlp.LocalDrive(throttle=math.nan)}, ddlp.ConfigurationError, "`drives` is .* finite numbers"),
        ({"mixup": numpy.float32("nan")}, ddlp.ConfigurationError, "`mixup` is nan, but must have finite numbers"),
        (
            {"batch_size": object()},
            TypeError,
            "`batch_size` is <object .*, but must be a number, a truth value, a text",
        ),
        ({"drives": Path("/dev/nvme777")}, ddlp.DriveError, "/dev/nvme777"),
        ({"drives": ddlp.LocalDrive(agent=Path("/no/such/agent"))}, ddlp.DriveError, "/no/such/agent"),
        ({"batchsize": 3}, TypeError, "batchsize"),
        (
            {"num_workers": 8, "collate_fn": list},
            TypeError,
            r"num_workers=8 .give the number of threads as threads.; collate_fn=<class 'list'> .call the function on",
        ),
        ({"output": []}, ddlp.ConfigurationError, r"output is \[\], but must be one of torch, numpy"),
        ({"names": 3}, ddlp.ConfigurationError, "names is 3, but must be two names"),
        ({"cores": ["a"]}, ddlp.ConfigurationError, "a number in cores is 'a', but must be a whole number"),
        (
            {"drives": ddlp.LocalDrive(cores=3)},
            ddlp.ConfigurationError,
            "cores is 3, but must be a list of the numbers",
        ),
        ({"drives": ddlp.LocalDrive(agent=3)}, TypeError, "agent is 3, but must be the path of a program"),
        ({"shuffle": None}, ddlp.ConfigurationError, "`shuffle` is None, but must be True or False"),
        ({"drive_optional": "yes"}, ddlp.ConfigurationError, '`drive_optional` is "yes", but must be True or False'),
        ({"dtype": numpy.float32}, ddlp.ConfigurationError, 'must be the name of a type, such as "float32"'),
        ({"cores": 0}, ddlp.ConfigurationError, r"cores is 0, but must be a list .* such as \[0, 1\]"),
        ({"drives": True}, TypeError, "drives is True, but must be a drive or a list of drives"),
        ({"drive_timeout_s": 0}, ddlp.ConfigurationError, "`drive_timeout_s` is 0, but must be a number of seconds"),
        (
            {"stall_after_s": 0},
            ddlp.ConfigurationError,
            "`stall_after_s` is 0, but must be a number of",
        ),
        ({"normalize": ((123.7, 116.3, 103.5), (58, 57, 57))}, ddlp.ConfigurationError, "divide both by 255"),
        ({"device": "cuda:0"}, ddlp.ConfigurationError, "NumPy has no arrays on a GPU: choose the output"),
        ({"device": "gpu"}, ddlp.ConfigurationError, 'device is \'gpu\', but must be "cpu", "cuda" or "cuda:N"'),
        ({"device": 0}, ddlp.ConfigurationError, "device is 0, but must be"),
        ({"device": "cuda0", "output": "dlpack"}, ddlp.ConfigurationError, "a device is cuda or cuda:N"),
        ({"pipeline": {0: "imagenet-val", 9: ["imagenet-val"] * 33}}, ddlp.ConfigurationError, "33 pipelines"),
    ],
)
def test_wrong_options_are_named(pack, options, error, part):
    with pytest.raises(error, match=part):
        ddlp.Loader(pack, **{"output": "numpy", **options})


def test_options_may_be_values_of_numpy(pack):
    options = {"shuffle": numpy.bool_(False), "epochs": numpy.int64(1), "cores": numpy.arange(1)}
    with ddlp.Loader(pack, output="numpy", batch_size=numpy.int16(60), **options) as loader:
        assert [batch.sample_ids for batch in loader] == [list(range(60))]


@pytest.mark.parametrize("variable", ["RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"])
def test_a_variable_that_is_no_number_is_named(pack, monkeypatch, variable):
    for other in ("RANK", "WORLD_SIZE"):
        monkeypatch.setenv(other, "1")
    monkeypatch.setenv(variable, "two")
    with pytest.raises(ddlp.ConfigurationError, match=f"{variable}='two'"):
        ddlp.Loader(pack, output="numpy")


def test_a_library_that_is_not_installed_is_named(pack, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ddlp.ConfigurationError, match="pip install torch"):
        ddlp.Loader(pack)
    ddlp.Loader(pack, output="dlpack").close()


def test_a_dataset_that_is_missing_is_named(tmp_path):
    with pytest.raises(ddlp.UnavailableError, match="none.ddlp") as caught:
        ddlp.Loader(tmp_path / "none.ddlp", output="numpy")
    assert isinstance(caught.value, OSError) and isinstance(caught.value, ddlp.Error)


def test_a_dataset_that_disappears_ends_the_run(photos, tmp_path):
    import shutil

    shutil.copytree(photos, tmp_path / "photos")
    loader = ddlp.Loader(tmp_path / "photos", batch_size=4, output="numpy")
    shutil.rmtree(tmp_path / "photos")
    with pytest.raises(ddlp.UnavailableError, match="photos"):
        next(iter(loader))


def test_a_rank_without_a_number_of_ranks_is_refused(pack, monkeypatch):
    for variable, other in [("RANK", "WORLD_SIZE"), ("WORLD_SIZE", "RANK")]:
        with monkeypatch.context() as alone:
            alone.setenv(variable, "1")
            with pytest.raises(ddlp.ConfigurationError, match=f"the environment has {variable}, but no {other}"):
                ddlp.Loader(pack, output="numpy")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "0")
    with pytest.raises(ddlp.ConfigurationError, match="LOCAL_WORLD_SIZE=0"):
        ddlp.Loader(pack, output="numpy")


def test_what_is_no_state_is_explained(pack):
    with ddlp.Loader(pack, output="numpy") as loader:
        for wrong, part in [
            (None, "not a state of state_dict.., but NoneType"),
            ("x", "but str"),
            ({"epoch": 1}, "missing field `version`$"),
        ]:
            with pytest.raises(ddlp.ConfigurationError, match=part):
                loader.load_state_dict(wrong)


def test_an_operation_with_a_wrong_parameter_is_named():
    for wrong, part in [
        (lambda: ddlp.CenterCrop(-3), "operation 0, center_crop: .*whole number"),
        (
            lambda: ddlp.Resize(64, interpolation="cubic"),
            'operation 0, resize: `interpolation` is "cubic", but must be one of `nearest`, `bilinear`, `bicubic`',
        ),
        (
            lambda: ddlp.RandomRotation(30, fill=127.6),
            "random_rotation: `fill` is 127.6, but must be a whole number from 0 to 255, or three",
        ),
        (lambda: ddlp.RandomRotation(math.nan), "random_rotation: `degrees` is nan, but must have finite numbers"),
        (lambda: ddlp.CenterCrop(None), "center_crop: `size` is None, but must be a whole number, or a list of"),
        (lambda: ddlp.RandomHorizontalFlip("half"), 'flip: `p` is "half", but must be a number$'),
        (lambda: ddlp.GaussianBlur(3, sigma=1), "gaussian_blur: `sigma` is 1, but must be two numbers$"),
        (lambda: ddlp.ColorJitter(-1), "color_jitter: `brightness` is -1, but must be a number of 0 or more"),
    ]:
        with pytest.raises(ddlp.ConfigurationError, match=part) as raised:
            ddlp.Pipeline([wrong()])
        assert "column" not in str(raised.value)
    with pytest.raises(
        TypeError, match="random_rotation: `fill` is <object .*, but must be a number, a truth value, a text, or a list"
    ):
        ddlp.Pipeline([ddlp.RandomRotation(30, fill=object())])
    with pytest.raises(TypeError, match=r"needs a list of operations: ddlp.Pipeline\(\[None"):
        ddlp.Pipeline(None)
    with pytest.raises(TypeError, match=r"needs a list of operations: ddlp.Pipeline\(\[Resize"):
        ddlp.Pipeline(ddlp.Resize(64))


def test_parameters_may_be_values_of_other_libraries():
    bilinear = enum.Enum("InterpolationMode", {"BILINEAR": "bilinear"}).BILINEAR
    given = ddlp.RandomRotation(numpy.float32(30), fill=numpy.array([1, 2, 3]), interpolation=bilinear)
    same = ddlp.RandomRotation(30, fill=(1, 2, 3), interpolation="bilinear")
    pipelines = [ddlp.Pipeline([rotation, ddlp.CenterCrop(numpy.int64(32))]) for rotation in (given, same)]
    assert pipelines[0] == pipelines[1]


def test_wrong_arguments_of_functions_are_named(pack, tmp_path):
    table = pytest.importorskip("pyarrow").table({"image": [b""], "label": [0]})
    with ddlp.Loader(pack, output="numpy") as loader:
        for call, part in [
            (lambda: loader.headspace(3), "step is 3, but must be a function of a batch"),
            (lambda: loader.headspace(print, seconds="x"), "seconds is 'x', but must be a number above 0"),
            (lambda: ddlp.Loader(None, output="numpy"), "dataset is None, but must be a path"),
            (
                lambda: ddlp.Loader(ddlp.ArrowTable(table, label=3), output="numpy"),
                "label of ddlp.ArrowTable is 3, but must be the name",
            ),
            (
                lambda: ddlp.Loader(ddlp.ArrowTable(table, classes=3), output="numpy"),
                "classes of ddlp.ArrowTable is 3, but must be a",
            ),
            (lambda: ddlp.Mix(3), "needs a list of datasets, not 3"),
            (lambda: ddlp.pack(pack, tmp_path / "new.ddlp", force=None), "`force` is None, but must be True or False"),
            (lambda: ddlp.pack(pack, None), "path is None, but must be the path of the file"),
            (lambda: ddlp.Pipeline([ddlp.CenterCrop(3)], exif_orientation="x"), "exif_orientation is 'x', but must be"),
        ]:
            with pytest.raises((ddlp.ConfigurationError, TypeError), match=part):
                call()


def test_shares_of_a_mix_as_a_dict_are_explained():
    with pytest.raises(ddlp.ConfigurationError, match="weights as a list of their own"):
        ddlp.Mix({"a": 0.9, "b": 0.1})


def test_wrong_pipelines_are_explained():
    with pytest.raises(ddlp.ConfigurationError, match="fixed size"):
        ddlp.Pipeline([ddlp.RandomHorizontalFlip()])
    with pytest.raises(ddlp.ConfigurationError, match="operation 0"):
        ddlp.Pipeline([ddlp.RandomResizedCrop(0)])
    with pytest.raises(ddlp.ConfigurationError, match="TOML|key|expected"):
        ddlp.Pipeline.from_toml("operations = 3")
    with pytest.raises(TypeError, match="RandomResizedCrop"):
        ddlp.Pipeline(["flip"])


def test_exceptions_are_also_those_of_python():
    for error, base in [
        (ddlp.ConfigurationError, ValueError),
        (ddlp.UsageError, RuntimeError),
        (ddlp.UnavailableError, OSError),
        (ddlp.OutOfMemoryError, MemoryError),
        (ddlp.SystemRefusedError, OSError),
    ]:
        assert issubclass(error, base) and issubclass(error, ddlp.Error)
