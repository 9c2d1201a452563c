"""Trains a small ResNet on CIFAR-10's files with PyTorch, on the CPU.

    python resnet_cifar.py FOLDER [--epochs 2] [--made 2000]

FOLDER holds CIFAR-10's binary files (`data_batch_1.bin` ...). With `--made N`, the program writes N coloured images in
the same format there first, so that it can be tried without a download.
"""

import argparse
from pathlib import Path

import numpy
import torch
from torch import nn

import ddlp

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def make_files(folder: Path, images: int) -> None:
    """Writes images whose colour depends on their class."""
    draw = numpy.random.default_rng(0)
    labels = draw.integers(0, 10, images, dtype=numpy.uint8)
    colours = draw.integers(0, 200, (10, 3), dtype=numpy.uint8)
    pixels = colours[labels][:, :, None] + draw.integers(0, 56, (images, 3, 1024), dtype=numpy.uint8)
    folder.mkdir(exist_ok=True)
    records = numpy.concatenate([labels[:, None], pixels.reshape(images, 3072)], axis=1)
    records.astype(numpy.uint8).tofile(folder / "data_batch_1.bin")


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
        self.shortcut = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(images) + self.shortcut(images))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--made", type=int)
    args = parser.parse_args()
    if args.made:
        make_files(args.folder, args.made)

    # With torchvision's DataLoader:
    #     train = CIFAR10(root, train=True, transform=Compose([
    #         RandomCrop(32, padding=4), RandomHorizontalFlip(), ToTensor(), Normalize(MEAN, STD)]))
    #     loader = DataLoader(train, batch_size=128, shuffle=True, num_workers=2, drop_last=True)
    loader = ddlp.Loader(
        args.folder, pipeline=ddlp.cifar_train(), batch_size=128, normalize=(MEAN, STD), last="drop", epochs=args.epochs
    )

    torch.manual_seed(0)
    model = nn.Sequential(
        Block(3, 16, 1), Block(16, 32, 2), Block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(args.epochs):
        losses = []
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {losses[0]:.3f} to {losses[-1]:.3f}, {loader.stats()['images']} images so far")


if __name__ == "__main__":
    main()
