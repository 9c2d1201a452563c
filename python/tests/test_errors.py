"""Exceptions: each kind has its class, and its message says what to do."""

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
        ({"batchsize": 3}, TypeError, "batchsize"),
    ],
)
def test_wrong_options_are_named(pack, options, error, part):
    with pytest.raises(error, match=part):
        ddlp.Loader(pack, **{"output": "numpy", **options})


@pytest.mark.parametrize("variable", ["RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"])
def test_a_variable_that_is_no_number_is_named(pack, monkeypatch, variable):
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
