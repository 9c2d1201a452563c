"""Trains a ResNet on images of any size with PyTorch's DistributedDataParallel, on the CPUs or GPUs of any machines.

    ddlp sample-data photos --images 600                          # or your own folder with one folder per class
    torchrun --nproc-per-node 2 imagenet_ddp.py photos --val photos --checkpoint at.pt

`torchrun` starts the processes, a single one too (`--nproc-per-node 1`).
The program writes a checkpoint every `--checkpoint-every` steps. If the checkpoint exists when the program starts, the
program resumes from it, in the middle of an epoch too, and with any number of processes. With the same number of
processes, the losses equal those of an uninterrupted run to the bit.
"""

import argparse
import os
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torchvision.models import resnet18, resnet50

import ddlp

MODELS = {"resnet18": resnet18, "resnet50": resnet50}


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("train", help="an image folder, tar shards or a pack")
    parser.add_argument("--val", help="such a dataset for validation after each epoch")
    parser.add_argument("--checkpoint", type=Path, help="file to write; training resumes from it if it exists")
    parser.add_argument("--checkpoint-every", type=int, default=100, metavar="STEPS")
    parser.add_argument("--model", choices=MODELS, default="resnet50")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--size", type=int, default=224, help="side of the images, in pixels")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=256, help="samples of a step, of all processes together")
    parser.add_argument("--rate", type=float, default=0.1, help="learning rate for 256 samples a step")
    parser.add_argument("--drives", help="'local', or the address of a drive")
    return parser.parse_args()


def group_norm(channels: int) -> nn.Module:
    """Returns the normalisation of a layer. BatchNorm would depend on the number of processes, since each process has
    its own statistics."""
    return nn.GroupNorm(channels // 16, channels)


def save(path: Path, content: dict) -> None:
    """Writes a file that appears as a whole or not at all."""
    part = path.with_suffix(".part")
    torch.save(content, part)
    os.replace(part, path)


def mean_of_processes(value: torch.Tensor) -> float:
    """Returns the mean of a value over all processes."""
    total = value.detach().clone()
    distributed.all_reduce(total)
    return total.item() / distributed.get_world_size()


@torch.no_grad()
def accuracy(model: nn.Module, loader: ddlp.Loader, device: torch.device) -> float:
    """Returns the share of images of one epoch that the model classifies correctly."""
    model.eval()
    counts = torch.zeros(2, dtype=torch.int64, device=device)
    for images, labels in loader:
        labels = labels.to(device)
        right = model(images.to(device)).argmax(1) == labels
        counts += torch.stack([right.sum(), torch.tensor(len(labels), device=device)])
    distributed.all_reduce(counts)
    model.train()
    return counts[0].item() / counts[1].item()


def main() -> None:
    args = options()
    if "WORLD_SIZE" not in os.environ:
        raise SystemExit("start this program by torchrun, which sets up the processes: torchrun --nproc-per-node 1 ...")
    cuda = torch.cuda.is_available()
    distributed.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if args.batch_size % distributed.get_world_size():
        raise SystemExit("--batch-size must be a multiple of the number of processes, since DDP averages over them")

    # Each process gets its share of every batch. Rank and number of processes are those of torch.distributed.
    loader = ddlp.Loader(
        args.train,
        pipeline=ddlp.imagenet_train(args.size),
        batch_size=args.batch_size,
        normalize=ddlp.IMAGENET,
        drives=args.drives,
        last="drop",
        epochs=args.epochs,
    )
    val = args.val and ddlp.Loader(
        args.val,
        pipeline=ddlp.imagenet_val(args.size, resize=args.size * 8 // 7),
        batch_size=args.batch_size,
        normalize=ddlp.IMAGENET,
    )

    torch.manual_seed(0)
    model = MODELS[args.model](num_classes=args.classes, norm_layer=group_norm).to(device)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), args.rate * args.batch_size / 256, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))
    if args.checkpoint and args.checkpoint.exists():
        saved = torch.load(args.checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        schedule.load_state_dict(saved["schedule"])
        loader.load_state_dict(saved["loader"])

    is_first = distributed.get_rank() == 0
    for epoch in range(loader.epoch, args.epochs):
        for batch in loader:
            images, labels = (part.to(device) for part in batch)
            loss = nn.functional.cross_entropy(parallel(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step = epoch * len(loader) + batch.index + 1
            mean = mean_of_processes(loss)
            if is_first:
                print(f"epoch {epoch} step {step} loss {mean!r}", flush=True)
            if is_first and args.checkpoint and step % args.checkpoint_every == 0:
                states = {"model": model, "optimizer": optimizer, "schedule": schedule, "loader": loader}
                save(args.checkpoint, {name: part.state_dict() for name, part in states.items()})
        if val:
            found = accuracy(model, val, device)
            if is_first:
                print(f"epoch {epoch} accuracy {found:.3f}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
