"""Grain: Pillow and NumPy in its threads."""
import importlib.metadata

import grain.python as grain
import numpy
from loaders.pillow import loading
from work import SIZE


def prepare(work):
    """Returns a function that goes through an epoch, and a note."""
    load, epochs = loading(work), iter(range(1 << 32))

    def made(sample):
        row = numpy.empty((3, SIZE, SIZE), numpy.float32)
        load(sample, row)
        return row

    def epoch():
        batches = (grain.MapDataset.source(range(work.images)).shuffle(next(epochs)).map(made).batch(work.batch)
                   .to_iter_dataset(grain.ReadOptions(work.threads, 2 * work.threads)))
        return sum(len(images) for images in batches)

    return epoch, f"Grain {importlib.metadata.version('grain')}, Pillow in threads: whole images, antialiased bilinear"
