"""Pushing by two workers of Spark, to real servers: the result is that of `ddlp.push`."""

import contextlib
import os
import shutil
import signal
import sys
import threading

import pytest

import ddlp
from conftest import ddlp_command

pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed")
if shutil.which("java") is None:
    pytest.skip("Java is not installed", allow_module_level=True)

import ddlp.spark  # noqa: E402


class DyingPack(ddlp.spark._PackRanges):
    """Packs, and is killed once before it has delivered everything."""

    mark = None

    def __call__(self, ranges):
        for record in super().__call__(ranges):
            die_once(self.mark)
            yield record


class DyingSend(ddlp.spark._Send):
    """Sends, and is killed once before it has said so."""

    mark = None

    def __call__(self, records):
        for sent in super().__call__(records):
            die_once(self.mark)
            yield sent


class ChangingPack(ddlp.spark._PackRanges):
    """Packs a folder to which an image is added meanwhile."""

    spare = added = None

    def __call__(self, ranges):
        # In one step, so that no task sees half of it.
        with contextlib.suppress(FileExistsError):
            os.link(self.spare, self.added)
        return super().__call__(ranges)


def die_once(mark):
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    from pyspark.sql import SparkSession

    # Workers do not have this module.
    pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    folder = tmp_path_factory.mktemp("spark")
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1", SPARK_WORKER_DIR=str(folder / "work"))
    builder = SparkSession.builder.master("local-cluster[2,1,512]").config("spark.executor.memory", "512m")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(name, str(value))
    session = builder.getOrCreate()
    yield session
    session.stop()


def digests(place):
    return ddlp_command("run", place, "--strategy", "cpu", "--batch", "8", "--digest", "--quiet")


@pytest.fixture(scope="module")
def pushed(server, mixed_photos):
    """What `ddlp.push` makes of the folder."""
    return ddlp.push(mixed_photos, f"{server}/one-machine", progress=False)


def test_a_folder_gives_the_identity_of_push(spark, server, mixed_photos, pushed):
    url = f"{server}/spark-folder"
    figures = ddlp.spark.push(spark, mixed_photos, url, partitions=5)
    assert figures["identity"] == pushed["identity"]
    assert figures["samples"] == figures["sent"] == pushed["samples"]
    assert (len(figures["repaired"]), len(figures["rejected"])) == (1, 1)
    options = ("--policy", "skip")
    runs = [
        ddlp_command("run", place, "--strategy", "cpu", "--batch", "8", "--digest", "--quiet", *options)
        for place in (url, f"{server}/one-machine")
    ]
    assert runs[0] == runs[1]
    ddlp_command("verify", url)
    again = ddlp.spark.push(spark, mixed_photos, url, partitions=3)
    assert (again["sent"], again["identity"]) == (0, pushed["identity"])


def test_cassandra_gets_what_redis_gets(spark, cassandra, mixed_photos, pack, pushed):
    url = f"{cassandra}/spark_folder"
    figures = ddlp.spark.push(spark, mixed_photos, url, partitions=5)
    assert (figures["identity"], figures["sent"]) == (pushed["identity"], pushed["samples"])
    ddlp_command("verify", url)
    again = ddlp.spark.push(spark, mixed_photos, url, partitions=3)
    assert (again["sent"], again["identity"]) == (0, pushed["identity"])
    url = f"{cassandra}/spark_pack"
    ddlp.spark.push(spark, pack, url, partitions=4)
    assert digests(url) == digests(pack)


@pytest.mark.parametrize("options", [{"format": "raw"}, {"jpeg": "kept"}])
def test_other_formats_give_the_identity_of_pack(spark, server, mixed_photos, tmp_path, options):
    one = ddlp.pack(mixed_photos, tmp_path / "one.ddlp", progress=False, **options)
    many = ddlp.spark.push(spark, mixed_photos, f"{server}/spark-other", partitions=3, force=True, **options)
    assert many["identity"] == one["identity"]


def test_a_data_frame_gives_the_identity_of_push(spark, server, mixed_photos, pushed):
    dataset = ddlp.Dataset(mixed_photos)
    rows = [
        (open(path, "rb").read(), label, number, dataset.name(number))
        for number, (path, label) in enumerate(dataset.samples)
    ]
    frame = spark.createDataFrame(rows[::-1], "file binary, class int, number long, path string")
    figures = ddlp.spark.push(
        spark,
        frame,
        f"{server}/spark-frame",
        partitions=3,
        image="file",
        label="class",
        id="number",
        name="path",
        classes=dataset.classes,
    )
    assert figures["identity"] == pushed["identity"]


