"""MosaicML Streaming: MDS shards, decoded by Pillow, transformed by torchvision."""
import importlib.metadata
import io
import shutil

from loaders.torch import VERSIONS, opened, processes, steps
from streaming import MDSWriter, StreamingDataset
from torch.utils.data import DataLoader
from work import bytes_of


class Images(StreamingDataset):
    """Samples as transformed tensors."""

    def __init__(self, transform, **options):
        super().__init__(**options)
        self.transform = transform

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        return self.transform(opened(io.BytesIO(sample["image"]))), sample["label"]


def prepare(work):
    """Returns a function that goes through an epoch, and a note."""
    if not (work.converted / "index.json").exists():
        shutil.rmtree(work.converted)
        with MDSWriter(out=str(work.converted), columns={"image": "bytes", "label": "int"}, size_limit=1 << 25) as out:
            for file in work.own_files():
                out.write({"image": bytes_of(file), "label": 0})
    samples = Images(steps(work), local=str(work.converted), shuffle=True, batch_size=work.batch,
                     epoch_size=work.images)
    loader = DataLoader(samples, work.batch, **processes(work))
    version = importlib.metadata.version("mosaicml-streaming")
    return (lambda: sum(len(images) for images, _labels in loader),
            f"MosaicML Streaming {version}, {VERSIONS}: whole images, antialiased bilinear")
