"""PyTorch's DataLoader with torchvision.

Variants: `pil` decodes with Pillow; `tvio` decodes with torchvision.io and transforms tensors; `batch`, in W3,
transforms whole batches of tensors without a DataLoader.
"""
import PIL
import torch
import torchvision
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import io, transforms
from work import CIFAR, IMAGENET, PADDING, RESIZED, SIZE, SMALL

VERSIONS = f"torch {torch.__version__}, torchvision {torchvision.__version__}, Pillow {PIL.__version__}"


class Samples(Dataset):
    """Samples that one function loads and another one transforms."""

    def __init__(self, samples, load, transform):
        self.samples, self.load, self.transform = samples, load, transform

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.transform(self.load(self.samples[index])), 0


def prepare(work):
    """Returns a function that goes through an epoch, and a note."""
    torch.manual_seed(0)
    torch.set_num_threads(work.threads if work.variant == "batch" else 1)
    if work.variant == "batch":
        return whole_batches(work), f"{VERSIONS}: whole batches of tensors"
    if work.name == "W3":
        samples, load = work.arrays()[0], Image.fromarray
    else:
        samples, load = work.files(), decoded if work.variant == "tvio" else opened
    loader = DataLoader(Samples(samples, load, steps(work)), work.batch, shuffle=True, **processes(work))
    note = f"{VERSIONS}: DataLoader, {processes(work)['num_workers']} processes; whole images, antialiased bilinear"
    return lambda: sum(len(images) for images, _labels in loader), note


def processes(work):
    """Returns the options of a DataLoader. On one core, a process of its own would only cost time."""
    workers = work.threads if work.threads > 1 else 0
    return {"num_workers": workers, "persistent_workers": workers > 0}


def steps(work):
    """Returns torchvision's transforms for a work."""
    if work.variant == "tvio":
        from torchvision.transforms import v2 as t
        floats = t.ToDtype(torch.float32, scale=True)
    else:
        t, floats = transforms, transforms.ToTensor()
    crop = {"W1": [t.RandomResizedCrop(SIZE, antialias=True), t.RandomHorizontalFlip()],
            "W2": [t.Resize(RESIZED, antialias=True), t.CenterCrop(SIZE)],
            "W3": [t.RandomCrop(SMALL, padding=PADDING), t.RandomHorizontalFlip()]}[work.name]
    return t.Compose([*crop, floats, t.Normalize(*(CIFAR if work.name == "W3" else IMAGENET))])


def decoded(path):
    """Returns the image in a file as a tensor."""
    return io.decode_jpeg(io.read_file(path), mode=io.ImageReadMode.RGB)


def opened(file):
    """Returns the image in a file."""
    with Image.open(file) as image:
        return image.convert("RGB")


def whole_batches(work):
    """Returns a function that goes through an epoch of W3, a gather for each batch."""
    images = torch.from_numpy(work.arrays()[0]).permute(0, 3, 1, 2)
    padded = torch.nn.functional.pad(images, [PADDING] * 4)
    mean, deviation = (255 * torch.tensor(values).view(1, 3, 1, 1) for values in CIFAR)
    channels, side = torch.arange(3).view(1, 3, 1, 1), torch.arange(SMALL)

    def epoch():
        made = 0
        for samples in torch.randperm(len(padded)).split(work.batch):
            count = len(samples)
            rows = side + torch.randint(0, 2 * PADDING + 1, (count, 1))
            columns = torch.where(torch.rand(count, 1) < 0.5, side, side.flip(0))
            columns = columns + torch.randint(0, 2 * PADDING + 1, (count, 1))
            places = samples.view(-1, 1, 1, 1), channels, rows.view(count, 1, -1, 1), columns.view(count, 1, 1, -1)
            made += len((padded[places] - mean) / deviation)
        return made

    return epoch
