"""NVIDIA DALI on the CPU."""
import numpy
import nvidia.dali
from nvidia.dali import fn, pipeline_def, types
from work import CIFAR, IMAGENET, PADDING, RESIZED, SIZE, SMALL


def prepare(work):
    """Returns a function that goes through an epoch, and a note."""
    count = len(work.arrays()[0]) if work.name == "W3" else work.images
    make = pipeline_def(small if work.name == "W3" else photographs, batch_size=work.batch, num_threads=work.threads,
                        device_id=None, prefetch_queue_depth=2, seed=0)
    pipeline = make(work)
    pipeline.build()

    def epoch():
        batches = -(-count // work.batch)
        for _ in range(batches):
            pipeline.run()
        return batches * work.batch

    decoding = "decodes crops" if work.is_train else "decodes whole images"
    how = "takes arrays from NumPy" if work.name == "W3" else f"{decoding}, antialiased bilinear"
    return epoch, f"DALI {nvidia.dali.__version__}: {how}"


def photographs(work):
    """Defines the pipeline of W1 and W2."""
    files = work.own_files()
    encoded, labels = fn.readers.file(files=files, labels=[0] * len(files), random_shuffle=True)
    if work.is_train:
        images = fn.decoders.image_random_crop(encoded, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3],
                                               num_attempts=10, output_type=types.RGB)
        images = fn.resize(images, size=[SIZE, SIZE], interp_type=types.INTERP_LINEAR, antialias=True)
        return finished(images, IMAGENET, SIZE, mirror=fn.random.coin_flip()), labels
    images = fn.decoders.image(encoded, output_type=types.RGB)
    images = fn.resize(images, resize_shorter=RESIZED, interp_type=types.INTERP_LINEAR, antialias=True)
    return finished(images, IMAGENET, SIZE), labels


def small(work):
    """Defines the pipeline of W3."""
    images, labels = work.arrays()

    def batches():
        while True:
            order = numpy.random.permutation(len(images))
            for start in range(0, len(order), work.batch):
                chosen = order[start:start + work.batch]
                yield images[chosen], labels[chosen]

    pixels, classes = fn.external_source(batches(), num_outputs=2, batch=True, layout=["HWC", ""])
    side = SMALL + 2 * PADDING
    pixels = fn.slice(pixels, [-PADDING] * 2, [side] * 2, axis_names="HW", normalized_anchor=False,
                      normalized_shape=False, out_of_bounds_policy="pad", fill_values=0)
    place = {f"crop_pos_{axis}": fn.random.uniform(range=(0.0, 1.0)) for axis in "xy"}
    return finished(pixels, CIFAR, SMALL, mirror=fn.random.coin_flip(), **place), classes


def finished(images, statistics, size, **options):
    """Crops, mirrors and normalises."""
    mean, deviation = ([255 * value for value in values] for values in statistics)
    return fn.crop_mirror_normalize(images, crop=(size, size), mean=mean, std=deviation, dtype=types.FLOAT,
                                    output_layout="CHW", **options)
