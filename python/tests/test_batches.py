"""What batches hold: the pixels of `ddlp run`, values by the formula, labels of the dataset; for every strategy."""

import sys
from types import SimpleNamespace

import numpy
import pytest

import ddlp
from conftest import CLASSES, SAMPLES, ddlp_command, digests

ALL_OPERATIONS = """
exif_orientation = true
[[operations]]
random_resized_crop = { size = 96, scale = [0.25, 1.0] }
[[operations]]
random_horizontal_flip = { p = 0.5 }
[[operations]]
gaussian_blur = { kernel_size = 5 }
[[operations]]
random_autocontrast = { p = 0.5 }
[[operations]]
random_invert = { p = 0.5 }
[[operations]]
resize = { size = 80 }
[[operations]]
random_crop = { size = 72, padding = 4 }
[[operations]]
center_crop = { size = 64 }
"""


def pixels(dataset, **options):
    """Returns a loader of the pixels as `ddlp run` prepares them."""
    return ddlp.Loader(dataset, **{"batch_size": 16, "output": "numpy", "dtype": "uint8", "layout": "NHWC", **options})


def of_command(dataset, *options):
    """Returns the two digests of `ddlp run`."""
    said = ddlp_command("run", dataset, "--batch", 16, "--quiet", "--digest", "--drive", "none", *options)
    lines = dict(line.split(" ") for line in said.splitlines() if "digest" in line)
    return lines["digest"], lines["ordered_digest"]


@pytest.mark.parametrize("name", ["imagenet-train", "imagenet-val", "cifar-train", "all.toml"])
def test_pixels_of_every_pipeline_are_those_of_the_command(pack, tmp_path, name):
    if name == "all.toml":
        name = str(tmp_path / name)
        (tmp_path / "all.toml").write_text(ALL_OPERATIONS)
    of_python = digests(pixels(pack, pipeline=name, seed=3))
    assert sorted(of_python.samples) == list(range(SAMPLES))
    assert (of_python.unordered, of_python.ordered) == of_command(pack, "--pipeline", name, "--seed", 3)


def test_a_drive_makes_the_pixels_of_operations_within_operations(pack):
    jitter = ddlp.RandomOrder([ddlp.ColorJitter(0.4, 0.4, 0.4, 0.1), ddlp.RandomPhotometricDistort()])
    pipeline = ddlp.Pipeline(
        [
            ddlp.RandomShortestSize([80, 90]),
            ddlp.RandomChoice([ddlp.CenterCrop(64), ddlp.RandomApply([ddlp.Resize(70), ddlp.RandomCrop(64)], p=1.0)]),
            ddlp.RandomApply([jitter, ddlp.GaussianBlur((5, 9))], p=0.8),
            ddlp.AugMix(),
            ddlp.RandomChoice([ddlp.ElasticTransform(sigma=3), ddlp.GaussianNoise(), ddlp.Jpeg((10, 90))], p=(1, 2, 3)),
            ddlp.RandAugment(interpolation="bilinear", fill=None),
        ]
    )
    options = {"pipeline": pipeline, "seed": 3}
    of_cpu = digests(pixels(pack, strategy="cpu", **options))
    of_drive = digests(pixels(pack, strategy="csd", drives="local", **options))
    assert sorted(of_drive.samples) == list(range(SAMPLES))
    assert of_drive.unordered == of_cpu.unordered


def test_pipelines_can_be_made_of_operations():
    built = ddlp.Pipeline(
        [
            ddlp.RandomResizedCrop(96, scale=(0.25, 1.0)),
            ddlp.RandomHorizontalFlip(0.5),
            ddlp.GaussianBlur(5),
            ddlp.RandomAutocontrast(),
            ddlp.RandomInvert(),
            ddlp.Resize(80),
            ddlp.RandomCrop(72, padding=4),
            ddlp.CenterCrop(64),
        ],
        exif_orientation=True,
    )
    assert built == ddlp.Pipeline.from_toml(ALL_OPERATIONS)
    assert built.size == (64, 64)
    assert ddlp.Pipeline.from_dict(built.to_dict()) == built
    built.to_dict()["operations"].clear()
    assert built == ddlp.Pipeline.from_toml(ALL_OPERATIONS), "a description is a copy"
    for name, recipe in [
        ("imagenet-train", ddlp.imagenet_train()),
        ("imagenet-val", ddlp.imagenet_val()),
        ("cifar-train", ddlp.cifar_train()),
    ]:
        assert ddlp.Pipeline.named(name) == recipe
    assert ddlp.imagenet_train(160).size == (160, 160)


