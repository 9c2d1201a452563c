"""Makes values.txt: what torchvision's operations on values make of one image.

    python3 values.py > values.txt

Written with torchvision 0.14.1 and torch 1.13.0. A line has an operation's name, its parameters, and the pixels of a
square as rows of RGB in hexadecimal digits. The line "image" has the image itself.

A line "erase" has no pixels, but the rectangle that RandomErasing.get_params draws: x, y, width, height, or nothing if
it leaves the image alone. Its draws are replaced by splitmix64's words under our rules (53 upper bits of a word; upper
half of word times n), and its tensors compute in f64, so that a rectangle depends on torchvision's formula alone.

Lines "apply" have the results of autoaugment's _apply_op: a change's name, its magnitude, and pixels. Lines
"magnitudes" have the magnitudes of a change in the space of RandAugment (usual) or TrivialAugmentWide (wide), for a
number of bins and an image of 500 x 224 pixels.
"""

import random
import types

import torch
from torchvision.transforms import InterpolationMode, autoaugment, functional, transforms

SIDE = 20
MASK = (1 << 64) - 1


def splitmix(state):
    """Yields the bytes of splitmix64, lowest first."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield from (z ^ (z >> 31)).to_bytes(8, "little")


def image():
    """Returns noise on a gradient whose values stay between 30 and 219."""
    noise = splitmix(7)
    rows = [[[30 + 5 * x + 3 * y + 4 * c + next(noise) % 30 for c in range(3)] for x in range(SIDE)]
            for y in range(SIDE)]
    return torch.tensor(rows, dtype=torch.uint8).permute(2, 0, 1)


class Words:
    """The words of splitmix64."""

    def __init__(self, seed):
        self.bytes = splitmix(seed)

    def word(self):
        return int.from_bytes(bytes(next(self.bytes) for _ in range(8)), "little")

    def uniform(self):
        return (self.word() >> 11) / (1 << 53)

    def below(self, n):
        while True:
            product = self.word() * n
            if product & MASK >= (-n & MASK) % n:
                return product >> 64


def erased(words, width, height, scale, ratio):
    """Returns the rectangle that torchvision erases, or None."""

    def empty(*_):
        draw = lambda low, high: torch.tensor(float(low) + (float(high) - float(low)) * words.uniform())
        return types.SimpleNamespace(uniform_=draw)

    def randint(low, high, size):
        return torch.tensor(low + words.below(high - low))

    transforms.torch = types.SimpleNamespace(
        empty=empty, randint=randint, log=torch.log, exp=torch.exp, tensor=torch.tensor, float32=torch.float32
    )
    torch.set_default_dtype(torch.float64)
    image = torch.empty((3, height, width), dtype=torch.uint8)
    words.uniform()  # decides whether anything is erased
    y, x, h, w, value = transforms.RandomErasing.get_params(image, scale, ratio, [0])
    torch.set_default_dtype(torch.float32)
    return None if value is image or not h or not w else (x, y, w, h)


def erasing_lines():
    choose = random.Random(3)
    bounds = [((0.02, 0.33), (0.3, 3.3))] * 3
    bounds += [((0.3, 1.0), (0.1, 10.0)), ((0.9, 1.0), (0.9, 1.1)), ((0.001, 0.01), (1, 1))]
    for seed in range(60):
        size = choose.choice([(224, 224), (32, 32), (choose.randint(1, 500), choose.randint(1, 500))])
        scale, ratio = choose.choice(bounds)
        found = erased(Words(seed), *size, scale, ratio)
        parameters = ":".join(map(str, (seed, *size, *scale, *ratio)))
        print(f"erase:{parameters}", ":".join(map(str, found or ())))


def augmentation_lines(pixels):
    signed = {
        **dict.fromkeys(["ShearX", "ShearY"], [0.09, 0.99]),
        **dict.fromkeys(["TranslateX", "TranslateY"], [5.2]),
        "Rotate": [9.0, 135.0],
        **dict.fromkeys(["Brightness", "Color", "Contrast", "Sharpness"], [0.27]),
    }
    unsigned = {"Posterize": [2, 6], "Solarize": [0, 178.5], "AutoContrast": [0], "Equalize": [0], "Invert": [0]}
    lines = [(name, sign * magnitude) for name, all_of in signed.items() for magnitude in all_of for sign in (1, -1)]
    lines += [(name, magnitude) for name, all_of in unsigned.items() for magnitude in all_of]
    for name, magnitude in [*lines, ("Identity", 0)]:
        made = autoaugment._apply_op(pixels, name, magnitude, InterpolationMode.NEAREST, None)
        line(f"apply:{name}:{magnitude}", made)
    spaces = [
        ("usual", 31, autoaugment.RandAugment()._augmentation_space(31, (224, 500))),
        ("usual", 10, autoaugment.AutoAugment()._augmentation_space(10, (224, 500))),
        ("wide", 31, autoaugment.TrivialAugmentWide()._augmentation_space(31)),
    ]
    for kind, bins, space in spaces:
        for name, (magnitudes, _) in space.items():
            if magnitudes.ndim:
                print(f"magnitudes:{kind}:{name}:{bins}", ",".join(f"{float(value):.9g}" for value in magnitudes))


def line(name, pixels):
    print(name, bytes(pixels.permute(1, 2, 0).flatten().tolist()).hex())


def main():
    pixels = image()
    line("image", pixels)
    line("invert", functional.invert(pixels))
    line("autocontrast", functional.autocontrast(pixels))
    for kernel, sigma in [(1, 1.0), (3, 0.1), (5, 0.7), (9, 1.3), (23, 2.0), (37, 5.0)]:
        line(f"blur:{kernel}:{sigma}", functional.gaussian_blur(pixels, [kernel, kernel], [sigma, sigma]))
    for x, y, sigma in [(3, 9, 1.3), (15, 1, 2.0)]:
        line(f"blur:{x}x{y}:{sigma}", functional.gaussian_blur(pixels, [x, y], [sigma, sigma]))
    for factor in [0.0, 0.3, 0.95, 1.4, 3.0]:
        line(f"brightness:{factor}", functional.adjust_brightness(pixels, factor))
        line(f"contrast:{factor}", functional.adjust_contrast(pixels, factor))
        line(f"saturation:{factor}", functional.adjust_saturation(pixels, factor))
    for turn in [-0.5, -0.13, 0.02, 0.3, 0.5]:
        line(f"hue:{turn}", functional.adjust_hue(pixels, turn))
    line("gray", functional.rgb_to_grayscale(pixels, 3))
    for threshold in [0, 77, 128.5, 255]:
        line(f"solarize:{threshold}", functional.solarize(pixels, threshold))
    for bits in [0, 1, 4, 7, 8]:
        line(f"posterize:{bits}", functional.posterize(pixels, bits))
    line("equalize", functional.equalize(pixels))
    for factor in [0.0, 0.5, 1.0, 1.9, 7.0]:
        line(f"sharpness:{factor}", functional.adjust_sharpness(pixels, factor))
    erasing_lines()
    augmentation_lines(pixels)


if __name__ == "__main__":
    main()
