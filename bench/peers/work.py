"""The work that every loader does, and what the loaders without a pipeline of their own share."""
import collections
import concurrent.futures
import glob
import math
import pathlib
import random
from dataclasses import dataclass

import numpy

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
SIZE, RESIZED, SMALL, PADDING = 224, 256, 32, 4


@dataclass
class Work:
    """What one run does: W1 and W2 prepare the JPEGs below the folder `source`, W3 the arrays in the file `source`."""
    name: str
    variant: str
    source: pathlib.Path
    # Folder for converted data, which later runs use again.
    converted: pathlib.Path
    images: int
    batch: int
    threads: int
    warmup: int
    reps: int

    @property
    def is_train(self):
        """Returns whether the crop is random."""
        return self.name == "W1"

    def files(self):
        """Returns the paths of an epoch's JPEGs. A smaller folder is repeated."""
        own = self.own_files()
        return [own[index % len(own)] for index in range(self.images)]

    def own_files(self):
        """Returns the paths of the folder's JPEGs."""
        paths = glob.glob(f"{glob.escape(str(self.source))}/**/*", recursive=True)
        found = sorted(path for path in paths if path.lower().endswith((".jpg", ".jpeg")))
        if not found:
            raise SystemExit(f"error: {self.source} has no JPEGs")
        return found

    def arrays(self):
        """Returns W3's images (samples × 32 × 32 × 3 u8) and labels (i64)."""
        with numpy.load(self.source) as arrays:
            return arrays["x"], arrays["y"]

    def epoch(self, count, load):
        """Goes through an epoch of `count` samples in random order: `load(sample, row)` writes a sample's floats, and
        threads make whole batches. Returns the number of samples."""
        size = SMALL if self.name == "W3" else SIZE
        order = numpy.random.permutation(count).tolist()
        batches = [order[start:start + self.batch] for start in range(0, count, self.batch)]

        def make(samples):
            rows = numpy.empty((len(samples), 3, size, size), numpy.float32)
            for row, sample in zip(rows, samples):
                load(sample, row)
            return len(rows)

        if self.threads == 1:
            return sum(map(make, batches))
        made, waiting = 0, collections.deque()
        with concurrent.futures.ThreadPoolExecutor(self.threads) as threads:
            for samples in batches:
                waiting.append(threads.submit(make, samples))
                if len(waiting) == 2 * self.threads:
                    made += waiting.popleft().result()
            return made + sum(batch.result() for batch in waiting)


def crop_box(width, height):
    """Draws a box as torchvision's RandomResizedCrop does. Returns left, top, width and height."""
    ratios = math.log(3 / 4), math.log(4 / 3)
    for _ in range(10):
        area, ratio = width * height * random.uniform(0.08, 1), math.exp(random.uniform(*ratios))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            return random.randint(0, width - wide), random.randint(0, height - high), wide, high
    wide, high = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (width - wide) // 2, (height - high) // 2, wide, high


def resized(width, height):
    """Returns width and height after the shorter side has become 256."""
    shorter = min(width, height)
    return RESIZED * width // shorter, RESIZED * height // shorter


def centre(image):
    """Returns the central 224 × 224 pixels of an array."""
    top, left = (image.shape[0] - SIZE) // 2, (image.shape[1] - SIZE) // 2
    return image[top:top + SIZE, left:left + SIZE]


def flips():
    """Draws whether an image is mirrored."""
    return random.random() < 0.5


def normalise(image, row, statistics, flip=False):
    """Writes an image's bytes (height × width × channels) as normalised floats, channels first."""
    if flip:
        image = image[:, ::-1]
    for channel, (mean, deviation) in enumerate(zip(*statistics)):
        numpy.multiply(image[..., channel], numpy.float32(1 / (255 * deviation)), out=row[channel], casting="unsafe")
        row[channel] -= numpy.float32(mean / deviation)


def bytes_of(path):
    """Returns the content of a file."""
    with open(path, "rb") as file:
        return file.read()
