"""Datasets in Redis: pushed, read, and refused with what to do, with a real server."""

import re
import shutil
import socket
import subprocess
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import ddlp
from conftest import ddlp_command, wait_until

ROOT = Path(__file__).resolve().parents[2]


def digests(place):
    return ddlp_command("run", place, "--strategy", "cpu", "--batch", "8", "--digest", "--quiet")


def test_a_pushed_pack_gives_the_batches_of_its_file(server, pack):
    calls = []
    figures = ddlp.push(pack, f"{server}/pack", verify=True, progress=lambda *call: calls.append(call))
    samples = len(ddlp.Dataset(pack))
    assert figures["samples"] == figures["sent"] == samples
    assert calls[-1] == ("pushing", samples, samples)
    assert digests(f"{server}/pack") == digests(pack)
    with ddlp.Loader(f"{server}/pack", batch_size=8, output="numpy") as loader:
        ids = sorted(index for batch in loader for index in batch.sample_ids)
    assert ids == list(range(samples))
    again = ddlp.push(pack, f"{server}/pack", progress=False)
    assert (again["sent"], again["sent_bytes"], again["identity"]) == (0, 0, figures["identity"])


def test_a_dataset_is_found_by_a_sentinel(server, pack, tmp_path):
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    rules = [
        f"port {port}",
        "bind 127.0.0.1",
        f"dir {tmp_path}",
        f"sentinel monitor photos 127.0.0.1 {urlsplit(server).port} 1",
    ]
    (tmp_path / "sentinel.conf").write_text("\n".join(rules) + "\n")
    sentinel = subprocess.Popen([program, tmp_path / "sentinel.conf", "--sentinel"], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
        url = f"redis+sentinel://127.0.0.1:{port}/photos/0/sentinel"
        ddlp.push(pack, url, progress=False)
        assert digests(url) == digests(f"{server}/sentinel") == digests(pack)
        with ddlp.Loader(url, batch_size=8, output="numpy") as loader:
            ids = sorted(index for batch in loader for index in batch.sample_ids)
        assert ids == list(range(len(ddlp.Dataset(pack))))
        with pytest.raises(ddlp.UnavailableError, match="watch no master with the name others"):
            ddlp.Dataset(url.replace("/photos/", "/others/"))
    finally:
        sentinel.kill()
        sentinel.wait()


def test_a_folder_and_a_table_are_packed_first(server, photos, tmp_path):
    from_folder = ddlp.push(photos, f"{server}/folder", progress=False)
    packed = ddlp.pack(photos, tmp_path / "folder.ddlp", progress=False)
    assert from_folder["identity"] == packed["identity"]
    pieces = ddlp.push(photos, f"{server}/pieces", format="pcr", bundle=4, progress=False)
    assert pieces["identity"] != packed["identity"]
    with ddlp.Loader(f"{server}/pieces", batch_size=8, fidelity=5, output="numpy") as loader:
        assert sum(len(batch.sample_ids) for batch in loader) == packed["samples"]


def test_shares_together_are_the_dataset(server, photos, pack):
    url = f"{server}/shares"
    assert ddlp.push(pack, url, share=(1, 2), progress=False)["missing_shares"] == [0]
    with pytest.raises(ddlp.UnavailableError, match="has not ended"):
        ddlp.Dataset(url)
    figures = ddlp.push(pack, url, share=(0, 2), progress=False)
    assert figures["missing_shares"] == [] and figures["samples"] == len(ddlp.Dataset(pack)) // 2
    assert digests(url) == digests(pack)
    for share in [(2, 2), (-1, 2), (0, 5000), 3, (1, 2, 3)]:
        with pytest.raises(ddlp.ConfigurationError, match="`share` is"):
            ddlp.push(pack, url, share=share, progress=False)
    with pytest.raises(ddlp.ConfigurationError, match="make a pack once"):
        ddlp.push(photos, url, share=(0, 2), progress=False)


def test_another_dataset_is_replaced_only_if_asked_to(server, photos, pack):
    url = f"{server}/replaced"
    ddlp.push(pack, url, progress=False)
    with pytest.raises(ddlp.ConfigurationError, match="another pack.*force=True"):
        ddlp.push(photos, url, format="raw", progress=False)
    ddlp.push(photos, url, format="raw", force=True, progress=False)


def test_what_cannot_be_pushed_or_opened_is_an_error_of_its_kind(server, pack):
    with pytest.raises(ddlp.UnavailableError, match="has no dataset missing"):
        ddlp.Loader(f"{server}/missing", batch_size=8, output="numpy")
    with pytest.raises(ddlp.ConfigurationError, match="redis://"):
        ddlp.push(pack, "ftp://host/x", progress=False)
    with pytest.raises(TypeError, match="url is"):
        ddlp.push(pack, None, progress=False)
    place = server.replace("redis://", "redis://me:sesame@") + "/pack"
    for act in [
        lambda: ddlp.push(pack, place, progress=False),
        lambda: ddlp.Loader(place, batch_size=8, output="numpy"),
    ]:
        with pytest.raises(ddlp.Error, match="REDISCLI_AUTH") as raised:
            act()
        assert "sesame" not in str(raised.value)


def test_every_figure_of_requests_that_a_document_names_is_served(server, pack):
    ddlp.push(pack, f"{server}/figures", progress=False)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with ddlp.Loader(f"{server}/figures", batch_size=8, output="numpy", metrics=address) as loader:
        for _ in loader:
            pass
        with urllib.request.urlopen(f"http://{address}/metrics") as page:
            served = set(re.findall(r"\bddlp_store[a-z0-9_]+", page.read().decode()))
        requests = loader.report()["requests"]
    documented = set(re.findall(r"\bddlp_store[a-z0-9_]+", (ROOT / "docs/metrics.md").read_text()))
    assert documented and documented <= served
    assert requests["answered"] >= len(ddlp.Dataset(pack)) and requests["retries"] == 0


def test_an_exception_of_the_progress_ends_the_push(server, pack):
    def stop(phase, done, total):
        raise KeyError(phase)

    with pytest.raises(KeyError, match="pushing"):
        ddlp.push(pack, f"{server}/stopped", progress=stop)
