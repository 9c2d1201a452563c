"""libjpeg-turbo through simplejpeg or PyTurboJPEG, with OpenCV's resize, in threads.

Variants: `full` decodes whole images; `scaled` decodes at the smallest power of two that the crop allows;
`pyturbojpeg scaled` does so with PyTurboJPEG.
"""
import importlib.metadata

import cv2
from work import IMAGENET, RESIZED, SIZE, bytes_of, centre, crop_box, flips, normalise, resized


def prepare(work):
    """Returns a function that goes through an epoch, and a note."""
    cv2.setNumThreads(0)
    files, is_scaled = work.files(), work.variant.endswith("scaled")
    package = "PyTurboJPEG" if work.variant.startswith("pyturbojpeg") else "simplejpeg"
    size_of, decode = (pyturbojpeg if package == "PyTurboJPEG" else simplejpeg)()

    def load(sample, row):
        encoded = bytes_of(files[sample])
        width, height = size_of(encoded)
        box = crop_box(width, height) if work.is_train else (0, 0, width, height)
        # Half, a quarter or an eighth in each direction, as long as no side has to be enlarged.
        least, parts = SIZE if work.is_train else RESIZED, 1
        while is_scaled and parts < 8 and min(box[2:]) >= 2 * parts * least:
            parts *= 2
        image = decode(encoded, width, height, parts)
        if work.is_train:
            left, top, wide, high = (side // parts for side in box)
            image = cv2.resize(image[top:top + high, left:left + wide], (SIZE, SIZE))
            return normalise(image, row, IMAGENET, flips())
        return normalise(centre(cv2.resize(image, resized(width, height))), row, IMAGENET)

    note = (f"{package} {importlib.metadata.version(package)}: decodes whole images{', scaled' if is_scaled else ''}; "
            f"OpenCV {cv2.__version__}, bilinear without antialiasing")
    return lambda: work.epoch(len(files), load), note


def simplejpeg():
    """Returns the functions that read an image's size and that decode it."""
    from simplejpeg import decode_jpeg, decode_jpeg_header

    def size_of(encoded):
        height, width, *_ = decode_jpeg_header(encoded)
        return width, height

    def decode(encoded, width, height, parts):
        # Chooses the smallest scale that gives at least this size.
        return decode_jpeg(encoded, "RGB", min_width=-(-width // parts), min_height=-(-height // parts), min_factor=1)

    return size_of, decode


def pyturbojpeg():
    """Returns the functions that read an image's size and that decode it."""
    from turbojpeg import TJPF_RGB, TurboJPEG
    library = TurboJPEG()

    def decode(encoded, _width, _height, parts):
        return library.decode(encoded, TJPF_RGB, scaling_factor=(1, parts) if parts > 1 else None)

    return lambda encoded: library.decode_header(encoded)[:2], decode
