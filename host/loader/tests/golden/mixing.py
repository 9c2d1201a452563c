"""Makes mixing.txt: what torchvision's MixUp and CutMix make of one batch.

    python3 mixing.py > mixing.txt

Written with torchvision 0.29.2 and torch 2.15.0. The weight and the centre of the rectangle, which torchvision draws,
are given.

The line "batch" has the pixels of four images as rows of RGB, in hexadecimal digits. A line "mixup" has the weight, and
the images as floats in planes: the bits of each float, little-endian. A line "cutmix" has weight and centre (x, y), the
bits of the weight that the labels get as a float of 64 bits, and the pixels as rows of RGB. A line "labels" has a
weight and the mixed labels, the bits of their floats.
"""

import types

import torch
from torchvision.transforms import v2

COUNT, HEIGHT, WIDTH = 4, 5, 7
CLASSES = 3
LABELS = [2, 0, 0, 1]
MASK = (1 << 64) - 1


def splitmix(state):
    """Yields the bytes of splitmix64, lowest first."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield from (z ^ (z >> 31)).to_bytes(8, "little")


def bits(floats, kind):
    return floats.contiguous().numpy().astype(kind).tobytes().hex()


def pixels(images):
    return bytes(images.permute(0, 2, 3, 1).flatten().tolist()).hex()


def mixed(transform, images, params):
    """Returns the images and the labels as the transform makes them with these parameters."""
    labels = torch.tensor(LABELS)
    params = {"labels": labels, "batch_size": COUNT, **params}
    return transform.transform(images, params), transform.transform(labels, params)


def cut(cutmix, weight, center):
    """Returns the parameters that CutMix derives from a weight and a centre."""
    cutmix._dist = types.SimpleNamespace(sample=lambda _: torch.tensor(weight, dtype=torch.float64))
    places, randint = iter(center), torch.randint
    torch.randint = lambda *_, **__: torch.tensor([next(places)])
    params = cutmix.make_params([torch.zeros(COUNT, 3, HEIGHT, WIDTH)])
    torch.randint = randint
    return params


def main():
    noise = splitmix(11)
    values = [next(noise) for _ in range(COUNT * HEIGHT * WIDTH * 3)]
    images = torch.tensor(values, dtype=torch.uint8).reshape(COUNT, HEIGHT, WIDTH, 3).permute(0, 3, 1, 2)
    print("batch", pixels(images))
    mixup, cutmix = v2.MixUp(num_classes=CLASSES), v2.CutMix(num_classes=CLASSES)
    for steps in [0, 1, 6554, 16384, 29000, 32768]:
        weight = steps / 32768
        found, labels = mixed(mixup, images.float() / 255, {"lam": weight})
        print(f"mixup:{weight}", bits(found, "<f4"))
        print(f"labels:{weight}", bits(labels, "<f4"))
    centers = {0: (3, 2), 9000: (0, 0), 16384: (6, 4), 25000: (4, 1), 32000: (2, 2), 32768: (1, 1)}
    for steps, center in centers.items():
        weight = steps / 32768
        params = cut(cutmix, weight, center)
        found, labels = mixed(cutmix, images, params)
        kept = params["lam_adjusted"]
        print(f"cutmix:{weight}:{center[0]}:{center[1]}:{kept!r}", pixels(found))
        print(f"labels:{kept!r}", bits(labels, "<f4"))


if __name__ == "__main__":
    main()
