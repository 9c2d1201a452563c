"""Our programs, built from this checkout."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent


def cargo(*words):
    """Runs cargo, shows its progress, and returns its output."""
    done = subprocess.run(["cargo", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit("error: cargo cannot build this checkout; its message is above "
                         "(./check installs what is missing)")
    return done.stdout


def build():
    """Builds our programs. Returns the command, the example that delivers f32, and a folder for data in cargo's target
    folder."""
    cargo("build", "--locked", "--release", "-p", "ddlp")
    cargo("build", "--locked", "--release", "-p", "ddlp-host", "--example", "epochs_f32")
    target = pathlib.Path(json.loads(cargo("metadata", "--no-deps", "--format-version", "1"))["target_directory"])
    return target / "release/ddlp", target / "release/examples/epochs_f32", target / "side-by-side"


def build_agent():
    """Builds the drive's agent, and returns its path."""
    cargo("build", "--locked", "--release", "-p", "ddlp-device", "--bin", "ddlp-device")
    target = json.loads(cargo("metadata", "--no-deps", "--format-version", "1"))["target_directory"]
    return pathlib.Path(target) / "release/ddlp-device"


@dataclass
class Package:
    """Our Python package, and the interpreter that runs it."""
    folder: pathlib.Path
    python: pathlib.Path


def build_package(home, python):
    """Builds the Python package, and installs it into a folder of its own, beside what `python` already has."""
    folder, wheels = home / "package", home / "wheels"
    for path in (folder, wheels):
        shutil.rmtree(path, ignore_errors=True)
    maker = home / "maker"
    commands = [] if (maker / "bin/pip").exists() else [[sys.executable, "-m", "venv", maker]]
    pip = [maker / "bin/pip", "--disable-pip-version-check"]
    commands += [[*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, ROOT / "python"]]
    for command in commands:
        run(command)
    run([*pip, "install", "--quiet", "--no-deps", "--target", folder, *wheels.glob("ddlp-*.whl")])
    return Package(folder, python)


def run(command):
    """Runs a program with the package's tools and the release profile. Exits if it fails."""
    tools = str(ROOT / "python/tools.txt")
    environment = {**os.environ, "DDLP_PROFILE": "release", "PIP_BUILD_CONSTRAINT": tools, "PIP_CONSTRAINT": tools}
    # Standard output is for results.
    done = subprocess.run([str(word) for word in command], stdout=sys.stderr, env=environment, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: {command[0]} failed with status {done.returncode}; its message is above")


def interpreter():
    """Returns the Python that takes our batches: the first one that has PyTorch, else one that has NumPy, else None."""
    for module in ("torch", "numpy"):
        for program in (sys.executable, "/usr/bin/python3"):
            if os.path.exists(program) and has(program, module):
                return pathlib.Path(program)
    return None


def has(program, module):
    """Returns whether a Python has a module."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{module}') is None)"
    return subprocess.run([program, "-c", code], check=False).returncode == 0
