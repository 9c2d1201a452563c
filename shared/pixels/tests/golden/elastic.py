"""Makes elastic.txt: what torchvision's ElasticTransform makes of the image of values.txt.

    python3 elastic.py > elastic.txt

Made with torchvision 0.29.2 and torch 2.15.0. A line has a seed, parameters, and the pixels of the square as rows of
RGB in hexadecimal digits. torchvision's noise is replaced by ours: for pixel n, the halves of splitmix64's word after n
steps from the seed.
"""

import types

import torch
from torchvision.transforms.v2 import ElasticTransform, _geometry
from values import SIDE, Words, image, line


def noise(seed):
    words = Words(seed)
    both = [words.word() for _ in range(SIDE * SIDE)]
    for shift in (0, 32):
        # The transform doubles the numbers and subtracts 1.
        units = [((word >> shift & 0xFFFFFFFF) >> 8) / (1 << 24) for word in both]
        yield torch.tensor(units).reshape(1, 1, SIDE, SIDE)


def main():
    for seed, (alpha, sigma, interpolation, fill) in enumerate(
        [
            ((50.0, 50.0), (2.0, 2.0), "bilinear", 0),
            ((20.0, 90.0), (1.0, 0.5), "bilinear", 200),
            ((5.0, 5.0), (0.0, 0.0), "bilinear", 7),
            ((0.0, 400.0), (2.3, 2.3), "bilinear", 0),
            ((30.0, 30.0), (1.5, 1.5), "nearest", 99),
            ((9.0, 3.0), (0.0, 0.0), "nearest", 0),
        ]
    ):
        made = noise(seed)
        _geometry.torch = types.SimpleNamespace(**{**vars(torch), "rand": lambda *_: next(made)})
        changed = ElasticTransform(list(alpha), list(sigma), interpolation, fill)(image())
        _geometry.torch = torch
        line(":".join(map(str, (seed, *alpha, *sigma, interpolation, fill))), changed)


if __name__ == "__main__":
    main()
