"""Datasets of Ray Data: `read` makes one of the images of any dataset, and `push` puts one into a store.

import ddlp.ray

images = ddlp.ray.read("/data/photos")
ddlp.ray.push(images, "redis://10.0.0.7:6379/0/train", name="name")
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import _parts
from ._dataset import Dataset
from ._errors import ConfigurationError, UnavailableError
from ._parts import Folder, Job, Part, Whole

try:
    import pyarrow
    import ray
    import ray.data
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask
except ImportError:
    raise ImportError(
        "ddlp.ray needs the package ray with Ray Data, which is not installed: pip install 'ray[data]'"
    ) from None

__all__ = ["Images", "push", "read"]

_AT_ONCE = 16
"""Images that a task reads at the same time."""
_BLOCK_BYTES = 64 << 20
"""Bytes of images after which a block of Ray ends."""
_SCHEMA = pyarrow.schema(
    [
        ("id", pyarrow.int64()),
        ("label", pyarrow.int64()),
        ("name", pyarrow.string()),
        ("image", pyarrow.large_binary()),
    ]
)


class Images(Datasource):  # type: ignore[misc]
    """The images of a dataset as a source of Ray Data: `ray.data.read_datasource(ddlp.ray.Images(...))`.

    Each row has `id`, the sample's number; `label`; `name`; and `image`, the bytes of the image file as they are
    stored. A sample that does not decode has its row, too, so that labels never shift.

    Args:
        source: Path or URL of the dataset, as `ddlp.Loader` takes it, which every worker can read. Packs of pixels, and
            CIFAR-10's files, have no image files.
        kind: Kind of the dataset, as `ddlp.Loader` takes it.
        classes: Names of all classes, as `ddlp.Loader` takes them.
    """

    def __init__(
        self, source: str | os.PathLike[str], *, kind: str | None = None, classes: Sequence[str] | None = None
    ) -> None:
        if not isinstance(source, (str, os.PathLike)):
            raise ConfigurationError(f"source is {source!r}, but must be the path or the URL of a dataset")
        place = os.fspath(source)
        self._source = place if "://" in place else os.path.abspath(place)
        self._kind, self._classes = kind, classes
        dataset = Dataset(self._source, kind=kind, classes=classes)
        self._samples, self._identity = len(dataset), dataset._native.identity
        # An image tells the size of all, and whether images are files.
        self._bytes = self._samples * len(dataset._native.file(0))

    def estimate_inmemory_data_size(self) -> int:
        return self._bytes

    def get_read_tasks(self, parallelism: int, *args: Any, **options: Any) -> list[ReadTask]:
        count = max(1, min(parallelism, self._samples))
        borders = [self._samples * number // count for number in range(count + 1)]
        return [self._task(begin, end) for begin, end in zip(borders, borders[1:], strict=False)]

    def _task(self, begin: int, end: int) -> ReadTask:
        size = self._bytes * (end - begin) // self._samples
        known = BlockMetadata(num_rows=end - begin, size_bytes=size, input_files=None, exec_stats=None)
        reading = functools.partial(_read, self._source, self._kind, self._classes, self._identity, begin, end)
        return ReadTask(reading, known, schema=_SCHEMA)


def read(
    source: str | os.PathLike[str],
    *,
    kind: str | None = None,
    classes: Sequence[str] | None = None,
    override_num_blocks: int | None = None,
) -> ray.data.Dataset:
    """Makes a dataset of Ray Data of the images of any dataset, as `Images` describes its rows.

    Args:
        source: Path or URL of the dataset, as `Images` takes it.
        kind: Kind of the dataset, as `ddlp.Loader` takes it.
        classes: Names of all classes, as `ddlp.Loader` takes them.
        override_num_blocks: Tasks that read. Default: as Ray chooses.

    Raises:
        ConfigurationError: The source is no dataset, or its images are no files.
        UnavailableError: The source cannot be opened.
    """
    images = Images(source, kind=kind, classes=classes)
    return ray.data.read_datasource(images, override_num_blocks=override_num_blocks)


def push(
    dataset: ray.data.Dataset,
    url: str,
    *,
    image: str = "image",
    label: str = "label",
    id: str = "id",
    name: str | None = None,
    classes: Sequence[str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Puts a dataset of Ray Data into Redis, Valkey, Cassandra or ScyllaDB by all workers of a Ray cluster.

    The result is the dataset that `ddlp.push` puts there from a table with the same rows in the order of their ids,
    with the same identity, however Ray divides the rows. The workers judge and repair the images of their blocks, and
    send them. A task that is tried again changes nothing, nor does a push that runs twice. The dataset can be opened
    when everything is there.

    This is no `Datasink`, since the keys of all samples depend on all samples: first every block is packed, into the
    object store of Ray, which needs room for all images, and then every block is sent.

    The packages ddlp and pyarrow must be installed on every node, and all of them must reach the store. Passwords are
    those of the workers' environment (`ray.init(runtime_env={"env_vars": ...})`) and of this process's.

    Args:
        dataset: The dataset, with a row for each image.
        url: Where to put it: redis://HOST:PORT/DB/NAME or cql://HOST/KEYSPACE/NAME (rediss:// and cqls:// for TLS).
        image: Column with the bytes of image files.
        label: Column of the labels: whole numbers from 0.
        id: Column of whole numbers from 0, all different. The samples are numbered in their order.
        name: Column of the names of the samples. Default: a sample is called "row" and its id.
        classes: Names of all classes, as `ddlp.push` takes them.
        **options: format ("encoded", "raw" or "l3"), jpeg ("indexed" or "kept"), max_side, force, verify,
            allow_unreadable and strict, as `ddlp.push` takes them; and threads of each task (default: one that packs,
            four that send).

    Returns:
        The figures: samples, sent (samples that were not there yet), identity, evicts, and lists of repaired samples
        and of rejected ones, at most 100 of a block.

    Raises:
        ConfigurationError: The options do not fit each other, or another dataset has that name.
        UnavailableError: The store fails.
        CorruptError: None of the samples decodes.
        ray.exceptions.RayTaskError: A task has failed. The message has the task's error.
    """
    job = _parts.job(url, classes, None, options)
    names = {"image": image, "label": label, "id": id} | ({} if name is None else {"name": name})
    if not isinstance(dataset, ray.data.Dataset):
        raise ConfigurationError(f"dataset is {dataset!r}, but must be a dataset of Ray Data, such as of ddlp.ray.read")
    found = dataset.columns() or []
    missing = [column for column in names.values() if column not in found]
    if missing:
        raise ConfigurationError(f"the dataset has no column {missing[0]!r}; its columns are {', '.join(found)}")
    packing = functools.partial(_pack, job, names)
    parts = dataset.map_batches(packing, batch_size=None, batch_format="pyarrow").materialize()
    known = [Part(*(row[name] for name in Part._fields)) for row in parts.select_columns(list(Part._fields)).take_all()]

    def send(whole: Whole) -> Iterable[int]:
        sending = functools.partial(_send, job, ray.put(whole))
        return [row["sent"] for row in parts.map_batches(sending, batch_size=1, batch_format="pyarrow").take_all()]

    return _parts.push_whole(job, known, None, send)


