"""Our programs, built from this checkout."""
import json
import pathlib
import subprocess

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
