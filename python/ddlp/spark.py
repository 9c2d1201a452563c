"""Pushing a dataset by the workers of Spark: see `push`.

import ddlp.spark

ddlp.spark.push(spark, "/data/photos", "cql://10.0.0.7/photos/train", partitions=512)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from . import _parts
from ._dataset import Dataset
from ._errors import ConfigurationError
from ._packing import push as _push
from ._parts import Folder, Job, Part, Whole
from ._phases import whole as _whole_number

try:
    import pyspark
except ImportError:
    raise ImportError("ddlp.spark needs the package pyspark, which is not installed: pip install pyspark") from None

__all__ = ["push"]

_CHUNK_BYTES = 32 << 20
"""Bytes of a part in one record of Spark, which takes at most 2 GiB."""


def push(
    spark: pyspark.sql.SparkSession,
    source: str | os.PathLike[str] | pyspark.sql.DataFrame,
    url: str,
    *,
    partitions: int | None = None,
    image: str = "image",
    label: str = "label",
    id: str = "id",
    name: str | None = None,
    kind: str | None = None,
    classes: Sequence[str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Puts a dataset into Redis, Valkey, Cassandra or ScyllaDB by all workers of a Spark cluster.

    The result is the dataset that `ddlp.push` puts there, with the same identity. Each worker judges and repairs the
    images of its partitions, and sends them. A task that fails, and is tried again, changes nothing, nor does a push
    that runs twice. The dataset can be opened when everything is there.

    The package ddlp, and for a DataFrame pyarrow, must be installed on the driver and on every worker, and all of them
    must reach the store. Passwords are those of the workers' environment (`spark.executorEnv.REDISCLI_AUTH`,
    `spark.executorEnv.CASSANDRA_PASSWORD`) and of the driver's.

    Args:
        spark: The session. Spark Connect, which has no RDDs, does not suffice.
        source: Path or URL of a pack, or path of an image folder, CIFAR-10's binary files, tar shards or a list of
            files (.csv), which every worker can read under this name. Or a DataFrame with a row for each image.
        url: Where to put it: redis://HOST:PORT/DB/NAME or cql://HOST/KEYSPACE/NAME (rediss:// and cqls:// for TLS).
        partitions: Parts in which the samples are packed and sent. The bytes of a part lie in files of a worker, twice
            for a while. Default: that of a DataFrame, or four for each core of the cluster.
        image: Column of a DataFrame with the bytes of image files.
        label: Column of the labels: whole numbers from 0.
        id: Column of whole numbers from 0, all different. The samples are numbered in their order.
        name: Column of the names of the samples. Default: a sample is called "row" and its id.
        kind: Kind of a source that is a path, as `ddlp.push` takes it.
        classes: Names of all classes, as `ddlp.push` takes them.
        **options: format ("encoded", "raw" or "l3"), jpeg ("indexed" or "kept"), max_side, force, verify,
            allow_unreadable and strict, as `ddlp.push` takes them; and threads of each task (default: one that packs,
            four that send).

    Returns:
        The figures: samples, sent (samples that were not there yet), identity, evicts, and lists of repaired samples
        and of rejected ones, at most 100 of a partition.

    Raises:
        ConfigurationError: The options do not fit each other, or another dataset has that name.
        UnavailableError: The store fails, or files were added or removed meanwhile, or a worker has other files.
        CorruptError: None of the samples decodes.
        py4j.protocol.Py4JJavaError: A task has failed as often as Spark tries it. The message has the task's error.
    """
    job = _parts.job(url, classes, kind, options)
    if partitions is not None and _whole_number("`partitions`", partitions) < 1:
        raise ConfigurationError(f"`partitions` is {partitions}, but must be 1 or more")
    context, identity = spark.sparkContext, None
    if isinstance(source, (str, os.PathLike)):
        place = os.fspath(source)
        place = place if "://" in place else os.path.abspath(place)
        opened = Dataset(place, kind=kind, classes=classes)
        count = min(partitions or 4 * context.defaultParallelism, len(opened))
        if opened._native.kind == "pack":
            return _push_pack(context, place, job, count)
        if opened._native.kind == "mix":
            raise ConfigurationError(f"{place} is a mix: make a pack of it first, by ddlp.pack, and give its path")
        identity = opened._native.identity
        borders = [len(opened) * number // count for number in range(count + 1)]
        ranges = context.parallelize(list(zip(borders, borders[1:], strict=False)), count)
        parts = ranges.mapPartitions(_PackRanges(job, place))
    else:
        columns = [image, label, id, *([] if name is None else [name])]
        missing = [column for column in columns if column not in source.columns]
        if missing:
            raise ConfigurationError(
                f"the DataFrame has no column {missing[0]!r}; its columns are {', '.join(source.columns)}"
            )
        rows = source.select(*[source[column] for column in columns])
        rows = rows if partitions is None else rows.repartition(partitions)
        parts = rows.rdd.mapPartitions(_PackRows(job))
    # The second pass reads what the first one has packed. What a lost worker had is packed once more.
    parts = parts.persist(pyspark.StorageLevel.DISK_ONLY)
    try:
        known = parts.filter(_is_known).map(_known).collect()

        def send(whole: Whole) -> Iterable[int]:
            shared = context.broadcast(whole)
            sent: list[int] = parts.mapPartitions(_Send(job, shared)).collect()
            shared.destroy()
            return sent

        return _parts.push_whole(job, known, identity, send)
    finally:
        parts.unpersist()


def _push_pack(context: Any, place: str, job: Job, count: int) -> dict[str, Any]:
    """Pushes a pack as it is."""
    packing = job.packing
    if packing["format"] != "encoded" or packing["jpeg"] is not None or job.classes is not None:
        raise ConfigurationError(
            f"{place} is a pack, whose samples are pushed as they are: leave out `format`, `jpeg` and `classes`, or "
            "make another pack, by ddlp.pack"
        )
    options = {name: packing[name] for name in ("force", "verify", "strict", "threads")}
    count = min(count, 4096)
    # Tables in Cassandra are made once, and not by all workers at the same time.
    _parts.begin(job, place)
    push_share = _PushShare(place, job.url, count, options)
    shares = context.parallelize(range(count), count).map(push_share).collect()
    if all(share["missing_shares"] for share in shares):
        # A task that Spark has given up may have been the last one, and not have ended.
        shares.append({**push_share(0), "samples": 0})
    figures = {name: sum(share[name] for share in shares) for name in ("samples", "sent")}
    last = shares[-1]
    return {**figures, "identity": last["identity"], "evicts": last["evicts"], "repaired": [], "rejected": []}


class _PushShare:
    """Pushes a share of a pack."""

    def __init__(self, place: str, url: str, count: int, options: dict[str, Any]) -> None:
        self._place, self._url, self._count, self._options = place, url, count, options

    def __call__(self, number: int) -> dict[str, Any]:
        return _push(self._place, self._url, share=(number, self._count), progress=False, **self._options)


class _PackRanges:
    """Packs ranges of the samples of a path."""

    def __init__(self, job: Job, place: str) -> None:
        self._job, self._place = job, place

    def __call__(self, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[Any, ...]]:
        for begin, end in ranges:
            with Folder() as folder:
                yield from _records(_parts.pack_range(self._job, self._place, begin, end, folder.path), folder.path)


class _PackRows:
    """Packs the rows of a partition."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self, rows: Iterable[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
        columns = [list(column) for column in zip(*rows, strict=True)]
        if columns:
            images, labels, ids, *names = columns
            table = _parts.table_of(images, labels, ids, names[0] if names else None)
            with Folder() as folder:
                yield from _records(_parts.pack_table(self._job, table, folder.path), folder.path)


class _Send:
    """Sends the parts of a partition."""

    def __init__(self, job: Job, shared: Any) -> None:
        self._job, self._shared = job, shared

    def __call__(self, records: Iterable[tuple[Any, ...]]) -> Iterator[int]:
        records = iter(records)
        for record in records:
            part, chunks = Part(*record[1:4]), record[4]
            with Folder() as folder:
                with open(folder.path, "wb") as file:
                    for _ in range(chunks):
                        file.write(next(records)[1])
                yield _parts.send_part(self._job, self._shared.value, part.ids, folder.path)


def _records(part: Part, path: str) -> Iterator[tuple[Any, ...]]:
    """Returns a part as records of Spark: what is known of it, and then its bytes."""
    chunks = -(-os.path.getsize(path) // _CHUNK_BYTES)
    yield ("known", *part, chunks)
    with open(path, "rb") as file:
        for _ in range(chunks):
            yield ("bytes", file.read(_CHUNK_BYTES))


def _is_known(record: tuple[Any, ...]) -> bool:
    return bool(record[0] == "known")


def _known(record: tuple[Any, ...]) -> Part:
    return Part(*record[1:4])
