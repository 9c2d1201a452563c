"""Packing a dataset into one file."""

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
        groups: With format="pcr": the scan groups, each the number of its last scan, rising to 10. Default: 1, 2, 5, 10.
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
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path is {path!r}, but must be the path of the file to create")
    if isinstance(source, Mix):
        raise ConfigurationError(
            "ddlp.pack makes a pack of one dataset: pack each dataset of the mix, or describe the mix in a file "
            "(.toml) and give its path"
        )
    names = names_of(classes)
    if names is None and classes is not None:
        raise ConfigurationError(f"`classes` is {classes!r}, but must be a list of the names of all classes")
    samples, columns = source, None
    if not isinstance(source, (str, os.PathLike)):
        _, samples, columns, *_ = source_of(source, kind, None)
    with _shown(progress) as show:
        return _ddlp.pack_dataset(samples, path, packing, show, columns, names)


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