@pytest.mark.parametrize("strategy", ["ordered", "mte", "wrr", "csd", "cpu"])
def test_every_strategy_delivers_the_same_samples_with_a_local_drive(pack, strategy):
    with pixels(pack, strategy=strategy, drives="local") as loader:
        found = digests(loader)
        by_prong = [prong["images"] for prong in loader.stats()["prongs"]]
    expected = of_command(pack)
    assert found.unordered == expected[0]
    if strategy in ("ordered", "csd", "cpu"):
        assert found.ordered == expected[1]
    assert sum(by_prong) == SAMPLES
    if strategy == "csd":
        assert by_prong == [0, SAMPLES], "the drive of the package prepared all images"


def test_a_folder_is_a_dataset_and_labels_are_its_classes(photos):
    classes = sorted(folder.name for folder in photos.iterdir())
    assert len(classes) == CLASSES
    expected = [label for label, name in enumerate(classes) for _ in (photos / name).iterdir()]
    labels = {}
    for batch in pixels(photos):
        assert batch.labels.dtype == numpy.int64 and batch.labels.shape == (len(batch.images),)
        labels.update(zip(batch.sample_ids, batch.labels.tolist(), strict=True))
    assert [labels[sample_id] for sample_id in range(SAMPLES)] == expected


def test_floats_follow_the_formula(pack):
    mean, std = ddlp.IMAGENET
    for before, normal, half, unit in zip(
        pixels(pack),
        pixels(pack, dtype="float32", layout="NCHW", normalize=ddlp.IMAGENET),
        pixels(pack, dtype="float16", normalize=ddlp.IMAGENET),
        pixels(pack, dtype="float32"),
        strict=True,
    ):
        exact = (before.images / 255.0 - numpy.array(mean)) / numpy.array(std)
        assert normal.images.dtype == numpy.float32
        assert numpy.array_equal(normal.images, exact.transpose(0, 3, 1, 2).astype(numpy.float32))
        assert numpy.array_equal(half.images, exact.astype(numpy.float16))
        assert numpy.array_equal(unit.images, (before.images / 255.0).astype(numpy.float32))


def test_planes_of_pixels_are_a_view(pack):
    for rows, planes in zip(pixels(pack), pixels(pack, layout="NCHW"), strict=True):
        assert planes.images.shape[1] == 3
        assert planes.images.strides[1] == 1, "the channels of a pixel lie together"
        assert numpy.array_equal(planes.images.transpose(0, 2, 3, 1), rows.images)


def test_a_loader_has_what_programs_read_of_a_dataloader(pack):
    with pixels(pack, last="drop") as loader:
        read = (loader.batch_size, loader.drop_last, loader.num_workers, loader.pin_memory)
    assert read == (16, True, 0, False)
    with pixels(pack) as loader:
        assert not loader.drop_last


def test_the_last_batch_is_short_dropped_or_padded(pack):
    sizes = {last: [len(batch.images) for batch in pixels(pack, last=last)] for last in ("short", "drop", "pad")}
    assert sizes == {"short": [16, 16, 16, 12], "drop": [16, 16, 16], "pad": [16, 16, 16, 16]}


def test_a_batch_unpacks_and_says_where_it_belongs(pack):
    with pixels(pack) as loader:
        batch = next(iter(loader))
    images, labels = batch
    assert images is batch.images and labels is batch.labels and len(batch) == 2
    assert (batch.epoch, batch.index, batch.prong) == (0, 0, 0)
    assert len(batch.sample_ids) == len(images) == 16


def test_ranks_share_every_batch(pack):
    whole = {batch.index: batch.sample_ids for batch in pixels(pack)}
    shares = [{b.index: b.sample_ids for b in pixels(pack, rank=rank, world_size=2)} for rank in range(2)]
    for index, sample_ids in whole.items():
        assert sorted(shares[0][index] + shares[1][index]) == sorted(sample_ids)


