"""Packing a dataset into one file, and putting it into a store or server."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import _ddlp
from ._arrow import ArrowTable
from ._classes import names_of
from ._errors import ConfigurationError
from ._mix import Mix
from ._phases import whole
from ._samples import Samples
from ._source import source_of

Progress = Callable[[str, int, int], object]


def pack(
    source: str | os.PathLike[str] | Samples | ArrowTable,
    path: str | os.PathLike[str],
    *,
    format: str = "encoded",
    jpeg: str | None = None,
    max_side: int | None = None,
    bundle: int | None = None,
    groups: Sequence[int] | None = None,
    kind: str | None = None,
    classes: Sequence[str] | None = None,
    force: bool = False,
    verify: bool = False,
    allow_unreadable: bool = False,
    strict: bool = False,
    threads: int | None = None,
    progress: bool | Progress = True,
) -> dict[str, Any]:
    """Packs a dataset into one file, which loaders and drives read faster than many files.

    The file appears only when it is complete. An interrupt leaves nothing behind.

    Args:
        source: Path of an image folder, CIFAR-10's binary files, tar shards, a list of files (.csv), another pack, or a
            mix of these (.toml); an object or table as `Loader` takes it.
        path: The file to create, usually ending in .ddlp.
        format: "encoded" stores the image files. "raw" stores their pixels, which take several times the space and need
            no decoding. "l3" stores lossless images in the format L3, and all others as "encoded" does.
            "pcr" cuts JPEGs into pieces, of which a run with a lower fidelity reads only the first. `ddlp pack --help`
            lists all formats.
        jpeg: How JPEGs are stored: "indexed" with checkpoints (default), "rows" so that a crop reads only its rows, or
            "kept" as they are.
        max_side: With a format that stores pixels: largest length of the longer side; larger images are shrunk to it.
        bundle: With format="pcr": number of samples whose pieces lie side by side. Default: 1024.
        groups: With format="pcr": the scan groups, each the number of its last scan; the last one is 10. Default: 1, 2,
            5, 10.
        kind: Kind of the source, as `Loader` takes it. Default: as the path and its contents say.
        classes: Names of all classes, which number those of the source in the pack, as `Loader` takes them. Default: as
            in the source.
        force: Replaces an existing file.
        verify: Reads the finished file back and checks every byte before the file gets its name.
        allow_unreadable: Packs even if some files cannot be read; their samples are stored empty.
        strict: Makes no pack if an image cannot be read or decoded.
        threads: Threads that read and decode. Default: one per core.
        progress: Whether a terminal or notebook shows the progress (by tqdm, if it is installed), or a function that
            is called with the phase ("packing", "verifying" or "syncing"), the samples done in it, and all samples.

    Returns:
        The figures: samples, source_bytes, file_bytes, identity, and lists of repaired and of rejected samples.

    Raises:
        ConfigurationError: The options do not fit each other, or the file exists.
        UnavailableError: The source cannot be read.
        CorruptError: Samples would be lost, and the options do not allow that.
        SystemRefusedError: The file cannot be written.
    """
    packing = checked(format, jpeg, max_side, bundle, groups, kind, force, verify, allow_unreadable, strict, threads)
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path is {path!r}, but must be the path of the file to create")
    samples, columns, names = _source(source, kind, classes, "ddlp.pack makes a pack of one dataset: pack")
    with _shown(progress) as show:
        return _ddlp.pack_dataset(samples, path, packing, show, columns, names)


def push(
    source: str | os.PathLike[str] | Samples | ArrowTable,
    url: str,
    *,
    format: str = "encoded",
    jpeg: str | None = None,
    max_side: int | None = None,
    bundle: int | None = None,
    groups: Sequence[int] | None = None,
    kind: str | None = None,
    classes: Sequence[str] | None = None,
    share: tuple[int, int] | None = None,
    force: bool = False,
    verify: bool = False,
    allow_unreadable: bool = False,
    strict: bool = False,
    threads: int | None = None,
    progress: bool | Progress = True,
) -> dict[str, Any]:
    """Puts a dataset into Redis, Valkey, Cassandra or ScyllaDB, sample by sample, or a pack into an object store.

    A pack is sent as it is. Any other dataset is packed first, into a file without a name in the folder for temporary
    files, which needs room for it. A push that was stopped, except for one to an object store, can be called again: it
    sends only what is missing. The password is that of the environment variable REDISCLI_AUTH for Redis and Valkey, and
    of CASSANDRA_PASSWORD for Cassandra and ScyllaDB.

    Args:
        source: Path of a pack, or what `pack` takes.
        url: Where to put it: redis://HOST:PORT/DB/NAME, redis+sentinel://HOST:PORT/SERVICE/DB/NAME,
            cql://HOST/KEYSPACE/NAME (rediss://, rediss+sentinel:// and cqls:// for TLS), s3://BUCKET/PATH,
            gs://BUCKET/PATH or az://CONTAINER/PATH.
        format: How samples are stored, as `pack` takes it. With a value other than "encoded", a pack is packed again.
        jpeg: How JPEGs are stored, as `pack` takes it. With a value, a pack is packed again.
        max_side: As `pack` takes it.
        bundle: As `pack` takes it.
        groups: As `pack` takes it.
        kind: Kind of the source, as `Loader` takes it. Default: as the path and its contents say.
        classes: Names of all classes, as `pack` takes them.
        share: Number of a share, from 0 on, and number of all shares: pushes only this share of a pack, while other
            machines push the others. The dataset can be opened when all shares are there.
        force: Replaces another dataset of that name.
        verify: Reads everything back and compares it with what was sent.
        allow_unreadable: Packs even if some files cannot be read; their samples are stored empty.
        strict: Pushes nothing if an image cannot be read or decoded.
        threads: Threads that read, decode and send. Default: one per core for packing, four for sending.
        progress: As `pack` takes it, with the phases "packing" and "pushing".

    Returns:
        The figures: samples, sent (samples that were not there yet), bytes, sent_bytes, identity; evicts: the server's
        maxmemory-policy if it evicts values when its memory is full, or None; and missing_shares, the numbers of the
        shares that are not there yet.

    Raises:
        ConfigurationError: The options do not fit each other, or another dataset has that name.
        UnavailableError: The source cannot be read, or the store or server fails.
        CorruptError: Samples would be lost, and the options do not allow that; or the pack is damaged.
        SystemRefusedError: The temporary file cannot be written.
    """
    packing = checked(format, jpeg, max_side, bundle, groups, kind, force, verify, allow_unreadable, strict, threads)
    packing["share"] = _share(share)
    check_url(url)
    samples, columns, names = _source(source, kind, classes, "ddlp.push takes one dataset: push")
    with _shown(progress) as show:
        return _ddlp.push_dataset(samples, url, packing, show, columns, names)


def check_url(url: Any) -> None:
    """Refuses what is not a text."""
    if not isinstance(url, str):
        raise TypeError(f"url is {url!r}, but must be a URL, such as 'redis://HOST:PORT/DB/NAME'")


def _share(share: Any) -> tuple[int, int] | None:
    if share is None:
        return None
    if not isinstance(share, (tuple, list)) or len(share) != 2:
        raise ConfigurationError(f"`share` is {share!r}, but must be two numbers, such as (0, 4) for the first of four")
    number, of = whole("`share`", share[0]), whole("`share`", share[1])
    if not 0 <= number < of <= 4096:
        raise ConfigurationError(
            f"`share` is {share!r}, but shares are numbered from 0 on, and there are at most 4096: (0, 4) is the first "
            "of four"
        )
    return number, of


def checked(
    format: str,
    jpeg: str | None,
    max_side: int | None,
    bundle: int | None,
    groups: Sequence[int] | None,
    kind: str | None,
    force: bool,
    verify: bool,
    allow_unreadable: bool,
    strict: bool,
    threads: int | None,
) -> dict[str, Any]:
    """Returns the options of packing, after a check of their types and ranges."""
    packing = {
        "kind": kind,
        "format": format,
        "jpeg": jpeg,
        "max_side": max_side,
        "bundle": bundle,
        "groups": None if groups is None else [whole("`groups`", group) for group in groups],
        "force": force,
        "verify": verify,
        "allow_unreadable": allow_unreadable,
        "strict": strict,
        "threads": threads,
        "share": None,
        "part": None,
    }
    for name in ("bundle", "groups"):
        if packing[name] is not None and format != "pcr":
            raise ConfigurationError(f'`{name}` needs format="pcr"')
    for name, value, most in (("max_side", max_side, 65535), ("bundle", bundle, 65536), ("threads", threads, 1024)):
        if value is not None and not 0 <= whole(f"`{name}`", value) <= most:
            raise ConfigurationError(f"`{name}` is {value}, but must be 1 to {most}")
    for name in ("force", "verify", "allow_unreadable", "strict"):
        if packing[name] not in (True, False):
            raise ConfigurationError(f"`{name}` is {packing[name]!r}, but must be True or False")
        packing[name] = bool(packing[name])
    return packing


def _source(source: Any, kind: str | None, classes: Any, one_dataset: str) -> tuple[Any, Any, list[str] | None]:
    """Returns what is packed: a path or samples, columns, and the names of classes."""
    if isinstance(source, Mix):
        raise ConfigurationError(
            f"{one_dataset} each dataset of the mix, or describe the mix in a file (.toml) and give its path"
        )
    names = names_of(classes)
    if names is None and classes is not None:
        raise ConfigurationError(f"`classes` is {classes!r}, but must be a list of the names of all classes")
    samples, columns = source, None
    if not isinstance(source, (str, os.PathLike)):
        _, samples, columns, *_ = source_of(source, kind, None)
    return samples, columns, names


@contextlib.contextmanager
def _shown(progress: bool | Progress) -> Iterator[Progress]:
    """Returns the function that shows the progress."""
    if callable(progress):
        yield progress
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        tqdm = None
    if tqdm is None:
        is_shown = progress and sys.stderr.isatty()
        yield _line if is_shown else _nothing
        if is_shown:
            print(file=sys.stderr)
        return
    # Without a terminal or a notebook, tqdm shows nothing.
    with tqdm(unit=" images", disable=None if progress else True) as bar:

        def show(phase: str, done: int, total: int) -> None:
            bar.set_description(phase, refresh=False)
            bar.total, bar.n = total, done
            bar.update(0)

        yield show


def _line(phase: str, done: int, total: int) -> None:
    print(f"\r{phase}: {done} of {total} images", end="", file=sys.stderr, flush=True)


def _nothing(phase: str, done: int, total: int) -> None:
    pass
