"""torchvision's transforms as pipelines."""

import inspect
import math

import numpy
import pytest

import ddlp

pytest.importorskip("torchvision")
import torch  # noqa: E402
from torchvision import transforms as v1  # noqa: E402

try:
    from torchvision.transforms import v2
except ImportError:
    # torchvision before 0.15.
    v2 = None
needs_v2 = pytest.mark.skipif(v2 is None, reason="needs torchvision.transforms.v2")
BOTH = pytest.mark.parametrize("t", [pytest.param(v1, id="v1"), pytest.param(v2, id="v2", marks=needs_v2)])
T = v2 or v1


@BOTH
def test_supported_transforms_keep_their_parameters(t):
    composed = ddlp.Compose(
        [
            t.Compose([t.RandomResizedCrop(96, scale=(0.25, 1.0)), t.RandomHorizontalFlip(0.25)]),
            t.GaussianBlur(5, sigma=(0.5, 1.0)),
            t.GaussianBlur((3, 7)),
            t.RandomAutocontrast(0.75),
            t.RandomInvert(1.0),
            t.RandomVerticalFlip(0.25),
            t.RandomPosterize(4, p=0.75),
            t.ColorJitter(0.5, (0.5, 2), hue=0.25),
            t.RandomGrayscale(0.25),
            t.RandomSolarize(192.5, 0.25),
            t.Resize(80),
            t.RandomCrop(72, padding=4),
            t.CenterCrop((64, 64)),
            t.PILToTensor(),
            t.ConvertImageDtype(torch.float32),
            t.Normalize(*ddlp.IMAGENET),
        ]
    )
    expected = ddlp.Pipeline(
        [
            ddlp.RandomResizedCrop(96, scale=(0.25, 1.0)),
            ddlp.RandomHorizontalFlip(0.25),
            ddlp.GaussianBlur(5, sigma=(0.5, 1.0)),
            ddlp.GaussianBlur((3, 7)),
            ddlp.RandomAutocontrast(0.75),
            ddlp.RandomInvert(1.0),
            ddlp.RandomVerticalFlip(0.25),
            ddlp.RandomPosterize(4, p=0.75),
            ddlp.ColorJitter(0.5, (0.5, 2.0), hue=0.25),
            ddlp.RandomGrayscale(0.25),
            ddlp.RandomSolarize(192.5, 0.25),
            ddlp.Resize(80),
            ddlp.RandomCrop(72, padding=4),
            ddlp.CenterCrop(64),
        ]
    )
    assert composed == expected
    assert [tuple(values) for values in composed.normalize] == list(ddlp.IMAGENET)


@BOTH
def test_policies_and_changes_of_values_keep_their_parameters(t):
    composed = ddlp.Compose(
        [
            t.CenterCrop(64),
            t.RandomEqualize(0.25),
            t.RandomAdjustSharpness(1.5, p=0.75),
            t.Grayscale(3),
            t.RandAugment(3, magnitude=5, fill=[1, 2, 3]),
            t.TrivialAugmentWide(interpolation=t.InterpolationMode.BILINEAR),
            t.AutoAugment(t.AutoAugmentPolicy.SVHN),
            t.PILToTensor(),
            t.ConvertImageDtype(torch.float32),
        ]
    )
    expected = ddlp.Pipeline(
        [
            ddlp.CenterCrop(64),
            ddlp.RandomEqualize(0.25),
            ddlp.RandomAdjustSharpness(1.5, p=0.75),
            ddlp.Grayscale(3),
            ddlp.RandAugment(3, magnitude=5, fill=(1, 2, 3)),
            ddlp.TrivialAugmentWide(interpolation="bilinear", fill=None),
            ddlp.AutoAugment("svhn"),
        ]
    )
    assert composed == expected


