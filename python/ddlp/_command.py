"""The command `ddlp`, a program that the package contains."""

import os
import sys
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "bin"


def main() -> None:
    """Replaces this process by the program `ddlp`."""
    program = PROGRAMS / "ddlp"
    try:
        os.execv(program, ["ddlp", *sys.argv[1:]])
    except OSError as error:
        remedy = "install the package again (pip install ./python in a checkout)"
        sys.exit(f"error: {program} cannot be started ({error.strerror}): {remedy}")


def agent() -> str | None:
    """Returns the program of a local drive, if the package contains it."""
    program = PROGRAMS / "ddlp-device"
    return str(program) if program.is_file() else None
