"""Pillow or, in its place, Pillow-SIMD, in threads."""
import numpy
import PIL
from PIL import Image, features
from work import IMAGENET, SIZE, centre, crop_box, flips, normalise, resized


def prepare(work):
    """Returns a function that goes through an epoch, and a note."""
    load = loading(work)
    name = "Pillow-SIMD" if "post" in PIL.__version__ else "Pillow"
    note = (f"{name} {PIL.__version__}, libjpeg-turbo {features.version('libjpeg_turbo')}: decodes whole images, "
            "antialiased bilinear, normalises with NumPy")
    return lambda: work.epoch(work.images, load), note


def loading(work):
    """Returns the function that writes a sample's floats."""
    files = work.files()

    def load(sample, row):
        with Image.open(files[sample]) as opened:
            image = opened.convert("RGB")
        if work.is_train:
            left, top, width, height = crop_box(*image.size)
            box = left, top, left + width, top + height
            image = numpy.asarray(image.resize((SIZE, SIZE), Image.BILINEAR, box=box))
            return normalise(image, row, IMAGENET, flips())
        image = numpy.asarray(image.resize(resized(*image.size), Image.BILINEAR))
        return normalise(centre(image), row, IMAGENET)

    return load
