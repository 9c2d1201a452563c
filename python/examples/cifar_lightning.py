"""Trains a small network on CIFAR-10's files with Lightning, which takes the loader as it is.

    python cifar_lightning.py FOLDER [--epochs 2]

FOLDER holds CIFAR-10's binary files (`data_batch_1.bin` ...).
"""

import argparse

import lightning
import torch
from torch import nn

import ddlp

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class Classifier(lightning.LightningModule):
    """Three convolutions, the mean over the pixels, and a matrix."""

    def __init__(self) -> None:
        super().__init__()
        widths = [3, 16, 32, 64]
        layers = [
            layer
            for before, after in zip(widths, widths[1:], strict=False)
            for layer in (nn.Conv2d(before, after, 3, 2, 1), nn.ReLU())
        ]
        self.model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))

    def training_step(self, batch: ddlp.Batch) -> torch.Tensor:
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self) -> None:
        print(f"epoch {self.current_epoch}: loss {self.trainer.callback_metrics['loss']:.3f}")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    lightning.seed_everything(0, verbose=False)
    loader = ddlp.Loader(
        args.folder, pipeline=ddlp.cifar_train(), batch_size=64, normalize=(MEAN, STD), last="drop", epochs=args.epochs
    )
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=args.epochs, logger=False, enable_progress_bar=False, enable_checkpointing=False
    )
    trainer.fit(Classifier(), loader)


if __name__ == "__main__":
    main()
