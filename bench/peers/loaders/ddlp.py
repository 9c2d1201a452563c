"""Our package, as training code in Python uses it: PyTorch's tensors, or NumPy's arrays where there is no PyTorch."""
import importlib.util
import platform

import ddlp
from work import CIFAR, IMAGENET

PIPELINES = {"W1": "imagenet-train", "W2": "imagenet-val", "W3": "cifar-train"}


def prepare(work):
    """Returns a function that goes through an epoch, and a note."""
    output = "torch" if importlib.util.find_spec("torch") else "numpy"
    loader = ddlp.Loader(
        work.source, pipeline=PIPELINES[work.name], batch_size=work.batch, strategy="cpu", threads=work.threads,
        normalize=CIFAR if work.name == "W3" else IMAGENET, output=output,
        epoch_samples=None if work.name == "W3" else work.images,
        # The loader prepares batches of the next epoch during an epoch, even during the last one that is timed.
        epochs=work.warmup + work.reps + 1)

    def epoch():
        made = 0
        for images, _labels in loader:
            made += len(images)
        return made

    return epoch, f"Python {platform.python_version()}, {output}, ddlp {ddlp.__version__}"
