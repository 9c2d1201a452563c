"""Trains a small network with a modern recipe: RandAugment, random erasing, MixUp and CutMix. A drive helps the CPU.

    python randaugment_mixup.py FOLDER [--epochs 8] [--made 2000]

FOLDER holds CIFAR-10's binary files (`data_batch_1.bin` ...). With `--made N`, the program writes N images in the same
format there first, so that it can be tried without a download. PyTorch runs on the CPU here. The drive is one that the
loader starts on this machine; give the address of a real one by `--drive tcp://HOST:PORT/NQN`.
"""

import argparse
from pathlib import Path

import numpy
import torch
from torch import nn

import ddlp

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
CLASSES = 10


def make_files(folder: Path, images: int) -> None:
    """Writes images of stripes, whose direction and width depend on their class."""
    draw = numpy.random.default_rng(0)
    labels = draw.integers(0, CLASSES, images, dtype=numpy.uint8)
    y, x = numpy.mgrid[0:32, 0:32]
    lines = numpy.stack([(y if kind % 2 else x) // (1 + kind // 2) % 2 for kind in range(CLASSES)])
    colours = draw.integers(60, 120, (images, 3, 1, 1))
    pixels = colours + 100 * lines[labels][:, None] + draw.integers(0, 30, (images, 3, 32, 32))
    folder.mkdir(exist_ok=True)
    records = numpy.concatenate([labels[:, None], pixels.reshape(images, 3072)], axis=1)
    records.astype(numpy.uint8).tofile(folder / "data_batch_1.bin")


def accuracy(model: nn.Module, folder: Path) -> float:
    """Returns the share of the images, unchanged, that the model classifies correctly."""
    model.eval()
    right = 0
    unchanged = ddlp.Pipeline([ddlp.CenterCrop(32)])
    loader = ddlp.Loader(folder, pipeline=unchanged, normalize=(MEAN, STD), shuffle=False, epochs=1)
    with loader, torch.no_grad():
        for images, labels in loader:
            right += int((model(images).argmax(1) == labels).sum())
        samples = loader.samples
    model.train()
    return right / samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--made", type=int)
    parser.add_argument("--drive", default="local")
    args = parser.parse_args()
    if args.made:
        make_files(args.folder, args.made)

    # With torchvision's DataLoader:
    #     train = CIFAR10(root, train=True, transform=Compose([
    #         RandomCrop(32, padding=4), RandomHorizontalFlip(), RandAugment(), ToTensor(), Normalize(MEAN, STD),
    #         RandomErasing(p=0.25)]))
    #     mix = v2.RandomChoice([v2.MixUp(alpha=0.2, num_classes=10), v2.CutMix(alpha=1.0, num_classes=10)])
    #     loader = DataLoader(train, batch_size=64, shuffle=True, num_workers=2, drop_last=True,
    #         collate_fn=lambda samples: mix(*default_collate(samples)))
    pipeline = ddlp.Pipeline(
        [
            ddlp.RandomCrop(32, padding=4),
            ddlp.RandomHorizontalFlip(),
            ddlp.RandAugment(),
            ddlp.RandomErasing(p=0.25, value=(125, 123, 114)),
        ]
    )
    loader = ddlp.Loader(
        args.folder,
        pipeline=pipeline,
        drives=args.drive,
        batch_size=64,
        normalize=(MEAN, STD),
        mixup=0.2,
        cutmix=1.0,
        classes=CLASSES,
        last="drop",
        epochs=args.epochs,
    )

    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 24, 3, 1, 1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(24, 48, 3, 1, 1), nn.BatchNorm2d(48), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(48, 64, 3, 1, 1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(64, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for epoch in range(args.epochs):
        losses = []
        for images, labels in loader:
            # Labels have a number for each class: [64, 10], float32.
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: mean loss {sum(losses) / len(losses):.3f}")
    images = ", ".join(f"{prong['images']} by {prong['name']}" for prong in loader.stats()["prongs"])
    print(f"images: {images}; accuracy {accuracy(model, args.folder):.3f}")


if __name__ == "__main__":
    main()