def test_a_pack_is_pushed_as_it_is(spark, server, pack):
    url = f"{server}/spark-pack"
    figures = ddlp.spark.push(spark, pack, url, partitions=4)
    assert figures["samples"] == figures["sent"] == len(ddlp.Dataset(pack))
    assert figures["identity"] == ddlp.push(pack, f"{server}/one-pack", progress=False)["identity"]
    assert digests(url) == digests(pack)
    with pytest.raises(ddlp.ConfigurationError, match="pushed as they are"):
        ddlp.spark.push(spark, pack, url, format="raw")


@pytest.mark.parametrize(("task", "dying"), [("_PackRanges", DyingPack), ("_Send", DyingSend)])
def test_a_worker_that_is_killed_changes_nothing(
    spark, server, mixed_photos, pushed, tmp_path, monkeypatch, task, dying
):
    mark = tmp_path / "killed"
    monkeypatch.setattr(dying, "mark", str(mark))
    monkeypatch.setattr(ddlp.spark, task, dying)
    url = f"{server}/spark-killed{task}"
    figures = ddlp.spark.push(spark, mixed_photos, url, partitions=4)
    assert mark.exists()
    assert (figures["identity"], figures["samples"]) == (pushed["identity"], pushed["samples"])
    ddlp_command("verify", url)


def test_a_source_that_changes_meanwhile_is_refused(spark, server, photos, tmp_path, monkeypatch):
    folder = shutil.copytree(photos, tmp_path / "photos")
    first = min(folder.rglob("*.jpg"))
    monkeypatch.setattr(ChangingPack, "spare", str(shutil.copy(first, tmp_path / "spare.jpg")))
    monkeypatch.setattr(ChangingPack, "added", str(first.with_name("0000-added.jpg")))
    monkeypatch.setattr(ddlp.spark, "_PackRanges", ChangingPack)
    url = f"{server}/spark-changed"
    with pytest.raises(ddlp.UnavailableError, match="the source changed while it was packed.* begin again"):
        ddlp.spark.push(spark, folder, url, partitions=4)
    with pytest.raises(ddlp.Error):
        ddlp.Dataset(url)


def test_two_pushes_at_the_same_time_change_nothing(spark, server, mixed_photos, pushed):
    url, identities = f"{server}/spark-twice", []

    def push(partitions):
        identities.append(ddlp.spark.push(spark, mixed_photos, url, partitions=partitions)["identity"])

    threads = [threading.Thread(target=push, args=(partitions,)) for partitions in (2, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert identities == [pushed["identity"]] * 2
    ddlp_command("verify", url)


def test_what_cannot_be_pushed_is_an_error_that_says_what_to_do(spark, server, mixed_photos, pack, tmp_path):
    push, url = ddlp.spark.push, f"{server}/spark-refused"
    mix = tmp_path / "mix.toml"
    mix.write_text(f'[[dataset]]\npath = "{mixed_photos}"\n')
    frame = spark.createDataFrame([(b"x", 0, 0), (b"y", 0, 0)], "image binary, label int, id long")
    for arguments, options, message in [
        ((mixed_photos, "s3://bucket/x.ddlp"), {}, "as one object"),
        ((mixed_photos, url), {"format": "pcr"}, "only one machine can make such a pack"),
        ((mixed_photos, url), {"jpeg": "rows"}, "only one machine can make such a pack"),
        ((mixed_photos, url), {"partitions": 0}, "must be 1 or more"),
        ((mix, url), {}, "make a pack of it first"),
        ((frame, url), {"label": "class"}, "no column 'class'; its columns are image, label, id"),
        ((frame, url), {}, "two samples have the id 0"),
        ((pack, f"{server}/one-machine"), {"partitions": 1}, "another pack"),
    ]:
        with pytest.raises(Exception, match=message):
            push(spark, *arguments, **options)
    with pytest.raises(TypeError, match="unknown option 'bundle'"):
        push(spark, mixed_photos, url, bundle=3)
