"""The drives of a loader, as its option `drives` names them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ._command import agent
from ._errors import ConfigurationError
from ._phases import whole


@dataclass(frozen=True)
class LocalDrive:
    """A drive that the loader starts itself, as a process on this machine."""

    threads: int | None = None
    """Worker threads. Default: the drive's share of half of the machine's cores."""
    cores: Sequence[int] = ()
    """Cores that the drive may run on. Default: any core."""
    throttle: float = 1.0
    """Share of its full speed at which the drive works, above 0 and at most 1."""
    slots: int | None = None
    """Result slots. Default: as many as the strategy can use and memory allows."""
    agent: str | os.PathLike[str] | None = None
    """Program of the drive's agent. Default: the one in this package."""


Drive = Literal["local", "auto"] | str | os.PathLike[str] | LocalDrive
"""A drive: `"local"`, `"auto"` (the one that the kernel is connected to), `/dev/nvme0`, an address
`tcp://HOST:PORT/NQN`, or a LocalDrive."""


def described(drives: None | Drive | Sequence[Drive]) -> list[Any] | None:
    """Describes drives as the loader's options do. None leaves the choice to the loader."""
    if drives is None:
        return None
    if isinstance(drives, (str, os.PathLike, LocalDrive)):
        drives = [drives]
    if not isinstance(drives, Iterable):
        raise TypeError(f"drives is {drives!r}, but must be a drive or a list of drives: 'local', 'auto', an address")
    return [_described(drive) for drive in drives]


def cores_of(cores: Any) -> list[int]:
    """Returns the numbers of cores."""
    if isinstance(cores, Iterable) and not isinstance(cores, str):
        return [whole("a number in cores", core) for core in cores]
    raise ConfigurationError(f"cores is {cores!r}, but must be a list of the numbers of cores, such as [0, 1]")


def _described(drive: Drive) -> Any:
    if drive == "auto":
        return "auto"
    if drive == "local":
        drive = LocalDrive()
    if isinstance(drive, LocalDrive):
        if not isinstance(drive.agent, (str, os.PathLike, type(None))):
            raise TypeError(f"agent is {drive.agent!r}, but must be the path of a program")
        options = {
            "threads": drive.threads,
            "cores": cores_of(drive.cores),
            "throttle": drive.throttle,
            "slots": drive.slots,
            "agent": agent() if drive.agent is None else os.fspath(drive.agent),
        }
        return {"local": options}
    if isinstance(drive, (str, os.PathLike)):
        return {"remote": os.fspath(drive)}
    raise TypeError(f"{drive!r} is not a drive: give 'local', 'auto', an address or a ddlp.LocalDrive")
