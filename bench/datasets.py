"""Datasets of bench/side-by-side: JPEG photographs, CIFAR-10's files, and the packs and arrays made of them."""
import array
import glob
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import zipfile
from dataclasses import dataclass

from command_line import say

CIFAR_RECORD = 1 + 3 * 32 * 32
CIFAR_RECORDS = 50_000
# Number of damaged files that an error lists by name.
NAMED_MAX = 10
# Pattern of file names for a result of `short`.
DIGEST = "[0-9a-f]" * 8


@dataclass
class ForPeers:
    """A source of the peers, and a folder for the data that they convert."""
    source: pathlib.Path
    converted: pathlib.Path


class Datasets:
    """Makes and keeps data in `home`. Data made of a folder is made again when the folder's files change, and data that
    `ddlp` makes when the program changes."""

    def __init__(self, home, ddlp):
        self.home, self.ddlp = home, ddlp
        self.program = short(pathlib.Path(ddlp).read_bytes())
        home.mkdir(parents=True, exist_ok=True)

    def photographs(self, folder, images):
        """Returns the folder with photographs. If none is given, makes `images` photographs."""
        if folder is not None:
            return pathlib.Path(folder).resolve()
        made = self.home / f"photos-{images}-{self.program}"
        if not made.exists():
            # Remove older photographs, and the data made of them.
            older = f"photos-{images}-{DIGEST}"
            for pattern in (older, f"{older}-*", f"peers-{older}-*"):
                self.remove(pattern)
            say(f"making {images} photographs")
            run([self.ddlp, "sample-data", made, "--images", images, "--quiet"])
        return made

    def cifar(self, folder):
        """Returns the folder with CIFAR-10's binary files. If none is given, makes as many records of noise, which take
        as long."""
        if folder is not None:
            return pathlib.Path(folder).resolve()
        made = self.home / "cifar-noise"
        noise = random.Random(0)
        for number in range(1, 6):
            path = made / f"data_batch_{number}.bin"
            if path.exists():
                continue
            say(f"making noise in CIFAR's form: {path.name}")
            made.mkdir(exist_ok=True)
            records = (bytes([record % 10]) + noise.randbytes(CIFAR_RECORD - 1) for record in range(CIFAR_RECORDS // 5))
            write(path, b"".join(records))
        return made

    def pack(self, source, name="pack", options=()):
        """Returns a pack of the source, made with these options of `ddlp pack`. `name` distinguishes it from others."""
        before, behind = f"{source.name}-{state(source)}-", f"-{name}.ddlp"
        path = self.home / (before + short(f"{self.program} {options}".encode()) + behind)
        if not path.exists():
            self.remove(glob.escape(before) + DIGEST + glob.escape(behind))
            say(f"packing {source}: {name}")
            run([self.ddlp, "pack", source, path, *options])
        return path

    def check(self, pack, source):
        """Exits if the pack has samples that no loader could decode."""
        said = run([self.ddlp, "inspect", pack, "--json", "--all"])
        rejected = [sample for sample in json.loads(said)["pack"]["listed"] if sample["verdict"].startswith("rejected")]
        if rejected:
            named = "\n".join(f"  {sample['name']}: {sample['verdict'].removeprefix('rejected: ')}"
                              for sample in rejected[:NAMED_MAX])
            more = f"\n  and {len(rejected) - NAMED_MAX} more" if len(rejected) > NAMED_MAX else ""
            raise SystemExit(f"error: {source}: ddlp pack rejects {len(rejected)} of its files: remove them\n"
                             f"{named}{more}")

    def remove(self, pattern):
        """Removes files and folders that another program has made."""
        for path in self.home.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def for_peers(self, source, is_cifar):
        """Returns the data that the peers read, and the folder for data that they convert."""
        home = self.home / f"peers-{source.name}-{state(source)}"
        home.mkdir(exist_ok=True)
        if not is_cifar:
            return ForPeers(source, home)
        arrays = home / "cifar10_train.npz"
        if not arrays.exists():
            say(f"making arrays of {source}")
            write_arrays(arrays, batches_of(source))
        return ForPeers(arrays, home)


def jpegs(folder):
    """Returns the files that the peers read: those with a JPEG's extension, at any depth."""
    found = glob.glob(f"{glob.escape(str(folder))}/**/*", recursive=True)
    return sorted(path for path in found if path.lower().endswith((".jpg", ".jpeg")))


def batches_of(folder):
    """Returns CIFAR-10's training batches."""
    return sorted(pathlib.Path(folder).glob("data_batch_*.bin"))


def state(folder):
    """Returns a short digest of names, sizes and times of the files below a folder. A dangling link counts by its name
    alone."""
    digest = hashlib.sha256()
    for path in sorted(pathlib.Path(folder).rglob("*")):
        try:
            at = path.stat()
            described = f"{at.st_size} {at.st_mtime_ns}"
        except OSError:
            described = "unreadable"
        digest.update(f"{path.relative_to(folder)} {described}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:8]


def short(content):
    """Returns a short digest of some bytes."""
    return hashlib.sha256(content).hexdigest()[:8]


def write_arrays(path, batches):
    """Writes CIFAR-10's batches as NumPy's arrays x (samples × 32 × 32 × 3 u8) and y (i64) in one .npz file."""
    pixels, labels = bytearray(), array.array("q")
    for batch in batches:
        content = batch.read_bytes()
        for start in range(0, len(content), CIFAR_RECORD):
            record = content[start:start + CIFAR_RECORD]
            labels.append(record[0])
            image = bytearray(CIFAR_RECORD - 1)
            for channel in range(3):
                image[channel::3] = record[1 + channel * 1024:1 + (channel + 1) * 1024]
            pixels += image
    part = path.with_suffix(".part")
    with zipfile.ZipFile(part, "w") as out:
        out.writestr("x.npy", npy("|u1", (len(labels), 32, 32, 3), bytes(pixels)))
        out.writestr("y.npy", npy("<i8", (len(labels),), labels.tobytes()))
    os.replace(part, path)


def npy(kind, shape, content):
    """Encodes an array in NumPy's file format, version 1.0: a header padded to 64 bytes, then the values."""
    header = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


def write(path, content):
    """Writes a file that appears as a whole or not at all."""
    part = path.with_suffix(".part")
    part.write_bytes(content)
    os.replace(part, path)


def run(command):
    """Runs a command and returns its output. Exits with the command's error output if it fails."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: {' '.join(map(str, command))} failed: {done.stderr.strip()}")
    return done.stdout
