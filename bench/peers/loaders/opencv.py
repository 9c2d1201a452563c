"""OpenCV in threads."""
import cv2
import numpy
from work import CIFAR, IMAGENET, PADDING, SIZE, SMALL, bytes_of, centre, crop_box, flips, normalise, resized
from random import randint


def prepare(work):
    """Returns a function that goes through an epoch, and a note."""
    cv2.setNumThreads(0)
    if work.name == "W3":
        images, _labels = work.arrays()

        def load(sample, row):
            padded = cv2.copyMakeBorder(images[sample], *[PADDING] * 4, cv2.BORDER_CONSTANT)
            top, left = randint(0, 2 * PADDING), randint(0, 2 * PADDING)
            normalise(padded[top:top + SMALL, left:left + SMALL], row, CIFAR, flips())

        return lambda: work.epoch(len(images), load), f"OpenCV {cv2.__version__}"
    files = work.files()

    def load(sample, row):
        encoded = numpy.frombuffer(bytes_of(files[sample]), numpy.uint8)
        image = cv2.imdecode(encoded, cv2.IMREAD_COLOR_RGB)
        height, width = image.shape[:2]
        if work.is_train:
            left, top, width, height = crop_box(width, height)
            image = cv2.resize(image[top:top + height, left:left + width], (SIZE, SIZE))
            return normalise(image, row, IMAGENET, flips())
        return normalise(centre(cv2.resize(image, resized(width, height))), row, IMAGENET)

    return (lambda: work.epoch(len(files), load),
            f"OpenCV {cv2.__version__}: decodes whole images, bilinear without antialiasing")
