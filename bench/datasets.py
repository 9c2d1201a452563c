"""What bench/side-by-side reads: JPEG photographs, CIFAR-10's files, and the packs and arrays made of them."""
import array
import glob
import hashlib
import os
import pathlib
import random
import subprocess
import zipfile

CIFAR_RECORD = 1 + 3 * 32 * 32
CIFAR_RECORDS = 50_000


class Datasets:
    """Everything made lies in `home`; what is made of a folder is made again when the folder's files change."""

    def __init__(self, home, ddlp):
        self.home, self.ddlp = home, ddlp
        home.mkdir(parents=True, exist_ok=True)

    def photographs(self, folder, images):
        """The folder with photographs; without one, `images` of them are made."""
        if folder is not None:
            return pathlib.Path(folder).resolve()
        made = self.home / f"photos-{images}"
        if not made.exists():
            run([self.ddlp, "sample-data", made, "--images", images, "--quiet"])
        return made

    def cifar(self, folder):
        """The folder with CIFAR-10's binary files; without one, as many records of noise are made, which cost the same."""
        if folder is not None:
            return pathlib.Path(folder).resolve()
        made = self.home / "cifar-noise"
        noise = random.Random(0)
        for number in range(1, 6):
            path = made / f"data_batch_{number}.bin"
            if path.exists():
                continue
            made.mkdir(exist_ok=True)
            records = (bytes([record % 10]) + noise.randbytes(CIFAR_RECORD - 1) for record in range(CIFAR_RECORDS // 5))
            write(path, b"".join(records))
        return made

    def pack(self, source, name="pack", options=()):
        """A pack of the source, made with these options of `ddlp pack`; `name` tells it from others."""
        path = self.home / f"{source.name}-{state(source)}-{name}.ddlp"
        if not path.exists():
            run([self.ddlp, "pack", source, path, *options])
        return path

    def for_peers(self, source, is_cifar):
        """Variables that tell the peers' scripts where the data is, and where to keep what they make of it."""
        home = self.home / f"peers-{source.name}-{state(source)}"
        home.mkdir(exist_ok=True)
        if not is_cifar:
            return {"PEERS_HOME": str(home), "PEERS_JPEG": str(source)}
        arrays = home / "cifar10_train.npz"
        if not arrays.exists():
            write_arrays(arrays, batches_of(source))
        return {"PEERS_HOME": str(home), "PEERS_CIFAR": str(arrays)}


def jpegs(folder):
    """The files that the peers take: JPEGs by their names, at any depth."""
    found = glob.glob(f"{glob.escape(str(folder))}/**/*", recursive=True)
    return sorted(path for path in found if path.lower().endswith((".jpg", ".jpeg")))


def batches_of(folder):
    """CIFAR-10's training batches."""
    return sorted(pathlib.Path(folder).glob("data_batch_*.bin"))


def state(folder):
    """A short digest of names, sizes and times of the files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(pathlib.Path(folder).rglob("*")):
        at = path.stat()
        digest.update(f"{path.relative_to(folder)} {at.st_size} {at.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:8]


def write_arrays(path, batches):
    """CIFAR-10's batches as NumPy's arrays x (samples × 32 × 32 × 3 u8) and y (i64) in one .npz file."""
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
    """NumPy's file format, version 1.0: a header padded to 64 bytes, then the values."""
    header = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


def write(path, content):
    """A file that is there whole or not at all."""
    part = path.with_suffix(".part")
    part.write_bytes(content)
    os.replace(part, path)


def run(command):
    """A command whose output is of no interest unless it fails."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: {' '.join(map(str, command))} failed: {done.stderr.strip()}")
