#!/usr/bin/env python3
"""Makes the golden files of this folder from torchvision's source and from Pillow.

    python3 make.py TORCHVISION_PACKAGE

boxes.txt   boxes of torchvision's own RandomResizedCrop.get_params, RandomCrop.get_params, center_crop and
            _compute_resized_output_size. Their draws are replaced by splitmix64 words under our rules (53 upper bits of
            a word; upper half of word times n), their tensors by f64, so that a box depends on the formula alone.
            PyTorch is not needed: a stub stands in for it. TORCHVISION_PACKAGE is the folder torchvision/ of an
            unpacked wheel.
pillow.txt  300 boxes on the picture of synthetic.rs, and the CRC-32 of Pillow's crop(box).resize((n, n), BILINEAR).
decode.txt  CRC-32 of Pillow's decoding of the abilities' images to RGB.
cmyk.txt    CRC-32 of Pillow's CMYK to RGB conversion of all pairs of ink and black.

Needs numpy and Pillow.
"""
import math
import pathlib
import random
import sys
import types
import zlib

import numpy
from PIL import Image

HERE = pathlib.Path(__file__).parent
MASK = (1 << 64) - 1


class Words:
    """splitmix64."""

    def __init__(self, seed):
        self.state = seed

    def word(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def uniform(self):
        return (self.word() >> 11) / (1 << 53)

    def below(self, n):
        while True:
            product = self.word() * n
            if product & MASK >= (-n & MASK) % n:
                return product >> 64


class Scalar(float):
    """A tensor of one value."""

    def item(self):
        return float(self)


class Empty:
    def __init__(self, words):
        self.words = words

    def uniform_(self, low, high):
        return Scalar(low + (high - low) * self.words.uniform())


class Stub(types.ModuleType):
    """A module in which every name exists."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = type(name, (), {"__class_getitem__": classmethod(lambda cls, key: cls)})
        setattr(self, name, value)
        return value


def load(package, words):
    """Loads torchvision.transforms.transforms and .functional with a stub for torch."""
    torch = Stub("torch")
    torch.empty = lambda *_: Empty(words)
    torch.tensor = lambda values: [float(v) for v in values]
    torch.log = lambda values: [math.log(v) for v in values]
    torch.exp = lambda value: Scalar(math.exp(value))
    torch.randint = lambda low, high, size: types.SimpleNamespace(item=lambda: low + words.below(high - low))
    torch.jit = types.SimpleNamespace(unused=lambda f: f, is_scripting=lambda: True, is_tracing=lambda: False)
    modules = {"torch": torch, "torch.nn": Stub("torch.nn"), "torch.nn.functional": Stub("torch.nn.functional")}
    torch.nn = modules["torch.nn"]
    torch.nn.Module = object
    for name in ("torchvision", "torchvision.transforms"):
        modules[name] = Stub(name)
        modules[name].__path__ = []
    transforms = "torchvision.transforms"
    for name in ("torchvision.utils", f"{transforms}._functional_pil", f"{transforms}._functional_tensor"):
        modules[name] = Stub(name)
    modules["torchvision.utils"]._log_api_usage_once = lambda *_: None
    pil, tensor = (modules[f"torchvision.transforms._functional_{kind}"] for kind in ("pil", "tensor"))
    modules["torchvision.transforms"]._functional_pil = pil
    modules["torchvision.transforms"]._functional_tensor = tensor
    sys.modules.update(modules)
    loaded = {}
    for name in ("functional", "transforms"):
        module = types.ModuleType(f"torchvision.transforms.{name}")
        module.__package__ = "torchvision.transforms"
        sys.modules[module.__name__] = module
        setattr(modules["torchvision.transforms"], name, module)
        source = (pathlib.Path(package) / "transforms" / f"{name}.py").read_text()
        exec(compile(source, name, "exec"), module.__dict__)
        loaded[name] = module
    functional = loaded["functional"]
    functional.get_dimensions = lambda image: [3, image[1], image[0]]
    # An image is (width, height, padding on the left, padding on top).
    functional.pad = lambda image, p, fill=0, **_: (image[0] + p[0] + p[2], image[1] + p[1] + p[3], p[0], p[1])
    functional.crop = lambda image, top, left, height, width: (left - image[2], top - image[3], width, height)
    return loaded["transforms"], functional


def boxes(package):
    words = Words(0)
    transforms, functional = load(package, words)
    choose = random.Random(7)
    scales = [(0.08, 1.0)] * 6 + [(0.5, 1.0), (0.01, 0.02), (1.0, 1.0), (0.9, 1.0)]
    ratios = [(3 / 4, 4 / 3)] * 6 + [(0.5, 2.0), (1.0, 1.0), (3.0, 4.0), (0.1, 0.2)]
    side = lambda: choose.choice([choose.randint(1, 40), choose.randint(41, 700), choose.randint(701, 60000)])
    lines = []
    for seed in range(2400):
        width, height, scale, ratio = side(), side(), choose.choice(scales), choose.choice(ratios)
        if seed % 2:
            width, height = choose.choice([(500, 375), (375, 500), (468, 401), (32, 32), (640, 480), (4000, 3000)])
        words.state = seed
        y, x, h, w = transforms.RandomResizedCrop.get_params((width, height, 0, 0), list(scale), list(ratio))
        lines.append(f"rrc {seed} {width} {height} {scale[0]!r} {scale[1]!r} {ratio[0]!r} {ratio[1]!r} {x} {y} {w} {h}")
    for seed in range(300):
        width, height, size, padding = (choose.randint(1, 70) for _ in range(4))
        size = min(size, width + 2 * padding, height + 2 * padding)
        if seed % 10 == 0:
            width = height = size - 2 * min(padding, (size - 1) // 2)
            padding = (size - width) // 2
            size = width + 2 * padding
        words.state = seed
        padded = (width + 2 * padding, height + 2 * padding, padding, padding)
        y, x, h, w = transforms.RandomCrop.get_params(padded, (size, size))
        lines.append(f"crop {seed} {width} {height} {size} {padding} {x - padding} {y - padding} {w} {h}")
    for _ in range(300):
        width, height, size = (choose.randint(1, 600) for _ in range(3))
        found = functional.center_crop((width, height, 0, 0), [size, size])
        if len(found) == 4 and found[:2] == (size, size):  # padded on both sides, so nothing is cropped
            found = (-found[2], -found[3], size, size)
        lines.append(f"center {width} {height} {size} {' '.join(map(str, found))}")
    for _ in range(300):
        width, height, size = side(), side(), choose.randint(1, 400)
        if size * max(width, height) // min(width, height) > 65535:
            continue
        h, w = functional._compute_resized_output_size((height, width), [size])
        lines.append(f"resize {width} {height} {size} {w} {h}")
    (HERE / "boxes.txt").write_text("\n".join(lines) + "\n")


def photo(width, height, seed):
    """Returns the picture of synthetic.rs."""
    y, x, c = numpy.meshgrid(*(numpy.arange(n, dtype=numpy.int64) for n in (height, width, 3)), indexing="ij")

    def hashed(x, y, channel, k):
        word = x * 374761393 + y * 668265263 + channel * 2246822519 + k * 3266489917 + seed * 2654435761 & 0xFFFFFFFF
        word = (word ^ (word >> 13)) * 1274126177 & 0xFFFFFFFF
        return (word ^ (word >> 16)) & 0xFF

    total = 0
    for k, amplitude in enumerate([3, 6, 9, 14, 24, 40, 64, 96]):
        cell, column, row, across, down = 1 << k, x >> k, y >> k, x % (1 << k), y % (1 << k)
        upper = hashed(column, row, c, k) * (cell - across) + hashed(column + 1, row, c, k) * across
        lower = hashed(column, row + 1, c, k) * (cell - across) + hashed(column + 1, row + 1, c, k) * across
        total = total + amplitude * ((upper * (cell - down) + lower * down) >> (2 * k))
    disc = hashed(x >> 6, y >> 6, numpy.int64(3), numpy.int64(8))
    inside = (x % 64 - 32) ** 2 + (y % 64 - 32) ** 2 < (disc & 31) ** 2
    value = (total >> 8) * 2 - 128 + numpy.where(inside, (disc >> 5) * 16 - 56, 0)
    return numpy.clip(value, 0, 255).astype(numpy.uint8)


def pillow():
    image = Image.fromarray(photo(500, 375, 1))
    choose = random.Random(11)
    lines = [f"source 500 375 1 {zlib.crc32(image.tobytes())}"]
    while len(lines) < 301:
        area = 500 * 375 * choose.uniform(0.08, 1.0)
        ratio = math.exp(choose.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if w > 500 or h > 375:
            continue
        x, y = choose.randint(0, 500 - w), choose.randint(0, 375 - h)
        side = choose.choice([224, 224, 224, 160, 96, 32])
        done = image.crop((x, y, x + w, y + h)).resize((side, side), Image.Resampling.BILINEAR)
        lines.append(f"{x} {y} {w} {h} {side} {zlib.crc32(done.tobytes())}")
    (HERE / "pillow.txt").write_text("\n".join(lines) + "\n")


def decode():
    lines = []
    for path in sorted((HERE / "../../src/ability/images").iterdir()):
        lines.append(f"{path.name} {zlib.crc32(Image.open(path).convert('RGB').tobytes())}")
    (HERE / "decode.txt").write_text("\n".join(lines) + "\n")


def cmyk():
    inks = bytes(value for black in range(256) for ink in range(256) for value in (ink, 255 - ink, ink ^ black, black))
    # Pillow inverts a JPEG's inks when it reads them.
    image = Image.frombytes("CMYK", (256, 256), bytes(255 - value for value in inks))
    (HERE / "cmyk.txt").write_text(f"{zlib.crc32(image.convert('RGB').tobytes())}\n")


if __name__ == "__main__":
    boxes(sys.argv[1])
    pillow()
    decode()
    cmyk()
