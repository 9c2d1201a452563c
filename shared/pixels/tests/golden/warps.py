"""Makes warps.txt: what torchvision's warps make of one image.

    python3 warps.py > warps.txt
    python3 warps.py bicubic > bicubic.txt

warps.txt has nearest and bilinear warps of a tensor, made with torchvision 0.14.1 and torch 1.13.0. bicubic.txt has
bicubic warps of a Pillow image, since torchvision has none of tensors, made with torchvision 0.29.2 and Pillow 13.0.0.
A line has a name, which lists the function and its parameters,
the width and height of the result, and its pixels as rows of RGB in hexadecimal digits. The line "image" has the image
itself.
"""

import math
import sys

import torch
from torchvision.transforms import InterpolationMode, functional

WIDTH, HEIGHT = 26, 18
MASK = (1 << 64) - 1


def splitmix(state):
    """Yields the bytes of splitmix64, lowest first."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield from (z ^ (z >> 31)).to_bytes(8, "little")


def image():
    """Returns noise on a gradient."""
    noise = splitmix(9)
    rows = [[[5 * x + 6 * y + 4 * c + next(noise) % 24 for c in range(3)] for x in range(WIDTH)] for y in range(HEIGHT)]
    return torch.tensor(rows, dtype=torch.uint8).permute(2, 0, 1)


def line(name, pixels):
    if not isinstance(pixels, torch.Tensor):
        pixels = functional.pil_to_tensor(pixels)
    print(name, pixels.shape[2], pixels.shape[1], bytes(pixels.permute(1, 2, 0).flatten().tolist()).hex())


def main():
    pixels = image()
    line("image", pixels)
    modes = [InterpolationMode.NEAREST, InterpolationMode.BILINEAR]
    if sys.argv[1:] == ["bicubic"]:
        modes = [InterpolationMode.BICUBIC]
        pixels = functional.to_pil_image(pixels)
    for mode in modes:
        name = mode.value
        for angle, expand, center in [
            (30.0, False, None), (-75.3, True, None), (90.0, True, None), (160.0, False, [3, 12]), (12.5, True, [0, 0]),
        ]:
            rotated = functional.rotate(pixels, angle, mode, expand, center, [0.0])
            line(f"rotate:{name}:{angle}:{int(expand)}:{','.join(map(str, center or []))}:0", rotated)
        line(f"rotate:{name}:45.0:0::90", functional.rotate(pixels, 45.0, mode, False, None, [90.0]))
        for angle, translate, scale, shear, center in [
            (0.0, [3, -2], 1.0, [0.0, 0.0], None),
            (-20.0, [0, 4], 1.3, [0.0, 0.0], None),
            (8.0, [-2, 1], 0.7, [11.0, -6.0], [5, 9]),
            # The shears of RandAugment, which leave the upper left corner in place.
            (0.0, [0, 0], 1.0, [math.degrees(math.atan(0.3)), 0.0], [0, 0]),
            (0.0, [0, 0], 1.0, [0.0, -math.degrees(math.atan(0.21))], [0, 0]),
        ]:
            parameters = [angle, *translate, scale, *shear]
            text = f"{','.join(map(str, parameters))}:{','.join(map(str, center or []))}"
            made = functional.affine(pixels, angle, translate, scale, shear, mode, [0.0], center)
            line(f"affine:{name}:{text}:0", made)
        right, bottom = WIDTH - 1, HEIGHT - 1
        start = [[0, 0], [right, 0], [right, bottom], [0, bottom]]
        for end in [
            [[2, 1], [right - 3, 2], [right, bottom - 5], [4, bottom - 1]],
            [[6, 4], [right - 6, 3], [right - 1, bottom - 4], [0, bottom]],
        ]:
            text = ",".join(str(place) for corner in end for place in corner)
            line(f"perspective:{name}:{text}:0", functional.perspective(pixels, start, end, mode, [0.0]))


if __name__ == "__main__":
    main()