@BOTH
def test_transforms_that_move_pixels_are_translated(t):
    nearest, bilinear = t.InterpolationMode.NEAREST, t.InterpolationMode.BILINEAR
    composed = ddlp.Compose(
        [
            t.RandomRotation(10, expand=True),
            t.RandomAffine(5, translate=(0.25, 0.5), shear=3, interpolation=bilinear, fill=7),
            t.RandomPerspective(0.25),
            t.Pad((1, 2), fill=(3, 4, 5)),
            t.Resize((70, 90), interpolation=nearest),
            t.Resize((71, 91), interpolation=t.InterpolationMode.LANCZOS),
            t.RandomResizedCrop((41, 51), interpolation=t.InterpolationMode.BICUBIC),
            t.RandomResizedCrop((40, 50)),
            t.Resize(30, max_size=64),
            t.RandomCrop((64, 72), padding=(1, 2), pad_if_needed=True, padding_mode="reflect"),
            t.RandomCrop((60, 64), padding=(1, 2, 3, 4)),
            t.CenterCrop((32, 48)),
        ]
    )
    expected = ddlp.Pipeline(
        [
            ddlp.RandomRotation(10, expand=True),
            ddlp.RandomAffine(5, translate=(0.25, 0.5), shear=3, interpolation="bilinear", fill=7),
            ddlp.RandomPerspective(0.25),
            ddlp.Pad((1, 2), fill=(3, 4, 5)),
            ddlp.Resize((70, 90), interpolation="nearest"),
            ddlp.Resize((71, 91), interpolation="lanczos"),
            ddlp.RandomResizedCrop((41, 51), interpolation="bicubic"),
            ddlp.RandomResizedCrop((40, 50)),
            ddlp.Resize(30, max_size=64),
            ddlp.RandomCrop((64, 72), padding=(1, 2), pad_if_needed=True, padding_mode="reflect"),
            ddlp.RandomCrop((60, 64), padding=(1, 2, 3, 4)),
            ddlp.CenterCrop((32, 48)),
        ]
    )
    assert composed == expected
    assert composed.size == (32, 48)


@BOTH
@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda t: t.Lambda(abs), "transform 1, Lambda.*on the loader's batches"),
        (lambda t: t.Grayscale(), "num_output_channels is 1"),
        (lambda t: t.FiveCrop(16), "transform 1, FiveCrop.*several images of one"),
        (lambda t: t.RandomErasing(value=300), "300"),
        (lambda t: t.RandAugment(interpolation=t.InterpolationMode.LANCZOS), "interpolation is"),
        (lambda t: abs, "neither torchvision's nor timm's"),
        pytest.param(lambda t: v2.ToDtype(torch.float32), "scale=True", marks=needs_v2),
    ],
)
def test_other_transforms_are_named(t, make, part):
    with pytest.raises(ddlp.ConfigurationError, match=part):
        ddlp.Compose([t.RandomHorizontalFlip(), make(t), t.CenterCrop(32)])


@BOTH
def test_what_depends_on_the_range_of_values_comes_before_floats(t):
    for floats in [t.ToTensor(), t.ConvertImageDtype(torch.float32)]:
        for late in [t.RandomSolarize(0.5), t.RandomPosterize(4)]:
            with pytest.raises(ddlp.ConfigurationError, match="transform 2.*put it before"):
                ddlp.Compose([t.CenterCrop(32), floats, late])


@BOTH
@pytest.mark.parametrize(
    ("value", "before", "floats", "normalized"),
    [
        (0, (0, 0, 0), (0, 0, 0), (124, 116, 104)),
        (1, (1, 1, 1), (255, 255, 255), (182, 173, 161)),
        ((0, 1, 0.5), (0, 1, 0), (0, 255, 128), (124, 173, 132)),
        ("random", "random", "random", "random"),
    ],
)
def test_a_box_is_erased_with_the_colour_that_torchvision_gives_it(t, value, before, floats, normalized):
    erase, crop, to_floats = t.RandomErasing(0.25, (0.1, 0.2), (0.5, 2.0), value), t.CenterCrop(32), t.ToTensor()
    for transforms, expected in [
        ([t.PILToTensor(), erase, crop], before),
        ([crop, to_floats, erase], floats),
        ([crop, to_floats, t.Normalize(*ddlp.IMAGENET), erase], normalized),
    ]:
        erased = next(one for one in ddlp.Compose(transforms).to_dict()["operations"] if "random_erasing" in one)
        expected = {"p": 0.25, "scale": [0.1, 0.2], "ratio": [0.5, 2.0], "value": expected}
        assert ddlp.Pipeline([ddlp.RandomErasing(**expected), ddlp.CenterCrop(32)]).to_dict()["operations"][0] == erased


