"""A pack that many machines make and push: what `ddlp.spark` and `ddlp.ray` have in common.

Each machine packs a part of the samples, as `ddlp.pack` does, so that it judges and repairs them. The index of the
whole pack, and with it its identity, is made from the indices of the parts. Then each machine sends its part, as
`ddlp.push` does, and at last the dataset becomes one that can be opened.
"""

from __future__ import annotations

import json
import os
import tempfile
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from . import _ddlp
from ._arrow import ArrowTable, samples_of
from ._classes import names_of
from ._errors import ConfigurationError
from ._packing import check_url, checked

NAMED_MAX = 100
"""Most repaired and rejected samples of a part whose names are reported."""
STORES = ("redis://", "rediss://", "redis+sentinel://", "rediss+sentinel://", "cql://", "cqls://")
OPTIONS: dict[str, Any] = {
    "format": "encoded",
    "jpeg": None,
    "max_side": None,
    "force": False,
    "verify": False,
    "allow_unreadable": False,
    "strict": False,
    "threads": None,
}
"""Options of `ddlp.push` that pushes of many machines have, too, and their defaults."""


class Job(NamedTuple):
    """What all machines know of a push."""

    url: str
    packing: dict[str, Any]
    classes: list[str] | None


class Part(NamedTuple):
    """What is known of a part when its samples are packed."""

    front: bytes
    """The part's bytes in front of its samples."""
    ids: bytes
    """The number of each sample among all (int64)."""
    losses: str
    """Repaired and rejected samples, as JSON."""


class Whole(NamedTuple):
    """The pack of all parts."""

    front: bytes
    numbers: dict[bytes, bytes]
    """The indices that the samples of a part have, by the ids that these have."""


def job(url: str, classes: Sequence[str] | None, kind: str | None, options: dict[str, Any]) -> Job:
    """Checks the options of a push."""
    check_url(url)
    if not url.startswith(STORES):
        raise ConfigurationError(
            f"many machines push to {', '.join(STORES)} only, and not to {url.split('://')[0]}: an object store takes "
            "a pack as one object, by ddlp.push"
        )
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise TypeError(f"unknown option {unknown[0]!r}; options are {', '.join(OPTIONS)}")
    names = names_of(classes)
    if names is None and classes is not None:
        raise ConfigurationError(f"`classes` is {classes!r}, but must be a list of the names of all classes")
    packing = checked(kind=kind, bundle=None, groups=None, **{**OPTIONS, **options})
    if packing["format"] == "pcr" or packing["jpeg"] == "rows":
        raise ConfigurationError(
            'with format="pcr" or jpeg="rows", the place of a sample depends on all others, so only one machine can '
            "make such a pack: make it by ddlp.pack, where all machines can read it, and give its path"
        )
    return Job(url, packing, names)


def pack_range(job: Job, source: str, begin: int, end: int, path: str) -> Part:
    """Packs samples of a source that this machine can read into a file."""
    figures = _ddlp.pack_dataset(source, path, _packing(job, begin, end), _silent, None, job.classes)
    return Part(_ddlp.index_of_part(path), array("q", range(begin, end)).tobytes(), _losses(figures))


def pack_table(job: Job, table: Any, path: str) -> Part:
    """Packs a table with the columns image, label, id and name into a file."""
    ids = array("q", table.column("id").to_pylist())
    if ids and min(ids) < 0:
        raise ConfigurationError(f"the id {min(ids)} is negative: ids are whole numbers from 0 on")
    samples, columns = samples_of(ArrowTable(table, "image", "label", job.classes or (), "name"))
    # An error names the id of a sample, since the number of a row depends on how the samples were divided.
    columns = {**(columns or {}), "id": "id"}
    figures = _ddlp.pack_dataset(samples, path, _packing(job, 0, len(ids)), _silent, columns)
    return Part(_ddlp.index_of_part(path), ids.tobytes(), _losses(figures))


