"""Figures for Prometheus."""

import socket
import urllib.request

import pytest

import ddlp
from conftest import SAMPLES


@pytest.fixture
def address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def figures(address):
    """Returns the figures by name and labels."""
    with urllib.request.urlopen(f"http://{address}/metrics") as page:
        lines = page.read().decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_figures_are_served_as_long_as_the_loader_is_open(pack, address):
    with ddlp.Loader(pack, batch_size=16, output="numpy", metrics=address) as loader:
        for _ in loader:
            pass
        found = figures(address)
        assert float(found["ddlp_run_images_total"]) == float(found['ddlp_prong_images_total{prong="cpu"}']) == SAMPLES
        assert float(found["ddlp_run_epoch"]) == 1
        # Another run of the same loader takes the address over.
        loader.set_epoch(5)
        next(iter(loader))
        found = figures(address)
        assert float(found["ddlp_run_epoch"]) == 5 and float(found["ddlp_run_epoch_delivered"]) == 1
    with pytest.raises(OSError):
        figures(address)


def test_an_address_that_is_taken_is_named(pack, address):
    with ddlp.Loader(pack, output="numpy", metrics=address):
        with pytest.raises(ddlp.ConfigurationError, match=address):
            ddlp.Loader(pack, output="numpy", metrics=address)