@BOTH
def test_torchvisions_own_compose_may_be_given(t):
    transforms = [t.RandomHorizontalFlip(), t.CenterCrop(32), t.ToTensor(), t.Normalize(*ddlp.IMAGENET)]
    given, listed = ddlp.Compose(t.Compose(transforms)), ddlp.Compose(transforms)
    assert given == listed and given.normalize == listed.normalize


@BOTH
def test_operations_take_torchvisions_enumerations(t):
    given = ddlp.RandomRotation(30, interpolation=t.InterpolationMode.BILINEAR, fill=torch.tensor([1, 2, 3]))
    same = ddlp.RandomRotation(30, interpolation="bilinear", fill=(1, 2, 3))
    assert ddlp.Pipeline([given, ddlp.CenterCrop(32)]) == ddlp.Pipeline([same, ddlp.CenterCrop(32)])
    lanczos = ddlp.RandomRotation(30, interpolation=t.InterpolationMode.LANCZOS)
    with pytest.raises(ddlp.ConfigurationError, match='`interpolation` is "lanczos", but must be one of `nearest`'):
        ddlp.Pipeline([lanczos, ddlp.CenterCrop(32)])


def test_one_value_of_normalize_is_that_of_all_channels():
    floats = v2.ToDtype(torch.float32, scale=True) if v2 else v1.ConvertImageDtype(torch.float32)
    composed = ddlp.Compose([T.CenterCrop(32), floats, T.Normalize([0.5], [0.25])])
    assert composed.normalize == ([0.5] * 3, [0.25] * 3)


def test_nothing_comes_after_normalize():
    with pytest.raises(ddlp.ConfigurationError, match="comes after Normalize, which only RandomErasing"):
        ddlp.Compose([v1.CenterCrop(32), v1.Normalize(*ddlp.IMAGENET), v1.RandomHorizontalFlip()])


@BOTH
@pytest.mark.parametrize("backend", ["pil", "tensor"])
@pytest.mark.parametrize("policy", [None, "ra", "ta_wide", "augmix", "imagenet"])
@pytest.mark.parametrize("erase", [0.0, 0.1])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_torchvisions_training_presets_are_taken(t, backend, policy, erase, interpolation):
    mode = v1.InterpolationMode(interpolation)
    to_tensor = [t.PILToTensor()]
    transforms = to_tensor if backend == "tensor" else []
    # torchvision before 0.15 has no such parameter.
    antialias = {"antialias": True} if "antialias" in inspect.signature(t.RandomResizedCrop).parameters else {}
    transforms = [*transforms, t.RandomResizedCrop(176, interpolation=mode, **antialias), t.RandomHorizontalFlip()]
    expected = [ddlp.RandomResizedCrop(176, interpolation=interpolation), ddlp.RandomHorizontalFlip()]
    fill = None if interpolation == "bilinear" else 0
    if policy == "ra":
        transforms.append(t.RandAugment(interpolation=mode, magnitude=9))
        expected.append(ddlp.RandAugment(interpolation=interpolation, fill=fill))
    elif policy == "ta_wide":
        transforms.append(t.TrivialAugmentWide(interpolation=mode))
        expected.append(ddlp.TrivialAugmentWide(interpolation=interpolation, fill=fill))
    elif policy == "augmix":
        transforms.append(t.AugMix(interpolation=mode, severity=3))
        expected.append(ddlp.AugMix(3, interpolation=interpolation))
    elif policy is not None:
        transforms.append(t.AutoAugment(t.AutoAugmentPolicy(policy), interpolation=mode))
        expected.append(ddlp.AutoAugment(policy, interpolation=interpolation, fill=fill))
    if backend == "pil":
        transforms += to_tensor
    is_v2 = t is v2
    transforms.append(t.ToDtype(torch.float, scale=True) if is_v2 else t.ConvertImageDtype(torch.float))
    transforms.append(t.Normalize(*ddlp.IMAGENET))
    if erase:
        transforms.append(t.RandomErasing(p=erase))
        expected.append(ddlp.RandomErasing(erase, value=(124, 116, 104)))
    if is_v2:
        transforms.append(t.ToPureTensor())
    composed = ddlp.Compose(t.Compose(transforms))
    assert composed == ddlp.Pipeline(expected)
    assert [tuple(values) for values in composed.normalize] == list(ddlp.IMAGENET)


