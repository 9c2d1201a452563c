"""FFCV. Variants: none keeps the JPEGs' bytes, `q90` encodes them again as FFCV does by itself, `raw` stores pixels of
images with sides of at most 500."""
import importlib.metadata

import numpy
import torch
import ffcv.fields.rgb_image
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import (CenterCropRGBImageDecoder, IntDecoder, RandomResizedCropRGBImageDecoder,
                                  SimpleRGBImageDecoder)
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, RandomTranslate, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter
from PIL import Image
from work import CIFAR, IMAGENET, PADDING, RESIZED, SIZE, bytes_of


class Small:
    """CIFAR's images and labels."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, sample):
        return self.images[sample], int(self.labels[sample])


class Photographs:
    """Images of files, all of one class."""

    # Bytes of the file that the writer got last, for `keep_bytes`.
    latest = b""

    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, sample):
        Photographs.latest = bytes_of(self.files[sample])
        return Image.open(self.files[sample]).convert("RGB"), 0


def keep_bytes(_image, _quality):
    """Stands in for FFCV's encoder, so that decoding takes as long as that of the files."""
    return numpy.frombuffer(Photographs.latest, numpy.uint8)


def prepare(work):
    """Returns a function that goes through an epoch, and a note."""
    torch.set_num_threads(1)
    path = work.converted / f"{work.name}.beton"
    if work.name == "W3":
        source, field, statistics = Small(*work.arrays()), RGBImageField(), CIFAR
        steps = [SimpleRGBImageDecoder(), RandomHorizontalFlip(), RandomTranslate(padding=PADDING, fill=(0, 0, 0))]
    else:
        source, statistics = Photographs(work.files()), IMAGENET
        if work.variant == "raw":
            field = RGBImageField(write_mode="raw", max_resolution=500)
        else:
            field = RGBImageField(write_mode="jpg", jpeg_quality=90)
        steps = [RandomResizedCropRGBImageDecoder((SIZE, SIZE)), RandomHorizontalFlip()]
        if not work.is_train:
            steps = [CenterCropRGBImageDecoder((SIZE, SIZE), SIZE / RESIZED)]
    if not path.exists():
        if not work.variant:
            ffcv.fields.rgb_image.encode_jpeg = keep_bytes
        part = path.with_suffix(".part")
        writer = DatasetWriter(str(part), {"image": field, "label": IntField()}, num_workers=1)
        writer.from_indexed_dataset(source)
        part.rename(path)
    mean, deviation = (255 * numpy.array(values) for values in statistics)
    steps += [NormalizeImage(mean, deviation, numpy.float32), ToTensor(), ToTorchImage()]
    loader = Loader(str(path), batch_size=work.batch, num_workers=work.threads, order=OrderOption.RANDOM, os_cache=True,
                    drop_last=False, pipelines={"image": steps, "label": [IntDecoder(), ToTensor()]})
    note = f"FFCV {importlib.metadata.version('ffcv')}: file of {path.stat().st_size / 1e6:.0f} MB"
    return lambda: sum(len(images) for images, _labels in loader), note
