"""Makes geometry.txt: what torchvision makes of one image by cutting, padding, resizing and mirroring.

    python3 geometry.py > geometry.txt

Written with torchvision 0.14.1, torch 1.13.0 and Pillow 9.4.0. A line has an operation in TOML, the width and height of
the result, and its pixels as rows of RGB in hexadecimal digits, separated by tabs. The line "image" has the image
itself. Images are Pillow's.
"""

import numpy
from PIL import Image
from torchvision.transforms import InterpolationMode, functional
from warps import image

NEAREST, BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR


def line(name, result):
    print(name, *result.size, numpy.asarray(result).tobytes().hex(), sep="\t")


def main():
    picture = Image.fromarray(image().permute(1, 2, 0).numpy())
    line("image", picture)
    for padding in [[1, 2, 3, 4], [5, 0], [7]]:
        for mode in ["constant", "edge", "reflect", "symmetric"]:
            fill = (9, 80, 200) if mode == "constant" else 0
            text = f"{{ padding = {padding}, fill = {list(fill) if fill else 0}, padding_mode = \"{mode}\" }}"
            line(f"{{ pad = {text} }}", functional.pad(picture, padding, fill, mode))
    for size in [[9, 30], [30, 9], [12, 5], [25, 40]]:
        line(f"{{ center_crop = {{ size = {size} }} }}", functional.center_crop(picture, size))
        for mode in [NEAREST, BILINEAR]:
            text = f"{{ size = {size}, interpolation = \"{mode.value}\" }}"
            line(f"{{ resize = {text} }}", functional.resize(picture, size, mode, antialias=True))
    for size, most in [(10, 14), (20, 21)]:
        resized = functional.resize(picture, size, BILINEAR, most, antialias=True)
        line(f"{{ resize = {{ size = {size}, max_size = {most} }} }}", resized)
    line("{ random_horizontal_flip = { p = 1.0 } }", functional.hflip(picture))
    line("{ random_vertical_flip = { p = 1.0 } }", functional.vflip(picture))


if __name__ == "__main__":
    main()