@BOTH
def test_transforms_within_transforms_are_translated(t):
    within = t.Compose([t.RandomHorizontalFlip(0.25), t.RandomInvert()])
    transforms = [
        t.RandomApply([t.ColorJitter(0.4, 0.4), within], p=0.8),
        t.RandomChoice([t.RandomGrayscale(1.0), within, ddlp.RandomSolarize(128, 1.0)]),
        t.RandomChoice([t.RandomGrayscale(1.0), t.RandomInvert()], p=[1, 3]),
        t.RandomOrder([t.RandomVerticalFlip(), t.RandomApply(torch.nn.ModuleList([t.RandomInvert()]))]),
        t.CenterCrop(32),
    ]
    flip, invert = ddlp.RandomHorizontalFlip(0.25), ddlp.RandomInvert()
    expected = [
        ddlp.RandomApply([ddlp.ColorJitter(0.4, 0.4), flip, invert], p=0.8),
        ddlp.RandomChoice(
            [ddlp.RandomGrayscale(1.0), ddlp.RandomApply((flip, invert), 1.0), ddlp.RandomSolarize(128, 1.0)]
        ),
        ddlp.RandomChoice([ddlp.RandomGrayscale(1.0), invert], p=(0.25, 0.75) if t is v2 else (1, 3)),
        ddlp.RandomOrder([ddlp.RandomVerticalFlip(), ddlp.RandomApply([invert])]),
        ddlp.CenterCrop(32),
    ]
    assert ddlp.Compose(transforms) == ddlp.Pipeline(expected)


@BOTH
@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda t: t.RandomApply([t.RandomInvert(), t.Lambda(abs)]), "transform 1 .RandomApply., Lambda"),
        (
            lambda t: t.RandomChoice([t.RandomOrder([t.Lambda(abs)])]),
            "transform 1 .RandomChoice. .RandomOrder., Lambda",
        ),
        (lambda t: t.RandomApply([t.ConvertImageDtype(torch.float32)]), "put that outside"),
        (lambda t: t.RandomApply([t.Normalize(*ddlp.IMAGENET)]), "put that outside"),
    ],
)
def test_other_transforms_within_transforms_are_named(t, make, part):
    with pytest.raises(ddlp.ConfigurationError, match=part):
        ddlp.Compose([t.RandomHorizontalFlip(), make(t), t.CenterCrop(32)])


@needs_v2
def test_transforms_of_v2_alone_are_translated():
    composed = ddlp.Compose(
        [
            v2.ScaleJitter((120, 80), (0.5, 1.5), interpolation="bicubic"),
            v2.RandomShortestSize([40, 50], max_size=90),
            v2.RandomShortestSize(60, interpolation=v2.InterpolationMode.NEAREST),
            v2.RandomPhotometricDistort(contrast=(0.75, 1.25), p=0.25),
            v2.ElasticTransform(30.0, [3.0, 4.0], fill=7),
            v2.GaussianNoise(0.1, 0.2, clip=False),
            v2.JPEG((30, 90)),
            v2.JPEG(50),
            v2.CenterCrop(32),
        ]
    )
    expected = [
        ddlp.ScaleJitter((120, 80), (0.5, 1.5), "bicubic"),
        ddlp.RandomShortestSize((40, 50), 90),
        ddlp.RandomShortestSize(60, interpolation="nearest"),
        ddlp.RandomPhotometricDistort(contrast=(0.75, 1.25), p=0.25),
        ddlp.ElasticTransform(30.0, (3.0, 4.0), fill=7),
        ddlp.GaussianNoise(0.1, 0.2, clip=False),
        ddlp.Jpeg((30, 90)),
        ddlp.Jpeg(50),
        ddlp.CenterCrop(32),
    ]
    assert composed == ddlp.Pipeline(expected)
    floats = v2.ToDtype(torch.float32, scale=True)
    with pytest.raises(ddlp.ConfigurationError, match="transform 1, GaussianNoise.*or clip"):
        ddlp.Compose([floats, v2.GaussianNoise(clip=False), v2.CenterCrop(32)])


def test_an_identity_may_be_chosen():
    pytest.importorskip("torchvision.transforms.v2")
    composed = ddlp.Compose([v2.RandomChoice([v2.Identity(), v2.RandomInvert(1.0)]), v2.CenterCrop(32)])
    choice = ddlp.RandomChoice([ddlp.RandomHorizontalFlip(0.0), ddlp.RandomInvert(1.0)])
    assert composed == ddlp.Pipeline([choice, ddlp.CenterCrop(32)])


