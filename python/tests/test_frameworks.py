"""Loaders in the loops of other libraries, as their users write them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ddlp

torch = pytest.importorskip("torch")

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SMALL = 32


def small_loader(pack, **options):
    return ddlp.Loader(pack, pipeline=ddlp.imagenet_train(SMALL), batch_size=8, **options)


def small_model():
    layers = [torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 10)]
    return torch.nn.Sequential(*layers)


def test_a_loader_has_the_attributes_of_a_data_loader(pack):
    with small_loader(pack, shuffle=False, last="drop") as loader:
        assert (loader.batch_size, loader.drop_last, loader.num_workers, loader.pin_memory) == (8, True, 0, False)
        assert isinstance(loader.sampler, torch.utils.data.SequentialSampler)
        assert len(loader.sampler) == 56 and len(loader.batch_sampler) == len(loader) == 7
        assert len(loader.dataset) == 60
        with pytest.raises(ddlp.UsageError, match="sample_ids"):
            iter(loader.sampler)
    with small_loader(pack) as loader:
        assert isinstance(loader.sampler, torch.utils.data.Sampler) and not loader.drop_last
        assert not isinstance(loader.sampler, torch.utils.data.SequentialSampler)
        assert len(loader.sampler) == 60


def test_a_batch_moves_to_a_device_as_a_tensor_does(pack):
    # The device `meta` holds no values, and is on every machine.
    with small_loader(pack, epochs=1) as pairs, small_loader(pack, epochs=1, views=2, names=("x", "y")) as named:
        batch = next(iter(pairs))
        moved = batch.to("meta", non_blocking=True)
        assert type(moved) is type(batch) and moved.sample_ids == batch.sample_ids
        assert (moved.images.device.type, moved.labels.device.type, batch.images.device.type) == ("meta", "meta", "cpu")
        batch = next(iter(named))
        moved = batch.to(torch.device("meta"))
        assert type(moved) is type(batch) and moved.epoch == 0 and set(moved) == {"x", "y"}
        assert [view.device.type for view in moved["x"]] == ["meta"] * 2 and moved["y"].device.type == "meta"
    with small_loader(pack, output="numpy") as arrays, pytest.raises(ddlp.UsageError, match='numpy.ndarray: .*"torch"'):
        next(iter(arrays)).to("cpu")


def test_a_rank_knows_its_share(pack):
    shares = []
    for rank in range(3):
        with small_loader(pack, rank=rank, world_size=3) as loader:
            shares.append(len(loader.sampler))
            assert shares[-1] == sum(len(batch.labels) for batch in loader)
            assert "batch_size=8 of all 3 ranks" in repr(loader)
    assert sum(shares) == 60


def test_the_training_script_of_pytorchs_examples(pack):
    """The loop of a program with `train_sampler`, `validate` and its rest of the dataset for the last rank."""
    train_loader = small_loader(pack)
    val_loader = ddlp.Loader(pack, pipeline=ddlp.imagenet_val(SMALL, resize=SMALL), batch_size=8, shuffle=False)
    train_sampler, world_size = train_loader.sampler, 1
    model, criterion = small_model(), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    orders = []
    for epoch in range(1, 3):
        train_sampler.set_epoch(epoch)
        orders.append([])
        steps = 0
        for images, target in train_loader:
            loss = criterion(model(images), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            orders[-1].append(float(images.sum()))
            steps += 1
        assert steps == len(train_loader)
        seen = sum(len(target) for _, target in val_loader)
        assert len(val_loader.sampler) * world_size == len(val_loader.dataset) == seen
    with small_loader(pack) as again:
        again.set_epoch(1)
        assert [float(images.sum()) for images, _ in again] == orders[0] != orders[1]


def test_the_evaluation_of_torchvisions_references(pack):
    """Counts the processed samples, and compares them with the dataset's."""
    model = small_model().eval()
    with ddlp.Loader(pack, pipeline=ddlp.imagenet_val(SMALL, resize=SMALL), batch_size=8, shuffle=False) as data_loader:
        processed = 0
        with torch.inference_mode():
            for image, target in data_loader:
                image = image.to("cpu", non_blocking=True)
                target = target.to("cpu", non_blocking=True)
                assert model(image).shape == (len(target), 10)
                processed += image.shape[0]
        assert hasattr(data_loader.dataset, "__len__") and len(data_loader.dataset) == processed


def test_timms_prefetch_loader(pack):
    timm_loader = pytest.importorskip("timm.data.loader")
    with small_loader(pack, dtype="uint8", shuffle=False) as loader, small_loader(pack, shuffle=False) as plain:
        prefetched = timm_loader.PrefetchLoader(loader, device=torch.device("cpu"))
        assert len(prefetched) == len(loader) and prefetched.sampler is loader.sampler
        assert len(prefetched.dataset) == 60 and prefetched.batch_sampler is loader.batch_sampler
        mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in ddlp.IMAGENET)
        for (images, labels), (expected, same_labels) in zip(prefetched, plain, strict=True):
            torch.testing.assert_close(images, (expected - mean) / std)
            assert labels.equal(same_labels)


def test_accelerate_takes_a_loader_as_it_is(pack):
    accelerate = pytest.importorskip("accelerate")
    with small_loader(pack) as loader:
        accelerator = accelerate.Accelerator(cpu=True)
        model, prepared = accelerator.prepare(small_model(), loader)
        seen = 0
        for images, labels in prepared:
            accelerator.backward(model(images).sum())
            seen += len(accelerator.gather_for_metrics(labels))
        assert seen == 60


def test_lightning_overfits_the_same_batches(pack):
    lightning = pytest.importorskip("lightning")

    class Classifier(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.seen = small_model(), []

        def training_step(self, batch):
            images, labels = batch
            self.seen.append(labels.tolist())
            return torch.nn.functional.cross_entropy(self.model(images), labels)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    model = Classifier()
    with small_loader(pack, shuffle=False) as loader:
        lightning.Trainer(overfit_batches=2, max_epochs=3, **quiet).fit(model, loader)
    assert model.seen == model.seen[:2] * 3
    with small_loader(pack) as loader, pytest.raises(ValueError, match="ddlp.Loader.*DataLoader"):
        # Lightning turns shuffling off only in loaders of PyTorch: it must not take other batches without a word.
        lightning.Trainer(overfit_batches=2, max_epochs=3, **quiet).fit(Classifier(), loader)


def run_example(name, *arguments, launch=()):
    command = [sys.executable, *launch, EXAMPLES / name, *map(str, arguments)]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


@pytest.mark.parametrize("processes", [1, 2])
def test_torchvisions_recipe_trains(photos, processes):
    pytest.importorskip("torchvision", minversion="0.17")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    small = ["--model", "resnet18", "--epochs", 2, "--warm-up", 1, "--batch-size", 8]
    said = run_example(
        "torchvision_recipe.py", photos, "--val", photos, *small, "--train-size", 32, "--val-size", 32, launch=launch
    )
    assert re.findall(r"epoch (\d): accuracy \d\.\d+, of the averaged weights \d\.\d+", said) == ["0", "1"], said


def test_timms_recipe_trains(photos):
    pytest.importorskip("timm")
    small = ["--model", "resnet18", "--epochs", 2, "--batch-size", 8, "--img-size", 32]
    said = run_example("timm_recipe.py", photos, "--val", photos, *small)
    assert re.findall(r"epoch (\d): loss \d+\.\d+, accuracy \d+\.\d %", said) == ["0", "1"], said
