"""A training program of PyTorch alone, whose data part has the loaders, names and conditions of pytorch/examples'
imagenet/main.py. The tests run it as it is, and with the changes that docs/coming-from.md shows."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Subset
from torchvision import datasets, transforms

parser = argparse.ArgumentParser(description="Trains a small model, and says what it was trained on.")
parser.add_argument("data", help="a folder with the folders train and val")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--start-epoch", type=int, default=0)
parser.add_argument("--workers", type=int, default=1)
parser.add_argument("--batch-size", type=int, default=8, help="samples of a step, of one process")
parser.add_argument("--world-size", type=int, default=-1)
parser.add_argument("--rank", type=int, default=-1)
parser.add_argument("--dist-url", default="none")


class Sums:
    """What a program can say of an epoch: the number of images, their labels, and their mean value."""

    def __init__(self):
        self.values = torch.zeros(4, dtype=torch.float64)

    def update(self, images, target, loss):
        size = len(target)
        own = [size, float(target.sum()), size * float(images.double().mean()), size * float(loss)]
        self.values += torch.tensor(own, dtype=torch.float64)

    def all_reduce(self):
        dist.all_reduce(self.values)

    def __str__(self):
        size, labels, mean, loss = self.values.tolist()
        return f"images {size:.0f} labels {labels:.0f} mean {mean / size:.4f} loss {loss / size:.4f}"


def main():
    args = parser.parse_args()
    if args.dist_url == "env://" and args.world_size == -1:
        args.world_size = int(os.environ["WORLD_SIZE"])
    args.distributed = args.world_size > 1
    if args.distributed:
        if args.dist_url == "env://" and args.rank == -1:
            args.rank = int(os.environ["RANK"])
        dist.init_process_group(backend="gloo", init_method=args.dist_url, world_size=args.world_size, rank=args.rank)

    torch.manual_seed(0)
    layers = [nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(3 * 64, 10)]
    model = nn.Sequential(*layers)
    if args.distributed:
        model = nn.parallel.DistributedDataParallel(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.02)

    norm = [transforms.ToTensor(), transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])]
    train_transform = transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), *norm])
    val_transform = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), *norm])
    train_dataset = datasets.ImageFolder(os.path.join(args.data, "train"), train_transform)
    val_dataset = datasets.ImageFolder(os.path.join(args.data, "val"), val_transform)
    train_sampler = val_sampler = None
    if args.distributed:
        train_sampler = torch.utils.data.distributed.DistributedSampler(train_dataset)
        val_sampler = torch.utils.data.distributed.DistributedSampler(val_dataset, shuffle=False, drop_last=True)

    # These lines are laid out as in that program.
    # fmt: off
    train_loader = torch.utils.data.DataLoader(
        train_dataset, batch_size=args.batch_size, shuffle=(train_sampler is None),
        num_workers=args.workers, pin_memory=True, sampler=train_sampler)

    val_loader = torch.utils.data.DataLoader(
        val_dataset, batch_size=args.batch_size, shuffle=False,
        num_workers=args.workers, pin_memory=True, sampler=val_sampler)
    # fmt: on

    for epoch in range(args.start_epoch, args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)

        trained = train(train_loader, model, criterion, optimizer, args)
        validated = validate(val_loader, model, criterion, args)
        if args.rank <= 0:
            print(f"epoch {epoch} train {trained} val {validated}", flush=True)


def train(train_loader, model, criterion, optimizer, args):
    model.train()
    sums = Sums()
    steps = 0
    for images, target in train_loader:
        images = images.to("cpu", non_blocking=True)
        target = target.to("cpu", non_blocking=True)
        loss = criterion(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sums.update(images, target, loss)
        steps += 1
    assert steps == len(train_loader)
    if args.distributed:
        sums.all_reduce()
    return sums


def validate(val_loader, model, criterion, args):
    sums = Sums()

    @torch.no_grad()
    def run_validate(loader):
        for images, target in loader:
            sums.update(images, target, criterion(model(images), target))

    model.eval()
    run_validate(val_loader)
    if args.distributed:
        sums.all_reduce()

    # The samplers leave out what does not fill a share of each process: each process validates the rest itself.
    shared = len(val_loader.sampler) * args.world_size
    if args.distributed and shared < len(val_loader.dataset):
        rest = Subset(val_loader.dataset, range(shared, len(val_loader.dataset)))
        run_validate(torch.utils.data.DataLoader(rest, batch_size=args.batch_size, num_workers=args.workers))
    return sums


if __name__ == "__main__":
    main()