def _packing(job: Job, begin: int, end: int) -> dict[str, Any]:
    """Returns the options of packing a part. A cluster runs a task for each core."""
    return job.packing | {"part": (begin, end), "threads": job.packing["threads"] or 1}


def table_of(images: list[Any], labels: list[Any], ids: list[Any], names: list[Any] | None) -> Any:
    """Returns the table that `pack_table` takes, with the rows in the order of their ids: a cluster that computes a
    part again may have its rows in another order. Without names, a sample is called as in a table of all samples."""
    import pyarrow

    if None in ids:
        raise ConfigurationError("a sample has no id: ids are whole numbers from 0 on")
    names = [f"row {number}" for number in ids] if names is None else names
    try:
        order = sorted(range(len(ids)), key=ids.__getitem__)
        images, labels, ids, names = ([column[row] for row in order] for column in (images, labels, ids, names))
        columns = {
            "image": pyarrow.array(images, pyarrow.large_binary()),
            "label": pyarrow.array(labels, pyarrow.int64()),
            "id": pyarrow.array(ids, pyarrow.int64()),
            "name": pyarrow.array(names, pyarrow.large_string()),
        }
    except (pyarrow.ArrowException, TypeError) as error:
        raise ConfigurationError(
            f"images are bytes of image files, labels and ids whole numbers, and names texts: {error}"
        ) from None
    return pyarrow.table(columns)


def join(parts: Iterable[Part], source: bytes | None) -> Whole:
    """Makes the index of the pack of all parts. `source` is the identity of the dataset that every machine opens; None
    if they have rows of a table."""
    parts = list(parts)
    front, numbers = _ddlp.join_parts([(part.front, part.ids) for part in parts], source)
    return Whole(front, {part.ids: of_part for part, of_part in zip(parts, numbers, strict=True)})


def begin(job: Job, place: str) -> None:
    """Has the store prepare for a pack."""
    _ddlp.push_part("begin", _ddlp.index_of_part(place), job.url, job.packing, _silent)


def push_whole(
    job: Job, parts: list[Part], source: bytes | None, send: Callable[[Whole], Iterable[int]]
) -> dict[str, Any]:
    """Pushes the pack of all parts, which are of the source with this identity. `send` has the machines call
    `send_part`, and returns what that returned."""
    whole = join(parts, source)
    _ddlp.push_part("begin", whole.front, job.url, job.packing, _silent)
    sent = sum(send(whole))
    figures = _ddlp.push_part("end", whole.front, job.url, job.packing, _silent)
    losses = [json.loads(part.losses) for part in parts]
    return {
        "samples": sum(len(numbers) // 8 for numbers in whole.numbers.values()),
        "sent": sent,
        "identity": figures["identity"],
        "evicts": figures["evicts"],
        "repaired": [name for of_part in losses for name in of_part["repaired"]],
        "rejected": [tuple(pair) for of_part in losses for pair in of_part["rejected"]],
    }


def send_part(job: Job, whole: Whole, ids: bytes, path: str) -> int:
    """Sends the samples of a part that are not there yet. Returns how many."""
    numbers = whole.numbers.get(ids)
    if numbers is None:
        raise ConfigurationError(
            "a part has other samples than when it was packed: if its source has changed, begin again; if the rows of "
            "the table are left to chance, as after a limit without an order, write the table to a file and push that"
        )
    sent: int = _ddlp.push_part("samples", whole.front, job.url, job.packing, _silent, (path, numbers))["sent"]
    return sent


class Folder:
    """A folder on this machine for the file of a part, which is removed at the end."""

    def __enter__(self) -> Folder:
        self._folder = tempfile.TemporaryDirectory(prefix="ddlp-")
        self.path = os.path.join(self._folder.name, "part.ddlp")
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


def _losses(figures: dict[str, Any]) -> str:
    return json.dumps({name: figures[name][:NAMED_MAX] for name in ("repaired", "rejected")})


def _silent(phase: str, done: int, total: int) -> None:
    pass
