"""Trains by torchvision's recipe for ResNet-50: TrivialAugment, erasing, MixUp and CutMix, repeated augmentation, a
cosine schedule after a warm-up, label smoothing, and an average of the weights.

    ddlp sample-data photos --images 600                          # or your own folder with one folder per class
    torchrun --nproc-per-node 2 torchvision_recipe.py photos --val photos

The images, their augmentation and the mixing are the loader's; the rest is PyTorch's.
"""

import argparse
import os

import torch
from torch import distributed, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn
from torchvision import models
from torchvision.transforms import InterpolationMode, v2

import ddlp

MEAN, STD = ddlp.IMAGENET


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("train", help="an image folder, tar shards or a pack")
    parser.add_argument("--val", required=True, help="such a dataset for validation")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--epochs", type=int, default=600)
    parser.add_argument("--warm-up", type=int, default=5, metavar="EPOCHS")
    parser.add_argument("--batch-size", type=int, default=1024, help="samples of a step, of all processes together")
    parser.add_argument("--train-size", type=int, default=176)
    parser.add_argument("--val-size", type=int, default=224)
    return parser.parse_args()


def loaders(args: argparse.Namespace) -> tuple[ddlp.Loader, ddlp.Loader]:
    """Returns the loaders for training and validation."""
    train = v2.Compose(
        [
            v2.RandomResizedCrop(args.train_size, interpolation=InterpolationMode.BILINEAR, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.TrivialAugmentWide(),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
            v2.RandomErasing(0.1),
            v2.ToPureTensor(),
        ]
    )
    val = v2.Compose(
        [
            v2.Resize(args.val_size * 8 // 7, antialias=True),
            v2.CenterCrop(args.val_size),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
            v2.ToPureTensor(),
        ]
    )
    return (
        ddlp.Loader(
            args.train,
            pipeline=ddlp.Compose(train),
            batch_size=args.batch_size,
            repeats=4,
            mixup=0.2,
            cutmix=1.0,
            last="drop",
        ),
        ddlp.Loader(args.val, pipeline=ddlp.Compose(val), batch_size=args.batch_size, shuffle=False),
    )


@torch.no_grad()
def accuracy(model: nn.Module, loader: ddlp.Loader, device: torch.device) -> float:
    """Returns the share of images that the model classifies correctly."""
    model.eval()
    counts = torch.zeros(2, dtype=torch.int64, device=device)
    for images, labels in loader:
        right = model(images.to(device)).argmax(1) == labels.to(device)
        counts += torch.tensor([int(right.sum()), len(labels)], device=device)
    distributed.all_reduce(counts)
    return counts[0].item() / counts[1].item()


def main() -> None:
    args = options()
    if "WORLD_SIZE" not in os.environ:
        raise SystemExit("start this program by torchrun, which sets up the processes: torchrun --nproc-per-node 1 ...")
    cuda = torch.cuda.is_available()
    distributed.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    train, val = loaders(args)

    torch.manual_seed(0)
    model = models.get_model(args.model, num_classes=len(train.classes)).to(device)
    parallel = nn.parallel.DistributedDataParallel(model)
    average = AveragedModel(model, device, avg_fn=get_ema_avg_fn(0.99998), use_buffers=True)
    rate = 0.5 * args.batch_size / 1024
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9, weight_decay=2e-5)
    warm_up = LinearLR(optimizer, 0.01, total_iters=args.warm_up)
    cosine = CosineAnnealingLR(optimizer, max(1, args.epochs - args.warm_up))
    schedule = SequentialLR(optimizer, [warm_up, cosine], [args.warm_up])
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for epoch in range(args.epochs):
        model.train()
        for images, labels in train:
            loss = criterion(parallel(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
        schedule.step()
        found = accuracy(model, val, device), accuracy(average, val, device)
        if distributed.get_rank() == 0:
            print(f"epoch {epoch}: accuracy {found[0]:.3f}, of the averaged weights {found[1]:.3f}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
