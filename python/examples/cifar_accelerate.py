"""Trains a small network on CIFAR-10's files with Hugging Face's accelerate, in one process or several.

    accelerate launch --multi_gpu --num_processes 2 cifar_accelerate.py FOLDER --epochs 2          # on GPUs
    ACCELERATE_USE_CPU=true torchrun --nproc-per-node 2 cifar_accelerate.py FOLDER --epochs 2       # on CPUs

`accelerate launch --cpu` starts one process, whatever `--num_processes` says. FOLDER holds CIFAR-10's binary files
(`data_batch_1.bin` ...). The loader is not prepared by accelerate: each process gets its share of every batch by
itself.
"""

import argparse

import torch
from accelerate import Accelerator
from torch import nn

import ddlp

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    accelerator = Accelerator()
    # Rank and number of processes are those of torch.distributed, which accelerate has set up.
    loader = ddlp.Loader(
        args.folder, pipeline=ddlp.cifar_train(), batch_size=64, normalize=(MEAN, STD), last="drop", epochs=args.epochs
    )
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 64, 3, 2, 1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.01))
    for epoch in range(args.epochs):
        losses = []
        for batch in loader:
            images, labels = (part.to(accelerator.device) for part in batch)
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            losses.append(accelerator.reduce(loss.detach(), "mean").item())
        accelerator.print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}, {accelerator.num_processes} processes")
    accelerator.end_training()


if __name__ == "__main__":
    main()
