"""The build backend of the package: builds the programs `ddlp` and `ddlp-device`, then lets maturin make the wheel.

The environment variable DDLP_PROFILE names the cargo profile; the default is `release`. DDLP_PROGRAMS names, by an
absolute path, a folder in which the programs lie already.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import (  # noqa: F401  # noqa: F401
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,  # noqa: F401
)

PACKAGE = Path(__file__).resolve().parent.parent
PROGRAMS = ("ddlp", "ddlp-device")
PROFILE = os.environ.get("DDLP_PROFILE", "release")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds a wheel that contains the programs."""
    put_programs()
    return maturin.build_wheel(wheel_directory, with_profile(config_settings), metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds what `pip install --editable` installs; the programs lie in the source folder."""
    put_programs()
    return maturin.build_editable(wheel_directory, with_profile(config_settings), metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    """Refuses: the package is built from a checkout, which holds the sources of the programs."""
    raise RuntimeError("there is no source package of ddlp: install from a checkout, pip install ./python")


def with_profile(config_settings):
    """Returns the settings with the cargo profile as an argument of maturin."""
    settings = dict(config_settings or {})
    arguments = settings.get("build-args", "")
    settings["build-args"] = f"{arguments} --profile {PROFILE}".strip()
    return settings


def put_programs():
    """Puts the programs into the package, without symbols where `strip` is installed."""
    if given := os.environ.get("DDLP_PROGRAMS"):
        built = Path(given)
    else:
        built = build_programs()
    folder = PACKAGE / "ddlp" / "bin"
    folder.mkdir(exist_ok=True)
    for program in PROGRAMS:
        if shutil.which("strip"):
            subprocess.run(["strip", "-o", folder / program, built / program], check=True)
        else:
            shutil.copy(built / program, folder / program)


def build_programs():
    """Builds the programs. Returns the folder in which they lie."""
    names = [word for program in PROGRAMS for word in ("--package", program)]
    build = ["cargo", "build", "--locked", "--profile", PROFILE, "--bins", *names]
    subprocess.run(build, cwd=PACKAGE, check=True)
    metadata = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version", "1"], cwd=PACKAGE, check=True, stdout=subprocess.PIPE
    )
    # The profile `dev` has a folder of another name.
    return Path(json.loads(metadata.stdout)["target_directory"]) / {"dev": "debug"}.get(PROFILE, PROFILE)
