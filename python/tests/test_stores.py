"""Packs in a server that speaks Amazon's S3: moto, a stand-in for the service, over real HTTP."""

import pytest

import ddlp
from conftest import ddlp_command

BUCKET = "data"
KEY = "train/photos.ddlp"


@pytest.fixture(scope="module")
def bucket(pack):
    """The URL of the pack in a server, and the variables that name the server."""
    boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")
    moto = pytest.importorskip("moto.server", reason="moto is not installed")
    server = moto.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "id", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=url, **keys)
    client.create_bucket(Bucket=BUCKET)
    client.upload_file(str(pack), BUCKET, KEY)
    yield client, url
    server.stop()


@pytest.fixture
def credentials(bucket, monkeypatch):
    _, url = bucket
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


def digests(place):
    return ddlp_command("run", place, "--strategy", "cpu", "--batch", "8", "--digest", "--quiet")


def test_a_pack_in_s3_gives_the_batches_of_its_file(credentials, pack):
    assert digests(f"s3://{BUCKET}/{KEY}") == digests(pack)
    with ddlp.Loader(f"s3://{BUCKET}/{KEY}", batch_size=8) as loader:
        assert len(loader.dataset) == len(ddlp.Dataset(pack))
        ids = sorted(sample_id for batch in loader for sample_id in batch.sample_ids)
    assert ids == list(range(len(ddlp.Dataset(pack))))


def test_keys_of_a_profile_are_taken(credentials, monkeypatch, pack, tmp_path):
    (tmp_path / "keys").write_text("[work]\naws_access_key_id = id\naws_secret_access_key = secret\n")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert digests(f"s3://{BUCKET}/{KEY}") == digests(pack)
    monkeypatch.setenv("AWS_PROFILE", "home")
    with pytest.raises(Exception, match="AWS_PROFILE is home, but ~/.aws has no profile of this name"):
        ddlp.Dataset(f"s3://{BUCKET}/{KEY}")


def test_a_pack_that_is_replaced_ends_the_run(credentials, bucket, pack):
    client, _ = bucket
    client.upload_file(str(pack), BUCKET, "replaced.ddlp")
    with ddlp.Loader(f"s3://{BUCKET}/replaced.ddlp", batch_size=8, epochs=50) as loader:
        batches = iter(loader)
        next(batches)
        client.put_object(Bucket=BUCKET, Key="replaced.ddlp", Body=pack.read_bytes()[:-1] + b"x")
        with pytest.raises(Exception, match="the object was replaced after it was opened"):
            for _ in range(1000):
                next(batches)


def test_what_is_not_there_is_named(credentials):
    with pytest.raises(Exception, match="there is no such object; check the name: s3://BUCKET/PATH"):
        ddlp.Dataset(f"s3://{BUCKET}/none.ddlp")


def test_a_pack_is_pushed_to_s3_and_replaced_only_if_asked_to(credentials, pack):
    url = f"s3://{BUCKET}/pushed/photos.ddlp"
    figures = ddlp.push(pack, url, verify=True, progress=False)
    assert figures["bytes"] == figures["sent_bytes"] == pack.stat().st_size
    assert digests(url) == digests(pack)
    with pytest.raises(ddlp.ConfigurationError, match="exists.*force=True"):
        ddlp.push(pack, url, progress=False)
    ddlp_command("push", pack, url, "--force", "--quiet")
    with pytest.raises(ddlp.UnavailableError, match="was not pushed"):
        ddlp.push(pack, "s3://no-such-bucket/photos.ddlp", progress=False)
    with pytest.raises(ddlp.ConfigurationError, match="web servers take no packs"):
        ddlp.push(pack, "https://localhost/photos.ddlp", progress=False)


def test_a_cache_holds_what_was_read_once(credentials, pack, tmp_path):
    url, cache = f"s3://{BUCKET}/{KEY}", tmp_path / "cache"
    contents, reports = [], []
    for _ in range(2):
        with ddlp.Loader(url, batch_size=8, cache=cache, cache_limit=1 << 30) as loader:
            contents.append([batch.sample_ids for batch in loader])
            reports.append(loader.report()["cache"])
    assert contents[0] == contents[1]
    assert reports[0]["kept_mb"] > 0 and reports[1]["kept_mb"] == 0 and reports[1]["mb"] > 0
    with pytest.raises(ddlp.ConfigurationError, match="`cache` is 3"):
        ddlp.Loader(url, batch_size=8, cache=3)
