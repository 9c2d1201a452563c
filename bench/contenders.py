"""Contenders of bench/side-by-side: our own program, our Python package, and the peers in virtual environments."""
import json
import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass

from measure import complaint

# Works: name and description, pipeline, and samples in a batch. Whole epochs are timed; short epochs several times in a
# run.
WORKS = {
    "W1": "ImageNet train: random resized crop 224, flip, f32 NCHW normalised, batches of 64",
    "W2": "ImageNet validation: resize 256, centre crop 224, f32 NCHW normalised, batches of 64",
    "W3": "CIFAR-10 train: pad 4, crop 32, flip, f32 NCHW normalised, batches of 512",
}
PIPELINES = {"W1": "imagenet-train", "W2": "imagenet-val", "W3": "cifar-train"}
BATCHES = {"W1": 64, "W2": 64, "W3": 512}
REPETITIONS = {"W1": 1, "W2": 1, "W3": 15}

# For each peer: its environment, its module in peers/loaders, and for each work the variants.
PEERS = {
    "opencv": ("light", "opencv", {"W1": [""], "W2": [""], "W3": [""]}),
    "turbo": ("light", "turbo", {"W1": ["full", "scaled", "pyturbojpeg scaled"], "W2": ["full", "scaled"]}),
    "kornia": ("light", "kornia", {"W1": ["fused"], "W2": [""]}),
    "pillow": ("light", "pillow", {"W1": [""], "W2": [""]}),
    "pillowsimd": ("pillowsimd", "pillow", {"W1": [""], "W2": [""]}),
    "grain": ("grain", "grain", {"W1": [""], "W2": [""]}),
    "dali": ("dali", "dali", {"W1": [""], "W2": [""], "W3": [""]}),
    "tf": ("tf", "tf", {"W1": ["", "aa"], "W2": [""], "W3": [""]}),
    "torch": ("torch", "torch", {"W1": ["pil", "tvio"], "W2": ["tvio"], "W3": ["pil", "batch"]}),
    "webdataset": ("torch", "webdataset", {"W1": [""]}),
    "streaming": ("torch", "streaming", {"W1": [""]}),
    "ffcv": ("ffcv", "ffcv", {"W1": ["", "q90", "raw"], "W2": [""], "W3": [""]}),
    "spdl": ("spdl", "spdl", {"W1": [""], "W2": [""]}),
}
# For each environment: the packages of each call of pip, in order. A version is pinned if a later one does not work
# with the other packages, or with Debian 12's libraries.
ENVIRONMENTS = {
    # PyTurboJPEG 2 needs libjpeg-turbo 3.
    "light": [["numpy", "pillow", "opencv-python-headless", "simplejpeg", "PyTurboJPEG<2", "kornia-rs"]],
    # Older setuptools reject the package's licence field, and a new environment may contain such a version.
    "pillowsimd": [["numpy", "pybind11", "setuptools>=77", "wheel"],
                   ["--no-binary", "pillow-simd", "--no-build-isolation", "--no-deps", "pillow-simd"]],
    "grain": [["numpy", "pillow", "grain"]],
    "dali": [["numpy", "nvidia-dali-cuda120"]],
    "tf": [["tensorflow-cpu"]],
    "torch": [["numpy", "torch", "torchvision", "webdataset", "mosaicml-streaming"]],
    # For bench/recipe.
    "torchvision": [["numpy", "pillow", "torch", "torchvision"]],
    "ffcv": [["setuptools<70", "wheel", "pybind11", "numba", "torch", "opencv-python-headless", "pillow",
              "terminaltables", "fastargs", "assertpy", "tqdm", "psutil", "pytorch_pfn_extras"],
             ["--no-build-isolation", "--no-deps", "ffcv"]],
    "spdl": [["numpy", "spdl"]],
}
# Compiler options that the packages' authors recommend.
COMPILERS = {"pillowsimd": {"CC": "cc -mavx2"}, "ffcv": {"CFLAGS": "-O3"}}
# Peers that one small environment holds.
DEFAULT_PEERS = ["opencv", "turbo", "kornia", "pillow"]
PEER_PROGRAM = pathlib.Path(__file__).resolve().parent / "peers/run.py"


@dataclass
class Contender:
    """A row of a table: a command whose last line of output is its figures, as JSON."""
    name: str
    work: str
    cores: int
    command: list
    environment: dict
    reads: list
    # Folder for the data that a peer converts.
    converts_to: pathlib.Path | None = None
    is_ours: bool = False

    def files(self):
        """Returns the files that a run reads: the source, or the data converted from it; for W3 the source in any
        case."""
        if self.converts_to is None or not any(path.is_file() for path in self.converts_to.rglob("*")):
            return self.reads
        return [self.converts_to] if self.work != "W3" else [self.converts_to, *self.reads]


def ours(work, program, dataset, images, cores):
    """Returns our loader over `dataset`, a pair of name and path."""
    name, path = dataset
    command = [program, path, "--pipeline", PIPELINES[work], "--samples", images, "--batch", BATCHES[work],
               "--threads", cores, "--warmup", 1, "--reps", REPETITIONS[work]]
    return Contender(f"ddlp {name}", work, cores, [str(word) for word in command], {}, [path], is_ours=True)


def ours_in_python(work, package, dataset, images, cores):
    """Returns our loader over `dataset` as training code in Python uses it. `package` comes from `programs.Package`."""
    name, path = dataset
    options = ["--source", path, "--converted", package.folder]
    command = peer_command(package.python, "ddlp", work, images, cores, options)
    return Contender(f"ddlp {name}, Python", work, cores, command, {"PYTHONPATH": str(package.folder)}, [path])


def theirs(work, peer, environments, data, images, cores):
    """Returns the peer's rows of a workload, or none if the peer does not run that workload. `data` comes from
    `Datasets.for_peers`."""
    environment, loader, variants = PEERS[peer]
    rows = []
    for variant in variants.get(work, []):
        name = f"{peer} {variant}".strip()
        # A folder for each variant, which shows what its runs read.
        converted = data.converted / name.replace(" ", "-")
        options = ["--variant", variant, "--source", data.source, "--converted", converted]
        command = peer_command(environments / environment / "bin/python", loader, work, images, cores, options)
        variables = {"OMP_NUM_THREADS": str(cores), "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
        rows.append(Contender(name, work, cores, command, variables, [data.source], converted))
    return rows


def peer_command(python, loader, work, images, cores, options):
    """Returns the command that times a loader of peers/loaders."""
    command = [python, PEER_PROGRAM, loader, "--work", work, "--images", images, "--batch", BATCHES[work],
               "--threads", cores, "--warmup", 1, "--reps", REPETITIONS[work], *options]
    return [str(word) for word in command]


def install(environment, environments):
    """Makes a peer's virtual environment, once for each list of packages. Returns what went wrong, or None."""
    packages, home = ENVIRONMENTS[environment], environments / environment
    stamp = home / "packages.json"
    if stamp.is_file() and json.loads(stamp.read_text()) == packages:
        return None
    environments.mkdir(parents=True, exist_ok=True)
    log = environments / f"{environment}.log"
    commands = [[sys.executable, "-m", "venv", "--clear", home]]
    commands += [[home / "bin/pip", "install", "--quiet", *words] for words in packages]
    with log.open("wb") as out:
        for command in commands:
            done = subprocess.run(command, env={**os.environ, **COMPILERS.get(environment, {})},
                                  stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False)
            if done.returncode != 0:
                return f"cannot be installed: {complaint(log.read_text(errors='replace'))} (full log: {log})"
    stamp.write_text(json.dumps(packages))
    return None