def test_operations_within_operations_are_checked():
    crop = ddlp.CenterCrop(32)
    for within, error, part in [
        ([ddlp.Resize(-1)], ddlp.ConfigurationError, "operation 0, random_apply: transform 0, resize: `size` is -1"),
        ([ddlp.Resize(0)], ddlp.ConfigurationError, "operation 0, random_apply: transform 0, resize: size 0 is not"),
        ([ddlp.RandomInvert(math.nan)], ddlp.ConfigurationError, "transform 0, random_invert: `p` is nan"),
        ([3], TypeError, "3 is not an operation"),
        (ddlp.RandomInvert(), TypeError, "must be a list of operations"),
    ]:
        with pytest.raises(error, match=part):
            ddlp.Pipeline([ddlp.RandomApply(within), crop])
    nested = ddlp.RandomInvert()
    for _ in range(5):
        nested = ddlp.RandomApply([nested])
    with pytest.raises(ddlp.ConfigurationError, match="more than 4 levels"):
        ddlp.Pipeline([nested, crop])


@BOTH
def test_torchvisions_evaluation_preset_is_taken(t):
    is_v2 = t is v2
    mode = t.InterpolationMode.BICUBIC
    transforms = [
        *([t.ToImage()] if is_v2 else [t.PILToTensor()]),
        t.Resize(232, interpolation=mode, antialias=True),
        t.CenterCrop(224),
        t.ToDtype(torch.float, scale=True) if is_v2 else t.ConvertImageDtype(torch.float),
        t.Normalize(*ddlp.IMAGENET),
        *([t.ToPureTensor()] if is_v2 else []),
    ]
    expected = ddlp.Pipeline([ddlp.Resize(232, interpolation="bicubic"), ddlp.CenterCrop(224)])
    assert ddlp.Compose(t.Compose(transforms)) == expected


def test_the_preset_of_a_models_weights_is_taken():
    models = pytest.importorskip("torchvision.models")
    preset = models.ResNet50_Weights.IMAGENET1K_V2.transforms()
    composed = ddlp.Compose(preset)
    assert composed == ddlp.Pipeline([ddlp.Resize(232), ddlp.CenterCrop(224)])
    assert [tuple(values) for values in composed.normalize] == list(ddlp.IMAGENET)


# The data configurations of well-known models: input size, crop_pct, interpolation, and timm's options for training.
TIMM = [
    ("resnet50.a1_in1k", 224, 0.95, "bicubic", {"auto_augment": "rand-m7-mstd0.5-inc1"}),
    ("resnet50.tv_in1k", 224, 0.875, "bilinear", {}),
    ("vit_base_patch16_224.augreg_in1k", 224, 0.9, "bicubic", {"auto_augment": "rand-m9-mstd0.5-inc1"}),
    ("deit_small_patch16_224.fb_in1k", 224, 0.9, "bicubic", {"auto_augment": "rand-m9-mstd0.5-inc1", "re_prob": 0.25}),
    ("swin_tiny_patch4_window7_224.ms_in1k", 224, 0.9, "bicubic", {"auto_augment": "rand-m9-mstd0.5-inc1"}),
    ("convnext_tiny.fb_in1k", 288, 0.95, "bicubic", {"auto_augment": "rand-m9-mstd0.5-inc1"}),
    ("efficientnet_b0.ra_in1k", 224, 0.875, "bicubic", {"auto_augment": "rand-m9-mstd0.5"}),
    ("mobilenetv3_large_100.ra_in1k", 224, 0.875, "bicubic", {"auto_augment": "rand-m9-mstd0.5", "re_prob": 0.2}),
    ("regnety_032.ra_in1k", 288, 1.0, "bicubic", {"color_jitter": 0.4}),
    ("beit_base_patch16_224.in22k", 224, 0.9, "bicubic", {"color_jitter": 0.4, "vflip": 0.5}),
]


