"""Datasets of torchvision, parts of datasets by PyTorch, lists and tables of paths, and decoded images."""

import pickle
import shutil

import numpy
import pytest

import ddlp
from conftest import SAMPLES

torch = pytest.importorskip("torch", reason="needs PyTorch")
torchvision = pytest.importorskip("torchvision", reason="needs torchvision")
datasets, transforms = torchvision.datasets, torchvision.transforms
Image = pytest.importorskip("PIL.Image", reason="needs Pillow")

WHOLE = ddlp.Pipeline([ddlp.CenterCrop(32)])
TRANSFORM = transforms.Compose(
    [
        transforms.RandomResizedCrop(48),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(*ddlp.IMAGENET),
    ]
)


def loader(dataset, **options):
    return ddlp.Loader(dataset, **{"batch_size": 8, "shuffle": False, "epochs": 1, "output": "numpy", **options})


def rows(dataset, **options):
    """Returns the images of an epoch and their labels."""
    with loader(dataset, **options) as batches:
        content = [(batch.images.copy(), batch.labels.copy()) for batch in batches]
        return [numpy.concatenate(field) for field in zip(*content, strict=True)]


def assert_same(one, other):
    for a, b in zip(one, other, strict=True):
        numpy.testing.assert_array_equal(a, b)


def random_images(count, *shape):
    return numpy.random.default_rng(3).integers(0, 256, (count, *shape), dtype=numpy.uint8)


def cifar(count, **attributes):
    """CIFAR-10 of torchvision, without its files."""
    dataset = datasets.CIFAR10.__new__(datasets.CIFAR10)
    dataset.data, dataset.targets = random_images(count, 32, 32, 3), [at % 3 for at in range(count)]
    dataset.classes = ["plane", "car", "bird"]
    dataset.transform = dataset.target_transform = dataset.transforms = None
    vars(dataset).update(attributes)
    return dataset


def test_an_image_folder_of_torchvision_is_read_as_the_folder(photos):
    folder = datasets.ImageFolder(str(photos), TRANSFORM)
    expected = rows(photos, pipeline=ddlp.Compose(TRANSFORM), shuffle=True, seed=5)
    assert_same(rows(folder, shuffle=True, seed=5), expected)
    with loader(folder) as batches:
        assert batches.classes == folder.classes and batches.class_to_idx == folder.class_to_idx
        assert list(batches.dataset.samples) == folder.samples and batches.dataset.targets.tolist() == folder.targets
        copy = pickle.loads(pickle.dumps(batches))
    with copy:
        assert len(copy) == 8
    # The pipeline that the program gives takes the place of the transform.
    assert_same(rows(folder, pipeline=ddlp.imagenet_val(64)), rows(photos, pipeline=ddlp.imagenet_val(64)))


def test_parts_of_a_dataset_are_those_of_pytorch(photos):
    folder = datasets.ImageFolder(str(photos))
    images, labels = rows(photos, pipeline=ddlp.imagenet_val(64))
    train, val = torch.utils.data.random_split(folder, [45, 15], torch.Generator().manual_seed(1))
    for part, indices in [
        (train, train.indices),
        (torch.utils.data.Subset(val, range(0, 15, 2)), val.indices[::2]),
        (torch.utils.data.ConcatDataset([val, train]), [*val.indices, *train.indices]),
    ]:
        found = rows(part, pipeline=ddlp.imagenet_val(64))
        assert_same(found, (images[indices], labels[indices]))
        assert [folder[index][1] for index in indices] == found[1].tolist()


def test_a_state_knows_files_by_content(photos, tmp_path):
    files = tmp_path / "files"
    shutil.copytree(photos, files)
    with loader(datasets.ImageFolder(str(files))) as batches:
        state = batches.state_dict()
    with loader(datasets.ImageFolder(str(files))) as again:
        again.load_state_dict(state)
    next(files.rglob("*.jpg")).write_bytes(b"another")
    with loader(datasets.ImageFolder(str(files))) as changed:
        with pytest.raises(ddlp.ConfigurationError, match="another dataset"):
            changed.load_state_dict(state)


