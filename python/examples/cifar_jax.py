"""Trains a small network with JAX, which takes the batches over by DLPack without a copy.

ddlp sample-data photos --images 600          # or your own folder with one folder per class
python cifar_jax.py photos
"""

import argparse

import jax
import jax.numpy as jnp

import ddlp

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def scores(parameters: dict, images: jax.Array) -> jax.Array:
    """Returns a score for each image and class: three convolutions, the mean over the pixels, and a matrix."""
    for kernel in parameters["kernels"]:
        images = jax.nn.relu(jax.lax.conv_general_dilated(images, kernel, (2, 2), "SAME"))
    return images.mean((2, 3)) @ parameters["classes"]


def mean_loss(parameters: dict, images: jax.Array, labels: jax.Array) -> jax.Array:
    chances = jax.nn.log_softmax(scores(parameters, images))
    return -jnp.take_along_axis(chances, labels[:, None], 1).mean()


@jax.jit
def step(parameters: dict, images: jax.Array, labels: jax.Array) -> tuple[dict, jax.Array]:
    """Returns the parameters after a step of gradient descent, and the loss before it."""
    loss, gradients = jax.value_and_grad(mean_loss)(parameters, images, labels)
    return jax.tree.map(lambda value, gradient: value - 0.1 * gradient, parameters, gradients), loss


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
        output="dlpack",
        last="drop",
        epochs=args.epochs,
    )
    make = jax.nn.initializers.he_normal(1, 0)
    keys = jax.random.split(jax.random.key(0), 4)
    channels = [3, 16, 32, 64]
    kernels = [
        make(key, (after, before, 3, 3)) for key, before, after in zip(keys, channels, channels[1:], strict=False)
    ]
    parameters = {"kernels": kernels, "classes": jnp.zeros((channels[-1], 10))}
    for epoch in range(args.epochs):
        losses = []
        for batch in loader:
            # JAX holds a batch's memory for as long as it computes with the batch.
            images, labels = map(jax.dlpack.from_dlpack, batch)
            parameters, loss = step(parameters, images, labels)
            losses.append(float(loss))
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")


if __name__ == "__main__":
    main()
