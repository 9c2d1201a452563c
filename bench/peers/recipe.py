"""Times whole epochs of bench/recipe.toml as torchvision does them. The last line of output is a JSON object.

    python bench/peers/recipe.py tensors --source photos --images 1000

`tensors` decodes with torchvision.io and transforms tensors of bytes; `pillow` decodes and transforms Pillow's images.
Transforms are those of torchvision.transforms.v2, or of torchvision.transforms where that is missing. bench/recipe runs
this program, pinned to one core.
"""
import argparse
import json
import pathlib
import statistics
import time

import PIL
import torch
import torchvision
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import io

try:
    from torchvision.transforms import v2 as t
except ImportError:
    from torchvision import transforms as t

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Files(Dataset):
    """Image files that one function loads and another one transforms."""

    def __init__(self, files, load, transform):
        self.files, self.load, self.transform = files, load, transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return self.transform(self.load(self.files[index])), 0


def decoded(path):
    """Returns the image in a file as a tensor of bytes."""
    return io.decode_jpeg(io.read_file(str(path)), mode=io.ImageReadMode.RGB)


def opened(path):
    """Returns the image in a file as one of Pillow's."""
    with Image.open(path) as image:
        return image.convert("RGB")


def steps(kind):
    """Returns the transforms."""
    if kind == "pillow":
        floats = [t.PILToTensor(), t.ConvertImageDtype(torch.float32)]
    else:
        floats = [t.ConvertImageDtype(torch.float32)]
    return t.Compose([t.RandomResizedCrop(224, antialias=True), t.RandomHorizontalFlip(),
                      t.RandAugment(num_ops=2, magnitude=9), *floats, t.Normalize(MEAN, DEVIATION),
                      t.RandomErasing(p=0.25)])


def main():
    """Runs the epochs and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["tensors", "pillow"])
    parser.add_argument("--source", metavar="DIR", type=pathlib.Path, required=True, help="folder of JPEGs")
    parser.add_argument("--images", type=int, default=1000, help="images of an epoch; a smaller folder is repeated")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--reps", type=int, default=1, help="timed epochs, after one that is not timed")
    given = parser.parse_args()
    own = sorted(path for path in given.source.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    if not own:
        raise SystemExit(f"error: {given.source} has no JPEGs")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    files = [own[at % len(own)] for at in range(given.images)]
    load = opened if given.kind == "pillow" else decoded
    loader = DataLoader(Files(files, load, steps(given.kind)), given.batch, shuffle=True)
    rates, per_cpu_s = [], []
    for number in range(given.reps + 1):
        begun, cpu = time.perf_counter(), time.process_time()
        images = sum(len(batch) for batch, _labels in loader)
        if number:
            rates.append(images / (time.perf_counter() - begun))
            per_cpu_s.append(images / (time.process_time() - cpu))
    note = f"torch {torch.__version__}, torchvision {torchvision.__version__} ({t.__name__}), Pillow {PIL.__version__}"
    print(json.dumps({"median": statistics.median(rates), "per_cpu_s": statistics.median(per_cpu_s), "note": note}))


if __name__ == "__main__":
    main()
