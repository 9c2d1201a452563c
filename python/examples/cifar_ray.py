"""Trains a small network on CIFAR-10's files with Ray Train, in two processes.

    python cifar_ray.py FOLDER [--epochs 2]

FOLDER holds CIFAR-10's binary files (`data_batch_1.bin` ...). Each worker of Ray makes its own loader, which gets that
worker's share of every batch.
"""

import argparse
from pathlib import Path

import ray.train
import torch
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model
from torch import distributed, nn

import ddlp

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def train(config: dict) -> tuple[int, list[float]]:
    """Trains the network in one worker. Returns the number of workers, and the mean loss of each epoch."""
    # Rank and number of processes are those of torch.distributed, which Ray has set up.
    loader = ddlp.Loader(
        config["folder"],
        pipeline=ddlp.cifar_train(),
        batch_size=64,
        normalize=(MEAN, STD),
        last="drop",
        epochs=config["epochs"],
    )
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 64, 3, 2, 1), nn.ReLU()]
    model = prepare_model(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    means = []
    for epoch in range(config["epochs"]):
        total = torch.zeros(())
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        distributed.all_reduce(total)
        means.append(total.item() / len(loader) / distributed.get_world_size())
        ray.train.report({"epoch": epoch, "loss": means[-1]})
    return distributed.get_world_size(), means


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    trainer = TorchTrainer(
        train,
        # A worker has a working directory of its own, so the path must be absolute.
        train_loop_config={"folder": str(args.folder.resolve()), "epochs": args.epochs},
        torch_config=TorchConfig(backend="gloo"),
        # Ray waits without end if the workers ask for more CPUs than it has. Two workers of half a CPU need only one.
        scaling_config=ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
    )
    # Ray delays what a worker prints and puts a prefix before it, so this program prints what worker 0 returns.
    workers, losses = trainer.fit().return_value
    print(f"each of {workers} workers got its share of every batch")
    for epoch, loss in enumerate(losses):
        print(f"epoch {epoch}: loss {loss:.3f}")
    ray.shutdown()


if __name__ == "__main__":
    main()
