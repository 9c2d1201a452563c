"""Parts of a pack that many machines make: what does not depend on Spark or Ray."""

import shutil

import pytest

import ddlp
from ddlp import _parts

JOB = _parts.job("redis://127.0.0.1/0/parts", None, None, {})


@pytest.fixture
def rows(photos):
    """Rows of an image, a label and an id."""
    samples = ddlp.Dataset(photos).samples[:6]
    return [(open(path, "rb").read(), label, number) for number, (path, label) in enumerate(samples)]


def part(rows, path):
    """Packs rows of a table."""
    table = _parts.table_of(*map(list, zip(*rows, strict=True)), None)
    return _parts.pack_table(JOB, table, str(path))


def test_rows_that_come_again_in_another_order_are_the_same_part(rows, tmp_path):
    first = part(rows, tmp_path / "first")
    again = part(rows[3:] + rows[2::-1], tmp_path / "again")
    assert first == again
    assert (tmp_path / "first").read_bytes() == (tmp_path / "again").read_bytes()


def test_the_division_of_a_table_does_not_show(rows, tmp_path):
    rows[2] = (b"", 0, 2)
    fronts = []
    for divided in ([rows], [rows[4:], rows[:4]], [rows[::2], rows[1::2]]):
        parts = [part(some, tmp_path / f"{number}-{len(divided)}") for number, some in enumerate(divided)]
        fronts.append(_parts.join(parts, None).front)
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
    assert fronts[0] == fronts[1] == fronts[2]


def test_parts_of_other_files_are_refused(photos, tmp_path):
    folder = shutil.copytree(photos, tmp_path / "photos")
    identity = ddlp.Dataset(folder)._native.identity
    parts = [_parts.pack_range(JOB, str(folder), 0, 20, str(tmp_path / "0"))]
    first = min(folder.rglob("*.jpg"))
    first.with_name("0000-added.jpg").write_bytes(b"added")
    parts.append(_parts.pack_range(JOB, str(folder), 20, 60, str(tmp_path / "1")))
    with pytest.raises(ddlp.UnavailableError, match="the source changed.*: the samples from 20 on .* begin again"):
        _parts.join(parts, identity)
    shutil.rmtree(first.parent)
    with pytest.raises(ddlp.UnavailableError, match="the source changed.* and so no part 50 to 60"):
        _parts.pack_range(JOB, str(folder), 50, 60, str(tmp_path / "2"))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((None, 0, 70), "the sample with the id 70 has neither bytes of an image"),
        ((b"x", None, 70), "the sample with the id 70 has no label"),
        ((b"x", -1, 70), "the sample with the id 70 has the label -1"),
        ((b"x", 0, None), "a sample has no id"),
    ],
)
def test_an_error_names_the_id_of_a_row(rows, tmp_path, row, message):
    with pytest.raises(ddlp.ConfigurationError, match=message):
        part([*rows, row], tmp_path / "part")
