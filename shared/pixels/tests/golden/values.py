"""Makes values.txt: what torchvision's operations on values make of one image.

    python3 values.py > values.txt

Written with torchvision 0.14.1 and torch 1.13.0. A line has an operation's name, its parameters, and the pixels of a
square as rows of RGB in hexadecimal digits. The line "image" has the image itself.
"""

import torch
from torchvision.transforms import functional

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


def line(name, pixels):
    print(name, bytes(pixels.permute(1, 2, 0).flatten().tolist()).hex())


def main():
    pixels = image()
    line("image", pixels)
    line("invert", functional.invert(pixels))
    line("autocontrast", functional.autocontrast(pixels))
    for kernel, sigma in [(1, 1.0), (3, 0.1), (5, 0.7), (9, 1.3), (23, 2.0), (37, 5.0)]:
        line(f"blur:{kernel}:{sigma}", functional.gaussian_blur(pixels, [kernel, kernel], [sigma, sigma]))
    for factor in [0.0, 0.3, 0.95, 1.4, 3.0]:
        line(f"brightness:{factor}", functional.adjust_brightness(pixels, factor))
        line(f"contrast:{factor}", functional.adjust_contrast(pixels, factor))
        line(f"saturation:{factor}", functional.adjust_saturation(pixels, factor))
    for turn in [-0.5, -0.13, 0.02, 0.3, 0.5]:
        line(f"hue:{turn}", functional.adjust_hue(pixels, turn))
    line("gray", functional.rgb_to_grayscale(pixels, 3))
    for threshold in [0, 77, 128.5, 255]:
        line(f"solarize:{threshold}", functional.solarize(pixels, threshold))


if __name__ == "__main__":
    main()