def _pack(job: Job, names: dict[str, str], block: pyarrow.Table) -> pyarrow.Table:
    """Packs a block, and returns a row with the part."""
    columns = {name: block.column(column).to_pylist() for name, column in names.items()}
    fields: dict[str, list[Any]] = {name: [] for name in (*Part._fields, "file")}
    if columns["id"]:
        table = _parts.table_of(columns["image"], columns["label"], columns["id"], columns.get("name"))
        with Folder() as folder:
            part = _parts.pack_table(job, table, folder.path)
            with open(folder.path, "rb") as file:
                fields = {**{name: [value] for name, value in part._asdict().items()}, "file": [file.read()]}
    kinds = {name: pyarrow.string() if name == "losses" else pyarrow.large_binary() for name in fields}
    return pyarrow.table({name: pyarrow.array(values, kinds[name]) for name, values in fields.items()})


def _send(job: Job, whole: ray.ObjectRef, parts: pyarrow.Table) -> pyarrow.Table:
    """Sends parts, and returns how many samples were sent."""
    sent = []
    for ids, file in zip(parts.column("ids"), parts.column("file"), strict=True):
        with Folder() as folder:
            with open(folder.path, "wb") as out:
                out.write(file.as_buffer())
            sent.append(_parts.send_part(job, ray.get(whole), ids.as_py(), folder.path))
    return pyarrow.table({"sent": pyarrow.array(sent, pyarrow.int64())})


def _read(
    source: str, kind: str | None, classes: Sequence[str] | None, identity: bytes, begin: int, end: int
) -> Iterator[pyarrow.Table]:
    """Reads images of the dataset with this identity, and returns them in blocks."""
    dataset = Dataset(source, kind=kind, classes=classes)
    native, targets = dataset._native, dataset.targets
    if native.identity != identity:
        raise UnavailableError(
            f"{source} changed since this dataset of Ray Data was made, or this machine has another copy: its identity "
            f"is {native.identity.hex()}, and was {identity.hex()}. See that every machine has the same files under "
            "this name, and make the dataset again"
        )
    rows: list[tuple[int, int, str, bytes]] = []
    size = 0
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for some in (range(first, min(first + _AT_ONCE, end)) for first in range(begin, end, _AT_ONCE)):
            for number, file in zip(some, threads.map(native.file, some), strict=True):
                rows.append((number, int(targets[number]), native.name(number), file))
                size += len(file)
            if size >= _BLOCK_BYTES:
                yield _block(rows)
                rows, size = [], 0
    if rows:
        yield _block(rows)


def _block(rows: list[tuple[int, int, str, bytes]]) -> pyarrow.Table:
    return pyarrow.table(list(map(list, zip(*rows, strict=True))), schema=_SCHEMA)
