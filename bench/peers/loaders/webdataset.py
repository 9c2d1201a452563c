"""WebDataset: tar shards, decoded by Pillow, transformed by torchvision."""
import importlib.metadata
import io
import tarfile

import webdataset
from loaders.torch import VERSIONS, processes, steps
from work import bytes_of

SHARDS = 4


def prepare(work):
    """Returns a function that goes through an epoch, and a note."""
    shards = [work.converted / f"{shard}.tar" for shard in range(SHARDS)]
    for shard, path in enumerate(shards):
        if not path.exists():
            write(path, work.own_files()[shard::SHARDS])
    transform, options = steps(work), processes(work)
    batches = -(-work.images // work.batch)
    samples = (
        webdataset.WebDataset([str(path) for path in shards], resampled=True, shardshuffle=False).shuffle(200)
        .decode("pilrgb").to_tuple("jpg", "cls").map_tuple(transform, int).batched(work.batch)
        .with_epoch(-(-batches // max(1, options["num_workers"]))))
    loader = webdataset.WebLoader(samples, batch_size=None, **options)
    return (lambda: sum(len(images) for images, _labels in loader),
            f"WebDataset {importlib.metadata.version('webdataset')}, {VERSIONS}: whole images, antialiased bilinear")


def write(path, files):
    """Writes a shard that appears as a whole or not at all."""
    part = path.with_suffix(".part")
    with tarfile.open(part, "w", format=tarfile.USTAR_FORMAT) as shard:
        for number, file in enumerate(files):
            for extension, content in (("jpg", bytes_of(file)), ("cls", b"0")):
                member = tarfile.TarInfo(f"{path.stem}{number:06}.{extension}")
                member.size = len(content)
                shard.addfile(member, io.BytesIO(content))
    part.rename(path)
