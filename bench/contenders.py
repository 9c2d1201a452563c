"""Contenders of bench/side-by-side: our own program, and the peers' scripts, in virtual environments of their own."""
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

# For each peer: its environment, its script, and for each workload the options of its variants.
PEERS = {
    "opencv": ("light", "opencv", {"W1": [[]], "W2": [[]], "W3": [[]]}),
    "turbo": ("light", "turbo", {
        "W1": [["--variant", "full"], ["--variant", "scaled"], ["--lib", "pyturbojpeg", "--variant", "scaled"]],
        "W2": [["--variant", "full"], ["--variant", "scaled"]]}),
    "kornia": ("light", "kornia", {"W1": [["--variant", "fused"]], "W2": [[]]}),
    "pil": ("light", "pil", {"W1": [[]], "W2": [[]]}),
    "pillowsimd": ("pillowsimd", "pil", {"W1": [[]], "W2": [[]]}),
    "dali": ("dali", "dali", {"W1": [[]], "W2": [[]], "W3": [[]]}),
    "tf": ("tf", "tf", {"W1": [[], ["--variant", "aa"]], "W2": [[]], "W3": [[]]}),
    "torch": ("torch", "torch", {
        "W1": [["--variant", variant] for variant in ("pil", "tvio", "webdataset", "streaming")],
        "W2": [["--variant", "tvio"]],
        "W3": [["--variant", "pil"], ["--variant", "tvio"]]}),
    "ffcv": ("ffcv", "ffcv", {
        "W1": [[], ["--variant", "q90"], ["--variant", "raw", "--max-resolution", "500"]],
        "W2": [[]],
        "W3": [[]]}),
    "spdl": ("spdl", "spdl", {"W1": [[]], "W2": [[]]}),
}
# For each environment: the packages of each call of pip, in order. A version is pinned if a later one does not work
# with the other packages, or with Debian 12's libraries.
ENVIRONMENTS = {
    # PyTurboJPEG 2 needs libjpeg-turbo 3.
    "light": [["numpy", "pillow", "opencv-python-headless", "simplejpeg", "PyTurboJPEG<2", "kornia-rs"]],
    # Older setuptools reject the package's licence field, and a new environment may contain such a version.
    "pillowsimd": [["numpy", "pybind11", "setuptools>=77", "wheel"],
                   ["--no-binary", "pillow-simd", "--no-build-isolation", "--no-deps", "pillow-simd"]],
    "dali": [["numpy", "nvidia-dali-cuda120"]],
    "tf": [["tensorflow-cpu"]],
    "torch": [["numpy", "torch", "torchvision", "webdataset", "mosaicml-streaming"]],
    "ffcv": [["setuptools<70", "wheel", "pybind11", "numba", "torch", "opencv-python-headless", "pillow",
              "terminaltables", "fastargs", "assertpy", "tqdm", "psutil", "pytorch_pfn_extras"],
             ["--no-build-isolation", "--no-deps", "ffcv"]],
    "spdl": [["numpy", "spdl"]],
}
# Compiler options that the packages' authors recommend.
COMPILERS = {"pillowsimd": {"CC": "cc -mavx2"}, "ffcv": {"CFLAGS": "-O3"}}
# Peers that one small environment holds.
DEFAULT_PEERS = ["opencv", "turbo", "kornia", "pil"]


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


def theirs(work, peer, scripts, environments, data, images, cores):
    """Returns the peer's rows of a workload, or none if the peer does not run that workload. `data` comes from
    `Datasets.for_peers`."""
    environment, script, variants = PEERS[peer]
    rows = []
    for options in variants.get(work, []):
        command = [environments / environment / "bin/python", script_of(script, scripts), "--workload", work,
                   "--images", images, "--batch", BATCHES[work], "--workers", cores,
                   "--warmup", 1, "--reps", REPETITIONS[work], *options]
        name = " ".join([peer, *(word for word in options if not word.startswith("--"))])
        # A folder for each variant, which shows what its runs read.
        converted = data.converted / name.replace(" ", "-")
        variables = {"PEERS_HOME": str(converted), data.variable: str(data.source), "OMP_NUM_THREADS": str(cores),
                     "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
        rows.append(Contender(name, work, cores, [str(word) for word in command], variables, [data.source], converted))
    return rows


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


def scripts_in(folder):
    """Returns the folder of the peers' scripts, or None if there are no scripts."""
    folder = pathlib.Path(folder)
    return folder.resolve() if any(folder.glob("bench_*.py")) else None


def script_of(name, scripts):
    """Returns the script that measures a peer."""
    return scripts / f"bench_{name}.py"
