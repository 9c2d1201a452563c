#!/usr/bin/env python3
"""Makes resize.txt: boxes on the picture of synthetic.rs, and the CRC-32 of torchvision's resized_crop of them.

The picture is a tensor of bytes, which torch resizes by weights of 16 bits in one thread or in several. For "bilinear"
torchvision does so only on processors with AVX2; on others it computes with floats, with other last bits. Needs torch,
torchvision and NumPy.
"""
import math
import pathlib
import random
import zlib

import torch
from make import photo
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

HERE = pathlib.Path(__file__).parent
WIDTH, HEIGHT = 500, 375

if "AVX" not in torch.backends.cpu.get_cpu_capability():
    raise SystemExit("this processor has no AVX2, so that torchvision resizes with floats")
picture = photo(WIDTH, HEIGHT, 1)
image = torch.from_numpy(picture).permute(2, 0, 1)
choose = random.Random(12)
lines = [f"source {WIDTH} {HEIGHT} 1 {zlib.crc32(picture.tobytes())}"]
for number in range(300):
    area = WIDTH * HEIGHT * choose.uniform(0.001, 1.0)
    ratio = math.exp(choose.uniform(math.log(1 / 2), math.log(2)))
    width, height = min(round(math.sqrt(area * ratio)), WIDTH), min(round(math.sqrt(area / ratio)), HEIGHT)
    x, y = choose.randint(0, WIDTH - width), choose.randint(0, HEIGHT - height)
    size = [choose.choice([224, 224, 160, 96, 32, 7]) for _ in "hw"]
    mode = ("bilinear", "bicubic")[number % 2]
    done = functional.resized_crop(image, y, x, height, width, size, InterpolationMode(mode), antialias=True)
    crc = zlib.crc32(done.permute(1, 2, 0).contiguous().numpy().tobytes())
    lines.append(f"{mode} {x} {y} {width} {height} {size[1]} {size[0]} {crc}")
(HERE / "resize.txt").write_text("\n".join(lines) + "\n")
