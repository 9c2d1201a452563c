"""Trains ResNet-18 on CIFAR-10's files with PyTorch, on the CPU, fed by DDLP or by PyTorch's DataLoader.

    python resnet_cifar.py FOLDER [--epochs 2] [--loader ddlp|torch] [--width 64] [--made 2000]

FOLDER holds CIFAR-10's binary files (`data_batch_1.bin` ...). With `--made N`, the program writes N coloured images in
the same format there first, so that it can be tried without a download. ResNet-18 has 64 channels in its first layers;
a smaller `--width` trains faster.
"""

import argparse
import time
from collections.abc import Iterable
from pathlib import Path

import numpy
import torch
from torch import nn

import ddlp

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
BATCH = 128


def make_files(folder: Path, images: int) -> None:
    """Writes images whose colour depends on their class."""
    draw = numpy.random.default_rng(0)
    labels = draw.integers(0, 10, images, dtype=numpy.uint8)
    colours = draw.integers(0, 200, (10, 3), dtype=numpy.uint8)
    pixels = colours[labels][:, :, None] + draw.integers(0, 56, (images, 3, 1024), dtype=numpy.uint8)
    folder.mkdir(exist_ok=True)
    records = numpy.concatenate([labels[:, None], pixels.reshape(images, 3072)], axis=1)
    records.astype(numpy.uint8).tofile(folder / "data_batch_1.bin")


def of_ddlp(folder: Path, epochs: int) -> Iterable:
    """Returns DDLP's loader."""
    return ddlp.Loader(
        folder, pipeline=ddlp.cifar_train(), batch_size=BATCH, normalize=(MEAN, STD), last="drop", epochs=epochs
    )


def of_torch(folder: Path, epochs: int) -> Iterable:
    """Returns PyTorch's DataLoader with torchvision's transforms."""
    from PIL import Image
    from torchvision.transforms import Compose, Normalize, RandomCrop, RandomHorizontalFlip, ToTensor

    transform = Compose([RandomCrop(32, padding=4), RandomHorizontalFlip(), ToTensor(), Normalize(MEAN, STD)])

    class Records(torch.utils.data.Dataset):
        """The records of CIFAR-10's binary files."""

        def __init__(self) -> None:
            files = [numpy.fromfile(path, numpy.uint8).reshape(-1, 3073) for path in sorted(folder.glob("*.bin"))]
            self.records = numpy.concatenate(files)

        def __len__(self) -> int:
            return len(self.records)

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            image = self.records[index, 1:].reshape(3, 32, 32).transpose(1, 2, 0)
            return transform(Image.fromarray(numpy.ascontiguousarray(image))), int(self.records[index, 0])

    return torch.utils.data.DataLoader(Records(), batch_size=BATCH, shuffle=True, num_workers=2, drop_last=True)


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        is_same = before == after and stride == 1
        narrow = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        self.shortcut = nn.Identity() if is_same else narrow

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(images) + self.shortcut(images))


def resnet18(width: int) -> nn.Module:
    """Returns ResNet-18 for images of 32 x 32 (He et al., 2015): a first convolution without a stride."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    before = width
    for stage in range(4):
        after = width << stage
        layers += [Block(before, after, 1 if stage == 0 else 2), Block(after, after, 1)]
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--loader", choices=["ddlp", "torch"], default="ddlp")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--made", type=int)
    args = parser.parse_args()
    if args.made:
        make_files(args.folder, args.made)
    loader = {"ddlp": of_ddlp, "torch": of_torch}[args.loader](args.folder, args.epochs)

    torch.manual_seed(0)
    model = resnet18(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(args.epochs):
        losses, begun = [], time.perf_counter()
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        rate = len(losses) * BATCH / (time.perf_counter() - begun)
        print(f"epoch {epoch}: loss {losses[0]:.3f} to {losses[-1]:.3f}, {rate:.0f} images/s")


if __name__ == "__main__":
    main()