@pytest.mark.parametrize(("name", "size", "crop_pct", "interpolation", "options"), TIMM, ids=[row[0] for row in TIMM])
def test_timms_transforms_are_taken(name, size, crop_pct, interpolation, options):
    create_transform = pytest.importorskip("timm.data").create_transform
    shape = (3, size, size)
    evaluation = ddlp.Compose(create_transform(shape, crop_pct=crop_pct, interpolation=interpolation))
    short = math.floor(size / crop_pct)
    assert evaluation == ddlp.Pipeline([ddlp.Resize(short, interpolation=interpolation), ddlp.CenterCrop(size)])
    # timm's script trains with "random" unless it is told otherwise.
    training = create_transform(shape, is_training=True, interpolation="random", **options)
    operations = ddlp.Compose(training).to_dict()["operations"]
    assert operations[0]["random_resized_crop"]["interpolation"] == "random"
    policy = options.get("auto_augment")
    if policy is not None:
        found = next(one["timm_rand_augment"] for one in operations if "timm_rand_augment" in one)
        assert found["magnitude"] == float(policy.split("-")[1][1:]) and found["magnitude_std"] == 0.5
        assert found["increasing"] == ("inc1" in policy) and found["interpolation"] is None
        assert found["fill"] == [124, 116, 104]
    assert any("random_vertical_flip" in one for one in operations) == ("vflip" in options)
    fixed = ddlp.Compose(create_transform(shape, is_training=True, interpolation=interpolation, **options))
    assert fixed.to_dict()["operations"][0]["random_resized_crop"]["interpolation"] == interpolation


def test_timms_3_augment_is_taken():
    create_transform = pytest.importorskip("timm.data").create_transform
    training = create_transform((3, 224, 224), is_training=True, auto_augment="3a", color_jitter=0.3)
    operations = ddlp.Compose(training).to_dict()["operations"]
    expected = ddlp.RandomChoice(
        [ddlp.RandomSolarize(128, 1.0), ddlp.RandomGrayscale(1.0), ddlp.GaussianBlur(17, (0.1, 2.0))]
    )
    jitter = ddlp.ColorJitter(0.3, 0.3, 0.3)
    assert operations[2:] == ddlp.Pipeline([expected, jitter, ddlp.CenterCrop(1)]).to_dict()["operations"][:2]
    other = create_transform((3, 224, 224), is_training=True, auto_augment="v0")
    with pytest.raises(ddlp.ConfigurationError, match="only 3-Augment"):
        ddlp.Compose(other)


@BOTH
def test_the_fill_of_float_images_is_from_0_to_1(t):
    to_float = [t.PILToTensor(), t.ConvertImageDtype(torch.float32)]
    composed = ddlp.Compose([t.CenterCrop(60), *to_float, t.RandomCrop(60, padding=5, fill=1)])
    assert composed == ddlp.Pipeline([ddlp.CenterCrop(60), ddlp.RandomCrop(60, padding=5, fill=(255, 255, 255))])
    composed = ddlp.Compose([t.CenterCrop(60), *to_float, t.RandomRotation(9, fill=[1.0, 0, 0.2])])
    assert composed == ddlp.Pipeline([ddlp.CenterCrop(60), ddlp.RandomRotation(9, fill=(255, 0, 51))])
    with pytest.raises(ddlp.ConfigurationError, match="its fill is 0.5, but must be whole numbers from 0 to 255"):
        ddlp.Compose([t.CenterCrop(60), t.RandomRotation(9, fill=0.5)])


def test_a_loader_takes_a_transform_as_its_pipeline(pack):
    transform = T.Compose([T.CenterCrop(48), T.PILToTensor()])
    with ddlp.Loader(pack, batch_size=8, pipeline=transform) as loader:
        assert next(iter(loader))[0].shape == (8, 3, 48, 48)


def test_a_loader_normalises_as_composed(pack):
    mean, std = ddlp.IMAGENET
    options = {"batch_size": 16, "output": "numpy"}
    recipe = ddlp.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor(), T.Normalize(mean, std)])
    composed = ddlp.Loader(pack, pipeline=recipe, **options)
    expected = ddlp.Loader(pack, pipeline=ddlp.imagenet_val(), normalize=ddlp.IMAGENET, **options)
    assert all(numpy.array_equal(a.images, b.images) for a, b in zip(composed, expected, strict=True))
    with pytest.raises(ddlp.ConfigurationError, match="both"):
        ddlp.Loader(pack, pipeline=recipe, normalize=ddlp.IMAGENET)