def test_decoded_images_are_not_decoded():
    dataset = cifar(20)
    expected = dataset.data, numpy.array(dataset.targets)
    as_is = {"pipeline": WHOLE, "dtype": "uint8", "layout": "NHWC"}
    assert_same(rows(dataset, **as_is), expected)
    items = [(Image.fromarray(image), label) for image, label in zip(*expected, strict=True)]
    assert_same(rows(items, **as_is), expected)
    assert_same(rows(list(zip(*expected, strict=True)), **as_is), expected)
    tensors = [(torch.from_numpy(image).permute(2, 0, 1), label) for image, label in zip(*expected, strict=True)]
    assert_same(rows(tensors, **as_is), expected)
    chosen = torch.utils.data.Subset(dataset, [3, 17, 4])
    assert_same(rows(chosen, **as_is), [field[[3, 17, 4]] for field in expected])
    both = torch.utils.data.ConcatDataset([chosen, dataset])
    assert_same(rows(both, **as_is), [numpy.concatenate([field[[3, 17, 4]], field]) for field in expected])
    with loader(dataset, **as_is) as batches:
        assert batches.classes == dataset.classes
        state = batches.state_dict()
    dataset.data[7] += 1
    with loader(dataset, **as_is) as changed:
        with pytest.raises(ddlp.ConfigurationError, match="another dataset"):
            changed.load_state_dict(state)


def test_gray_images_become_rgb():
    gray = random_images(9, 28, 28)
    mnist = datasets.MNIST.__new__(datasets.MNIST)
    mnist.data, mnist.targets = torch.from_numpy(gray), torch.arange(9)
    mnist.transform = mnist.target_transform = None
    as_is = {"pipeline": ddlp.Pipeline([ddlp.CenterCrop(28)]), "dtype": "uint8", "layout": "NHWC"}
    expected = gray[..., None].repeat(3, axis=3), numpy.arange(9)
    assert_same(rows(mnist, **as_is), expected)
    assert_same(rows([(image, label) for label, image in enumerate(gray)], **as_is), expected)
    palette = [(Image.fromarray(image).convert("P"), label) for label, image in enumerate(gray)]
    assert_same(rows(palette, **as_is), expected)


def test_a_dataset_that_makes_its_images_is_asked_for_each_without_its_transform():
    fake = datasets.FakeData(12, (3, 32, 32), 5, transforms.Compose([transforms.CenterCrop(32), transforms.ToTensor()]))
    images, labels = rows(fake, layout="NHWC")
    assert images.shape == (12, 32, 32, 3) and labels.tolist() == [fake[at][1] for at in range(12)]
    numpy.testing.assert_array_equal(images[5], fake[5][0].permute(1, 2, 0).numpy())
    part = torch.utils.data.Subset(fake, [4, 2])
    assert_same(rows(part, layout="NHWC"), (images[[4, 2]], labels[[4, 2]]))
    assert fake.transform is not None, "the program's object stays as it is"


def test_of_the_rows_of_qmnist_the_class_is_the_label():
    def qmnist(compat):
        dataset = datasets.QMNIST.__new__(datasets.QMNIST)
        dataset.data, dataset.targets = torch.zeros((6, 28, 28), dtype=torch.uint8), torch.arange(48).reshape(6, 8)
        dataset.transform = dataset.target_transform = None
        dataset.compat = compat
        return dataset

    assert ddlp.Dataset(qmnist(True)).targets.tolist() == [qmnist(True)[at][1] for at in range(6)] == [*range(0, 48, 8)]
    with pytest.raises(ddlp.ConfigurationError, match=r"item 0 .*QMNIST, is \[0, 1, .*`target_transform` can make one"):
        ddlp.Dataset(qmnist(False))


def test_images_without_labels_need_a_target_transform():
    stl10 = datasets.STL10.__new__(datasets.STL10)
    stl10.data, stl10.labels = random_images(6, 3, 96, 96), numpy.full(6, -1)
    stl10.transform = stl10.target_transform = None
    with pytest.raises(ddlp.ConfigurationError, match="STL10, is -1, .*by target_transform=lambda label: 0 of"):
        ddlp.Dataset(stl10)
    stl10.target_transform = lambda label: 0
    images, labels = rows(stl10, pipeline=ddlp.Pipeline([ddlp.CenterCrop(96)]), dtype="uint8")
    numpy.testing.assert_array_equal(images, stl10.data)
    assert labels.tolist() == [0] * 6


