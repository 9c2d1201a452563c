"""Trains a model of timm by timm's own transforms: bicubic crops, RandAugment, erasing, repeated augmentation, MixUp.

    ddlp sample-data photos --images 600                          # or your own folder with one folder per class
    python timm_recipe.py photos --val photos --model resnet18

Model, loss, optimizer and schedule are timm's, made as timm's own training script makes them. The loader takes timm's
transforms, and timm's PrefetchLoader takes the loader.
"""

import argparse

import timm
import torch
from timm.data import Mixup, create_transform, resolve_data_config
from timm.data.loader import PrefetchLoader
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import AverageMeter, accuracy

import ddlp


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("train", help="an image folder, tar shards or a pack")
    parser.add_argument("--val", required=True, help="such a dataset for validation")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--img-size", type=int, help="side of the images [default: the model's]")
    parser.add_argument("--aa", default="rand-m9-mstd0.5-inc1", metavar="NAME", help="timm's auto_augment")
    parser.add_argument("--aug-repeats", type=int, default=3)
    parser.add_argument("--lr", type=float, default=5e-4)
    return parser.parse_args()


def main() -> None:
    args = options()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    classes = len(ddlp.Loader(args.train, batch_size=1).classes)
    model = timm.create_model(args.model, num_classes=classes).to(device)
    config = resolve_data_config({"img_size": args.img_size} if args.img_size else {}, model=model)
    size, mean, std, interpolation = (config[name] for name in ("input_size", "mean", "std", "interpolation"))

    # With timm's prefetcher, pixels arrive as uint8, and are normalised and erased on the device.
    transform = create_transform(
        size, is_training=True, use_prefetcher=True, auto_augment=args.aa, interpolation="random", mean=mean, std=std
    )
    train = ddlp.Loader(
        args.train,
        pipeline=ddlp.Compose(transform),
        batch_size=args.batch_size,
        dtype="uint8",
        repeats=args.aug_repeats,
        last="drop",
    )
    val_transform = create_transform(size, use_prefetcher=True, interpolation=interpolation, mean=mean, std=std)
    val = ddlp.Loader(
        args.val, pipeline=ddlp.Compose(val_transform), batch_size=args.batch_size, dtype="uint8", shuffle=False
    )
    loader_train = PrefetchLoader(train, mean=mean, std=std, device=device, re_prob=0.25, re_mode="pixel")
    loader_eval = PrefetchLoader(val, mean=mean, std=std, device=device)

    mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=classes)
    criterion = SoftTargetCrossEntropy()
    optimizer = create_optimizer_v2(model, opt="adamw", lr=args.lr, weight_decay=0.05)
    updates = len(loader_train)
    schedule, epochs = create_scheduler_v2(
        optimizer, sched="cosine", num_epochs=args.epochs, warmup_epochs=0, cooldown_epochs=0, updates_per_epoch=updates
    )
    for epoch in range(epochs):
        if hasattr(loader_train.sampler, "set_epoch"):
            loader_train.sampler.set_epoch(epoch)
        model.train()
        losses, top1 = AverageMeter(), AverageMeter()
        for images, labels in loader_train:
            images, labels = mixup(images, labels)
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.update(loss.item(), len(images))
        schedule.step(epoch + 1)
        model.eval()
        with torch.no_grad():
            for images, labels in loader_eval:
                top1.update(accuracy(model(images), labels)[0].item(), len(images))
        assert top1.count == len(loader_eval.dataset)
        print(f"epoch {epoch}: loss {losses.avg:.3f}, accuracy {top1.avg:.1f} %", flush=True)


if __name__ == "__main__":
    main()
