"""Ray Data on two workers: images as a source, and pushing to real servers with the result of `ddlp.push`."""

import os
import shutil
import signal
import tempfile
import threading

import pytest

import ddlp
from conftest import ddlp_command

ray = pytest.importorskip("ray", reason="ray is not installed")
pytest.importorskip("ray.data", reason="ray is installed without Ray Data")

import ddlp.ray  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def cluster():
    # Ray writes to the home directory. Its sockets need a short path.
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as home:
        os.environ.update(RAY_USAGE_STATS_ENABLED="0")
        folder = os.path.dirname(__file__)
        environment = {"env_vars": {"PYTHONPATH": os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])}}
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=256 << 20,
            _temp_dir=home,
            runtime_env=environment,
        )
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def pushed(server, mixed_photos):
    """What `ddlp.push` makes of the folder."""
    return ddlp.push(mixed_photos, f"{server}/one-machine", progress=False)


def test_rows_are_the_images_of_the_dataset(mixed_photos, server):
    dataset = ddlp.Dataset(mixed_photos)
    ddlp.push(mixed_photos, f"{server}/ray-read", jpeg="kept", progress=False)
    for source, is_pack in [(mixed_photos, False), (f"{server}/ray-read", True)]:
        images = ddlp.ray.read(source, override_num_blocks=3)
        assert images.columns() == ["id", "label", "name", "image"]
        rows = sorted(images.take_all(), key=lambda row: row["id"])
        assert [row["id"] for row in rows] == list(range(len(dataset)))
        assert [row["label"] for row in rows] == list(dataset.targets)
        assert [row["name"] for row in rows] == [dataset.name(number) for number in range(len(dataset))]
        for row, (path, _) in zip(rows, dataset.samples, strict=True):
            is_same = row["image"] == open(path, "rb").read()
            # A pack has the repaired file of the first image.
            assert is_same or (is_pack and row["id"] == 0), path


def test_a_source_without_files_is_refused(photos, tmp_path):
    ddlp.pack(photos, tmp_path / "raw.ddlp", format="raw", progress=False)
    with pytest.raises(ddlp.ConfigurationError, match="stored as pixels, and so has no file"):
        ddlp.ray.read(tmp_path / "raw.ddlp")


def test_a_source_that_changed_since_is_refused(photos, tmp_path):
    folder = shutil.copytree(photos, tmp_path / "photos")
    images = ddlp.ray.read(folder, override_num_blocks=3)
    first = min(folder.rglob("*.jpg"))
    first.with_name("0000-added.jpg").write_bytes(b"added")
    with pytest.raises(Exception, match="changed since this dataset of Ray Data was made"):
        images.take_all()


def test_rows_in_any_order_give_the_identity_of_push(server, mixed_photos, pushed):
    images = ddlp.ray.read(mixed_photos, override_num_blocks=4)
    classes = ddlp.Dataset(mixed_photos).classes
    url = f"{server}/ray-push"
    figures = ddlp.ray.push(images, url, name="name", classes=classes)
    assert figures["identity"] == pushed["identity"]
    assert figures["samples"] == figures["sent"] == pushed["samples"]
    assert (len(figures["repaired"]), len(figures["rejected"])) == (1, 1)
    ddlp_command("verify", url)
    again = ddlp.ray.push(images.random_shuffle(seed=3).repartition(7), url, name="name", classes=classes)
    assert (again["sent"], again["identity"]) == (0, pushed["identity"])


def test_cassandra_gets_what_redis_gets(cassandra, mixed_photos, pushed):
    images = ddlp.ray.read(mixed_photos, override_num_blocks=4)
    classes, url = ddlp.Dataset(mixed_photos).classes, f"{cassandra}/ray_push"
    figures = ddlp.ray.push(images, url, name="name", classes=classes)
    assert (figures["identity"], figures["sent"]) == (pushed["identity"], pushed["samples"])
    ddlp_command("verify", url)


def test_without_names_samples_are_called_as_in_a_table(server, photos):
    table = ray.get(ddlp.ray.read(photos).select_columns(["image", "label", "id"]).repartition(1).to_arrow_refs())[0]
    one = ddlp.push(ddlp.ArrowTable(table, "image", "label"), f"{server}/one-table", progress=False)
    many = ddlp.ray.push(ray.data.from_arrow(table).repartition(3), f"{server}/ray-table")
    assert many["identity"] == one["identity"]


def die_once(mark, batch):
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return batch
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_changes_nothing(server, mixed_photos, pushed, tmp_path, monkeypatch):
    marks = [str(tmp_path / name) for name in ("packing", "sending")]
    pack, send = ddlp.ray._pack, ddlp.ray._send
    # Killed before what was packed is there, and after a part was sent.
    monkeypatch.setattr(ddlp.ray, "_pack", lambda *arguments: die_once(marks[0], pack(*arguments)))
    monkeypatch.setattr(ddlp.ray, "_send", lambda *arguments: die_once(marks[1], send(*arguments)))
    images, url = ddlp.ray.read(mixed_photos, override_num_blocks=4), f"{server}/ray-killed"
    figures = ddlp.ray.push(images, url, name="name", classes=ddlp.Dataset(mixed_photos).classes)
    assert all(os.path.exists(mark) for mark in marks)
    assert (figures["identity"], figures["samples"]) == (pushed["identity"], pushed["samples"])
    ddlp_command("verify", url)


def test_two_pushes_at_the_same_time_change_nothing(server, mixed_photos, pushed):
    url, identities = f"{server}/ray-twice", []
    classes = ddlp.Dataset(mixed_photos).classes

    def push(blocks):
        images = ddlp.ray.read(mixed_photos, override_num_blocks=blocks)
        identities.append(ddlp.ray.push(images, url, name="name", classes=classes)["identity"])

    threads = [threading.Thread(target=push, args=(blocks,)) for blocks in (2, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert identities == [pushed["identity"]] * 2
    ddlp_command("verify", url)


def test_what_cannot_be_pushed_is_an_error_that_says_what_to_do(server, photos):
    images, url = ddlp.ray.read(photos), f"{server}/ray-refused"
    twice = images.drop_columns(["id"]).add_column("id", lambda batch: [7] * len(batch))
    for dataset, place, options, message in [
        (images, "s3://bucket/x.ddlp", {}, "as one object"),
        (images, url, {"format": "pcr"}, "only one machine can make such a pack"),
        (images, url, {"label": "class"}, "no column 'class'; its columns are id, label, name, image"),
        (photos, url, {}, "must be a dataset of Ray Data"),
        (twice, url, {}, "two samples have the id 7"),
    ]:
        with pytest.raises(ddlp.ConfigurationError, match=message):
            ddlp.ray.push(dataset, place, **options)
