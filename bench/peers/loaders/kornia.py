"""kornia-rs in threads. Variant `fused` resizes and normalises in one call."""
import importlib.metadata

import kornia_rs
import numpy
from work import IMAGENET, SIZE, bytes_of, centre, crop_box, flips, normalise, resized


def prepare(work):
    """Returns a function that goes through an epoch, and a note."""
    files = work.files()

    def load(sample, row):
        image = kornia_rs.io.decode_image_jpegturbo(bytes_of(files[sample]), "rgb")
        height, width = image.shape[:2]
        if not work.is_train:
            width, height = resized(width, height)
            return normalise(centre(kornia_rs.imgproc.resize(image, (height, width), "bilinear")), row, IMAGENET)
        left, top, width, height = crop_box(width, height)
        image = numpy.ascontiguousarray(image[top:top + height, left:left + width])
        if work.variant == "fused":
            made = kornia_rs.pipeline.resize_normalize_to_tensor(image, (SIZE, SIZE), *IMAGENET)
            row[...] = made[:, :, ::-1] if flips() else made
            return None
        return normalise(kornia_rs.imgproc.resize(image, (SIZE, SIZE), "bilinear"), row, IMAGENET, flips())

    return (lambda: work.epoch(len(files), load),
            f"kornia-rs {importlib.metadata.version('kornia_rs')}: decodes whole images, bilinear without antialiasing")
