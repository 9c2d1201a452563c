"""Trains a small network on CIFAR-10's files with the Trainer of Hugging Face's transformers.

    python cifar_trainer.py FOLDER [--epochs 2]

FOLDER holds CIFAR-10's binary files (`data_batch_1.bin` ...).
"""

import argparse
import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

import ddlp

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
BATCH = 64


class Classifier(nn.Module):
    """Two convolutions, the mean over the pixels, and a matrix."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 64, 3, 2, 1), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(pixel_values)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class LoaderTrainer(Trainer):
    """A Trainer whose batches come from a loader."""

    def __init__(self, loader: ddlp.Loader, **options: object) -> None:
        super().__init__(**options)
        self.loader = loader

    def get_train_dataloader(self) -> ddlp.Loader:
        return self.loader


class ShowsLosses(TrainerCallback):
    """Prints the mean loss of each epoch."""

    def on_log(self, args: object, state: object, control: object, logs: dict[str, float], **_: object) -> None:
        if "loss" in logs:
            print(f"epoch {logs['epoch'] - 1:.0f}: loss {float(logs['loss']):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    # Batches are dicts with the names of the model's parameters.
    loader = ddlp.Loader(
        args.folder,
        pipeline=ddlp.cifar_train(),
        batch_size=BATCH,
        normalize=(MEAN, STD),
        last="drop",
        epochs=args.epochs,
        names=("pixel_values", "labels"),
    )
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingArguments(
            output_dir=folder,
            num_train_epochs=args.epochs,
            per_device_train_batch_size=BATCH,
            learning_rate=0.01,
            lr_scheduler_type="constant",
            logging_strategy="epoch",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        LoaderTrainer(loader, model=Classifier(), args=options, callbacks=[ShowsLosses()]).train()


if __name__ == "__main__":
    main()
