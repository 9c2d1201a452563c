"""Trains a softmax classifier on CIFAR-10's files with NumPy alone: the loop of `host/loader/examples/cifar.rs`.

    python cifar_numpy.py FOLDER [--epochs 5]

FOLDER holds CIFAR-10's binary files (`data_batch_1.bin` ...), or any folder of images with one folder per class. The
classifier sees the mean colour of each of 16 parts of an image.
"""

import argparse

import numpy

import ddlp

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
LEARNING_RATE = 0.1


def features_of(images: numpy.ndarray) -> numpy.ndarray:
    """Returns the mean colours of the parts of each image, and 1."""
    count = len(images)
    parts = images.reshape(count, 3, 4, 8, 4, 8).mean((3, 5)).reshape(count, 48)
    return numpy.concatenate([parts, numpy.ones((count, 1))], axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    loader = ddlp.Loader(
        args.folder,
        pipeline=ddlp.cifar_train(),
        batch_size=64,
        normalize=(MEAN, STD),
        output="numpy",
        last="drop",
        epochs=args.epochs,
    )
    weights = numpy.zeros((49, len(loader.classes)))
    for epoch in range(args.epochs):
        losses = []
        for images, labels in loader:
            features, rows = features_of(images), numpy.arange(len(labels))
            scores = features @ weights
            shares = numpy.exp(scores - scores.max(1, keepdims=True))
            shares /= shares.sum(1, keepdims=True)
            losses.append(-numpy.log(shares[rows, labels]).mean())
            shares[rows, labels] -= 1
            weights -= LEARNING_RATE * features.T @ shares / len(labels)
        print(f"epoch {epoch}: loss {numpy.mean(losses):.3f}")


if __name__ == "__main__":
    main()
