"""Runs the code of the documents: the blocks of one document one after the other, beside `train.ddlp`, `photos` and
`shards`. A block that needs a library which is not installed is only compiled, and a skipped test names the library."""

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import ddlp

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEXTS = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [ROOT / "README.md", ROOT / "python/README.md", *sorted(ROOT.glob("docs/**/*.md"))]
}
DOCUMENTS = [document for document, text in TEXTS.items() if BLOCK.search(text)]


def is_installed(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        # The package that would contain it is missing.
        return False


def missing(code):
    """Returns the libraries that the code imports and that are not installed."""
    nodes = list(ast.walk(ast.parse(code)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name for name in names if not is_installed(name)}


def line_of(text, block):
    return text[: block.start()].count("\n") + 1


LACKING = [
    pytest.param(sorted(missing(block[1])), id=f"{document}:{line_of(TEXTS[document], block)}")
    for document in DOCUMENTS
    for block in BLOCK.finditer(TEXTS[document])
    if missing(block[1])
]


@pytest.fixture(scope="session")
def shards(photos):
    """The photographs as two tar shards."""
    folder = photos.parent / "shards"
    folder.mkdir()
    shards = [tarfile.open(folder / f"{shard:06}.tar", "w") for shard in range(2)]
    for number, image in enumerate(sorted(photos.rglob("*.jpg"))):
        label = folder / "label"
        label.write_text(str(sorted(photos.iterdir()).index(image.parent)))
        shards[number % 2].add(image, f"{number:06}.jpg")
        shards[number % 2].add(label, f"{number:06}.cls")
    for shard in shards:
        shard.close()
    label.unlink()
    return folder


@pytest.mark.skipif(not is_installed("torch"), reason="needs PyTorch")
@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_code_of_a_document_runs(photos, pack, shards, tmp_path, monkeypatch, document):
    shutil.copy(pack, tmp_path / "train.ddlp")
    (tmp_path / "photos").symlink_to(photos)
    (tmp_path / "shards").symlink_to(shards)
    monkeypatch.chdir(tmp_path)
    text = TEXTS[document]
    names = {"__name__": "document"}
    for block in BLOCK.finditer(text):
        # Lines in tracebacks are those of the document.
        code = "\n" * line_of(text, block) + block[1]
        compiled = compile(code, str(ROOT / document), "exec")
        if not missing(block[1]):
            exec(compiled, names)


@pytest.mark.parametrize("libraries", LACKING)
def test_the_code_of_a_document_that_is_only_compiled(request, libraries):
    block = request.node.callspec.id
    pytest.skip(f"{block} is only compiled: it needs {', '.join(libraries)}")


def test_the_reference_has_each_public_name():
    made = subprocess.run([sys.executable, ROOT / "scripts/api-docs"], check=True, text=True, stdout=subprocess.PIPE)
    public = {name for name in ddlp.__all__ if not name.startswith("_")}
    assert not {name for name in public if not re.search(rf"^#+ .*\b{name}\b", made.stdout, re.MULTILINE)}


def test_links_between_documents_lead_somewhere():
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("python/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document}: {target}"