def test_labels_are_those_after_the_target_transform(photos):
    folder = datasets.ImageFolder(str(photos), target_transform=lambda label: label // 2)
    assert rows(folder)[1].tolist() == [label // 2 for label in folder.targets]
    dataset = cifar(6, target_transform=lambda label: 2 - label)
    assert rows(dataset, pipeline=WHOLE)[1].tolist() == [2, 1, 0, 2, 1, 0]
    with pytest.raises(ddlp.ConfigurationError, match="the label of item 0 .* is 'a', but must be a whole number"):
        loader(datasets.ImageFolder(str(photos), target_transform=lambda label: "a"))


def test_targets_are_the_labels_that_batches_have(photos):
    folder = datasets.ImageFolder(str(photos), target_transform=lambda label: label // 2)
    moved = datasets.ImageFolder(str(photos))
    moved.samples = [(path, (label + 1) % 3) for path, label in moved.samples]

    def read(path):
        return Image.open(path).convert("RGB")

    own = datasets.ImageFolder(str(photos), loader=read, target_transform=lambda label: label // 2)
    for dataset in (folder, moved, own, cifar(20, target_transform=lambda label: 2 - label)):
        labels = rows(dataset, pipeline=WHOLE)[1].tolist()
        assert ddlp.Dataset(dataset).targets.tolist() == labels
        parts = ddlp.split(dataset, (0.5, 0.5), by="class")
        for label in set(labels):
            counts = [sum(labels[index] == label for index in part) for part in parts]
            assert abs(counts[0] - counts[1]) <= 1, (label, counts)


def test_a_program_that_draws_random_numbers_beside_fake_data_keeps_them():
    fake = datasets.FakeData(40, (3, 32, 32), 5)
    torch.manual_seed(3)
    expected = torch.rand(5).tolist()
    torch.manual_seed(3)
    with loader(fake, pipeline=WHOLE) as batches:
        assert [torch.rand(1).item() for _ in batches] == expected


def test_images_of_one_size_need_no_crop():
    normalize = transforms.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    dataset = cifar(10, transform=transforms.Compose([transforms.ToTensor(), normalize]))
    images, _ = rows(dataset, dtype="float32")
    numpy.testing.assert_allclose(images, dataset.data.transpose(0, 3, 1, 2) / 255 * 4 - 2, atol=1e-5)
    dataset.transform = transforms.Compose([transforms.Resize(48), transforms.ToTensor()])
    assert rows(dataset)[0].shape == (10, 3, 48, 48)


def test_a_table_without_labels_is_refused_if_another_column_may_be_them(photos):
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    files = [str(file) for file in sorted(photos.rglob("*.jpg"))]
    table = pandas.DataFrame({"path": files, "target": [3] * SAMPLES})
    with pytest.raises(ddlp.ConfigurationError, match="no column `label` .its columns are path, target.: rename"):
        loader(table)
    assert rows(table[["path"]])[1].tolist() == [0] * SAMPLES


def test_numbers_in_text_are_numbers_as_in_a_list_of_files(photos):
    files = [str(file) for file in sorted(photos.rglob("*.jpg"))]
    labels = [str(at % 12) for at in range(SAMPLES)]
    assert rows(list(zip(files, labels, strict=True)))[1].tolist() == [at % 12 for at in range(SAMPLES)]


def test_parts_of_an_object_are_told_apart(photos):
    def read(path):
        return Image.open(path).convert("RGB")

    own = datasets.ImageFolder(str(photos), loader=read)
    one, other = (torch.utils.data.Subset(own, indices) for indices in ([1, 20, 30, 9], [1, 20, 30, 10]))
    with loader(one, batch_size=2) as batches:
        next(iter(batches))
        state = batches.state_dict()
    with loader(other, batch_size=2) as batches, pytest.raises(ddlp.ConfigurationError, match="dataset"):
        batches.load_state_dict(state)


def test_images_of_segmentation_come_alone(photos, tmp_path):
    root = tmp_path / "VOCdevkit/VOC2012"
    for name in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (root / name).mkdir(parents=True)
    files = sorted(photos.rglob("*.jpg"))[:4]
    for number, file in enumerate(files):
        shutil.copy(file, root / f"JPEGImages/{number}.jpg")
        Image.new("L", (4, 4)).save(root / f"SegmentationClass/{number}.png")
    (root / "ImageSets/Segmentation/train.txt").write_text("".join(f"{number}\n" for number in range(4)))
    voc = datasets.VOCSegmentation(str(tmp_path), image_set="train")
    images, labels = rows(voc, pipeline=ddlp.imagenet_val(64))
    expected, _ = rows([(file, 0) for file in files], pipeline=ddlp.imagenet_val(64))
    assert_same((images, labels), (expected, [0] * 4))


@pytest.mark.parametrize("library", ["list", "pandas", "polars"])
def test_paths_and_labels_are_a_dataset(photos, library):
    files = sorted(photos.rglob("*.jpg"))
    names = [file.parent.name for file in files]
    if library == "list":
        of_names = list(zip(files, names, strict=True))
        of_numbers = [(str(file), numpy.int64(7)) for file in files]
    else:
        frames = pytest.importorskip(library, reason=f"needs {library}")
        of_names = frames.DataFrame({"path": [str(file) for file in files], "label": names})
        of_numbers = frames.DataFrame({"path": [str(file) for file in files], "label": [7] * SAMPLES})
    expected = rows(photos, pipeline=ddlp.imagenet_val(64))
    assert_same(rows(of_names, pipeline=ddlp.imagenet_val(64)), expected)
    assert rows(of_numbers)[1].tolist() == [7] * SAMPLES
    with loader(of_names) as batches:
        assert batches.classes == sorted(set(names))


def test_a_mix_takes_objects_of_torchvision(photos):
    folder = datasets.ImageFolder(str(photos), TRANSFORM)
    images, _ = rows(ddlp.Mix([folder, folder]))
    assert images.shape == (2 * SAMPLES, 3, 48, 48)
    with pytest.raises(ddlp.ConfigurationError, match="the datasets have different transforms: give the loader"):
        loader(ddlp.Mix([folder, photos]))
    # The text of AutoAugment leaves out its interpolation.
    modes = (transforms.InterpolationMode.NEAREST, transforms.InterpolationMode.BILINEAR)
    augmented = [
        datasets.ImageFolder(
            str(photos), transforms.Compose([transforms.CenterCrop(48), transforms.AutoAugment(interpolation=mode)])
        )
        for mode in modes
    ]
    with pytest.raises(ddlp.ConfigurationError, match="the datasets have different transforms: give the loader"):
        loader(ddlp.Mix(augmented))
    loader(ddlp.Mix([folder, photos]), pipeline=ddlp.imagenet_val(64)).close()


def test_pack_takes_objects(photos, tmp_path):
    ddlp.pack(datasets.ImageFolder(str(photos)), tmp_path / "folder.ddlp", progress=False)
    assert_same(rows(tmp_path / "folder.ddlp"), rows(photos))
    dataset = cifar(20)
    ddlp.pack(torch.utils.data.Subset(dataset, [3, 1]), tmp_path / "cifar.ddlp", progress=False)
    as_is = {"pipeline": WHOLE, "dtype": "uint8", "layout": "NHWC"}
    assert_same(rows(tmp_path / "cifar.ddlp", **as_is), (dataset.data[[3, 1]], [0, 1]))


def test_an_object_that_cannot_be_used_says_why(photos):
    own = datasets.ImageFolder(str(photos), transforms.Compose([transforms.Lambda(lambda image: image)]))
    with pytest.raises(
        ddlp.ConfigurationError, match="a transform of its own.*Lambda.*takes the place of the transform"
    ):
        loader(own)

    def pil_loader(path):
        return Image.open(path).convert("L")

    gray = datasets.ImageFolder(str(photos), loader=pil_loader)
    images, _ = rows(gray, pipeline=ddlp.imagenet_val(64))
    numpy.testing.assert_array_equal(images[:, 0], images[:, 2], "the program's own function reads the files")

    class Changed(datasets.ImageFolder):
        def __getitem__(self, index):
            image, label = super().__getitem__(index)
            return transforms.functional.to_tensor(image), label

    with pytest.raises(ddlp.UnavailableError, match="item 0 .* is .a torch.Tensor of shape .*before its transform"):
        loader(Changed(str(photos)))
    for samples, said in [
        ([("a.jpg", "cat"), ("b.jpg", 1)], "the label 1 of the list is 1, and the first one is 'cat'"),
        ([("a.jpg", 0), ("b.jpg", 1.5)], "the label of item 1 of the dataset.* is 1.5"),
        ([("a.jpg", 0), (b"b", 1)], "item 1 of the list is .*, but must be a path and a label"),
        (torch.utils.data.Subset(cifar(3), []), "is empty"),
    ]:
        with pytest.raises(ddlp.ConfigurationError, match=said):
            loader(samples)
    with pytest.raises(ddlp.UnavailableError, match="missing.jpg"):
        rows([(photos / "missing.jpg", 0)])