def test_every_rank_has_a_sample_of_a_short_last_batch(pack):
    # 60 samples in batches of 29: two samples are left for four ranks.
    shares = [list(pixels(pack, batch_size=29, rank=rank, world_size=4)) for rank in range(4)]
    counts = [[len(batch.sample_ids) for batch in share] for share in shares]
    assert counts == [[7, 7, 1], [7, 7, 1], [7, 7, 1], [8, 8, 1]]
    seen = sorted(sample for share in shares for batch in share for sample in batch.sample_ids)
    assert len(seen) == 62 and set(seen) == set(range(60))


def test_ranks_of_pytorch_come_before_the_environment(pack, monkeypatch):
    class Distributed:
        is_available = is_initialized = staticmethod(lambda: True)
        get_rank, get_world_size = staticmethod(lambda: 1), staticmethod(lambda: 3)

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=Distributed))
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pixels(pack) as loader, pixels(pack, rank=1, world_size=3) as same:
        assert loader.state_dict()["world"] == 3
        assert [batch.sample_ids for batch in loader] == [batch.sample_ids for batch in same]


def test_ranks_come_from_the_environment(pack, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1024")
    loader = pixels(pack)
    assert loader.state_dict()["world"] == 3
    assert loader.report()["threads"] == 1, "the processes of a machine share its cores"


def test_corrupt_samples_follow_the_policy(photos, tmp_path):
    folder = tmp_path / "photos" / "only"
    folder.mkdir(parents=True)
    images = sorted(photos.rglob("*.jpg"))[:8]
    for number, image in enumerate(images):
        (folder / f"{number}.jpg").write_bytes(b"no image" if number == 3 else image.read_bytes())
    skipped = digests(pixels(tmp_path / "photos", policy="skip"))
    assert sorted(skipped.samples) == [0, 1, 2, 4, 5, 6, 7]
    with pixels(tmp_path / "photos", policy="replace", max_corrupt=1) as replacing:
        assert sorted(digests(replacing).samples) == list(range(8))
        assert [sample["sample_id"] for sample in replacing.report()["corrupt"]] == [3]
    marks = {"n": numpy.arange(8), "label": numpy.arange(8)}
    for options in [{}, {"fields": marks}]:
        with pixels(tmp_path / "photos", policy="replace", shuffle=False, **options) as replacing:
            for batch in replacing:
                assert batch.sample_ids == [0, 1, 2, 4, 4, 5, 6, 7]
                assert batch.requested_ids == list(range(8))
                if options:
                    assert batch["n"].tolist() == batch["label"].tolist() == batch.sample_ids
    with pytest.raises(ddlp.CorruptError, match='3.jpg.*policy="skip"'):
        list(pixels(tmp_path / "photos"))
    with pytest.raises(ddlp.CorruptError, match="max_corrupt"):
        list(pixels(tmp_path / "photos", policy="skip", max_corrupt="0%"))
    (folder / "3.jpg").write_bytes(images[3].read_bytes()[:3000])
    with pytest.raises(ddlp.CorruptError, match="the file ends before its image does"):
        list(pixels(tmp_path / "photos"))


@pytest.mark.parametrize("policy", ["fail", "skip", "replace"])
def test_an_image_smaller_than_its_crop_is_not_corrupt(photos, policy):
    crop = ddlp.Compose([ddlp.RandomCrop(5000)])
    with pytest.raises(ddlp.ConfigurationError, match=r"jpg.*a crop of 5000x5000 does not fit into an image of \d+x"):
        list(pixels(photos, pipeline=crop, policy=policy))


def test_a_loader_takes_a_compose_that_was_read(pack):
    named = ddlp.Compose.named("imagenet-val")
    assert digests(pixels(pack, pipeline=named)).ordered == digests(pixels(pack, pipeline="imagenet-val")).ordered


def test_options_may_be_numbers_of_numpy(pack):
    with pixels(pack, batch_size=numpy.int64(20), seed=numpy.uint8(3), drive_timeout_s=numpy.float32(5)) as loader:
        assert [len(batch.images) for batch in loader] == [20, 20, 20]
