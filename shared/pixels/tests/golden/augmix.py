"""Makes augmix.txt: what torchvision's AugMix makes of the image of values.txt.

    python3 augmix.py > augmix.txt

Made with torchvision 0.29.2 and torch 2.15.0. A line has parameters, the seed of splitmix64, whose words replace
torchvision's draws under our rules (53 upper bits of a word; upper half of word times n; the weights by the methods of
src/draw.rs), and the pixels of the square as rows of RGB in hexadecimal digits.
"""

import math
import types

import torch
from torchvision.transforms.v2 import AugMix, _auto_augment
from values import Words, image, line


class Drawn(Words):
    def normal(self):
        u, v = 1 - self.uniform(), self.uniform()
        return math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v)

    def beta(self, alpha):
        u, v = 1 - self.uniform(), self.uniform()
        cosine = math.cos(2 * math.pi * v)
        square = (u ** (-1 / alpha) - 1) * cosine * cosine
        half = 0.5 / math.sqrt(1 + 1 / square)
        return 0.5 + half if cosine > 0 else 0.5 - half

    def log_gamma(self, alpha):
        if alpha < 1:
            u = 1 - self.uniform()
            return self.log_gamma(alpha + 1) + math.log(u) / alpha
        d = alpha - 1 / 3
        c = 1 / math.sqrt(9 * d)
        while True:
            x = self.normal()
            if 1 + c * x <= 0:
                continue
            v, u = (1 + c * x) ** 3, 1 - self.uniform()
            if math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v):
                return math.log(d) + math.log(v)

    def dirichlet(self, alpha, count):
        logs = [self.log_gamma(alpha) for _ in range(count)]
        weights = [math.exp(one - max(logs)) for one in logs]
        return [weight / sum(weights) for weight in weights]


class Ours(AugMix):
    def __init__(self, words, **parameters):
        super().__init__(**parameters)
        self.words, self.calls = words, 0

    def _sample_dirichlet(self, params):
        self.calls += 1
        alpha = self.alpha
        if self.calls == 1:
            own = self.words.beta(alpha)
            return torch.tensor([[own, 1 - own]])
        return torch.tensor([self.words.dirichlet(alpha, params.shape[-1])])


def mixed(pixels, seed, **parameters):
    words = Drawn(seed)

    def randint(*bounds, low=0, high=None, size=None):
        high = bounds[0] if high is None else high
        return torch.tensor(low + words.below(high - low))

    # A number of at most 0.5 makes a magnitude negative.
    rand = lambda size: torch.tensor(0.0 if words.below(2) == 1 else 1.0)
    _auto_augment.torch = types.SimpleNamespace(**{**vars(torch), "randint": randint, "rand": rand})
    made = Ours(words, **parameters)(pixels)
    _auto_augment.torch = torch
    return made


def main():
    pixels = image()
    for seed in range(24):
        parameters = {
            "severity": (3, 10, 1)[seed % 3],
            "mixture_width": (3, 1, 5)[seed % 3],
            "chain_depth": (-1, 2, 0, 5)[seed % 4],
            "alpha": (1.0, 0.4, 3.0)[seed // 8],
            "all_ops": seed % 5 != 0,
            "interpolation": ("bilinear", "nearest")[seed % 2],
            "fill": (None, 0, 200)[seed % 3],
        }
        values = [str(parameters[name]) for name in parameters]
        line(":".join([str(seed), *values]), mixed(pixels, seed, **parameters))


if __name__ == "__main__":
    main()
