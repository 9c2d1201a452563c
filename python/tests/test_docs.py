"""Runs the code of the documents: the blocks of one document one after the other, beside `train.ddlp` and `photos`."""

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def is_installed(name):
    return importlib.util.find_spec(name) is not None


@pytest.mark.skipif(not is_installed("torch"), reason="needs PyTorch")
@pytest.mark.parametrize("document", ["README.md", "python/README.md", "docs/python.md"])
def test_the_code_of_a_document_runs(photos, pack, tmp_path, monkeypatch, document):
    shutil.copy(pack, tmp_path / "train.ddlp")
    (tmp_path / "photos").symlink_to(photos)
    monkeypatch.chdir(tmp_path)
    text = (ROOT / document).read_text()
    blocks = list(BLOCK.finditer(text))
    assert blocks, "the document has code"
    names = {"__name__": "document"}
    for block in blocks:
        if "torchvision" in block[1] and not is_installed("torchvision"):
            continue
        # Lines in tracebacks are those of the document.
        code = "\n" * text[: block.start(1)].count("\n") + block[1]
        exec(compile(code, str(ROOT / document), "exec"), names)
