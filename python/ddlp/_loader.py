"""The loader: epochs, positions and options on top of a native run."""

from __future__ import annotations

import atexit
import functools
import json
import logging
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, SupportsFloat, SupportsIndex, cast

from . import _ddlp
from ._arrow import ArrowTable, samples_of
from ._classes import names_of
from ._device import gpu_of
from ._drives import Drive, cores_of, described
from ._errors import ConfigurationError, UsageError
from ._fields import ArrowStream, fields_of, path_of, table_of
from ._headspace import Headspace
from ._headspace import whole as whole_step
from ._instead import refuses_other_loaders
from ._mix import Mix, absolute
from ._output import OUTPUTS, Output, missing_library
from ._per_sample import PerSample, checked
from ._phases import EPOCHS_MAX, Phase, Pipelines, moved, phase_at, phases_of, pipelines_of, whole
from ._pipeline import imagenet_train, plain
from ._report import Report

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of ImageNet's channels, for the option `normalize`."""

_LOOKS = 2
"""Looks at the same batch in a row after which the loader warns."""

_LOG = logging.getLogger("ddlp")


class Samples(Protocol):
    """A dataset that is an object of the program: item `i` is a pair of the bytes of an image file and a label.

    Threads of the loader ask for items, several at a time, each item once per epoch. An attribute `classes` of the
    object, if there is one, names the classes. Item `i` must always be the same pair: another label ends the run. A
    state of a loader identifies the object by its type, length and first item.
    """

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> tuple[Any, SupportsIndex]: ...


class _Fields(NamedTuple):
    images: Any
    """The images, in the array type that the option `output` names."""
    labels: Any
    """The labels: int64, or float32 with a number for each class if they are mixed."""


class Batch(_Fields):
    """A batch: a pair of images and labels, with its epoch, number, prong and sample ids.

    Some libraries copy a batch by `type(batch)(*batch)`. A copy made in this way has None in place of the attributes.
    """

    epoch: int | None = None
    """Epoch, from 0."""
    index: int | None = None  # type: ignore[assignment]
    """Number within the epoch, from 0."""
    prong: int | None = None
    """Prong that prepared the batch: 0 is the CPU, 1 the first drive."""
    sample_ids: list[int] | None = None
    """Sample id of each image, and of its label and other fields."""
    requested_ids: list[int] | None = None
    """Sample id that the epoch's order has for each image: another one than in `sample_ids` where policy="replace" has
    replaced a corrupt sample."""
    sizes: list[tuple[int, int]] | None = None
    """Height and width of each image on its canvas, if the pipeline ends with PadTo."""

    def _replace(self, **fields: Any) -> Batch:
        replaced = super()._replace(**fields)
        replaced.__dict__.update(self.__dict__)
        return replaced


class NamedBatch(dict[str, Any]):
    """A batch of a loader with the option `names` or `fields`: a dict of its arrays, with the attributes of Batch."""

    epoch: int | None = None
    index: int | None = None
    prong: int | None = None
    sample_ids: list[int] | None = None
    requested_ids: list[int] | None = None
    sizes: list[tuple[int, int]] | None = None


class Loader:
    """Delivers the batches of a dataset, prepared by the CPU and by drives.

    Each iteration is one epoch, and yields pairs of images and labels. Only ``next(iter(loader))``, a look at a batch,
    costs no epoch::

        loader = ddlp.Loader("train.ddlp", batch_size=256, normalize=ddlp.IMAGENET)
        for epoch in range(3):
            for images, labels in loader:
                ...

    Images lie in the loader's own buffers: no copy is made. A buffer returns to the loader when the batch and all views
    of it are gone, so a program that keeps batches slows the loader down. `list(loader)` keeps all of them: copy what
    you keep. On a GPU (`device`), batches have their own memory, and may be kept.

    Args:
        dataset: Path of a pack, an image folder, CIFAR-10's binary files, tar shards or a list of files (.csv); the
            address of a drive that holds a pack; an object whose items are pairs of the bytes of an image file and a
            label, or a table in Arrow memory (ArrowTable, a table of pyarrow or polars, a dataset of Hugging Face),
            which the CPU alone prepares. A ddlp.Mix, or a file (.toml) that describes one, has several of these.
        pipeline: What is done to every sample: a Pipeline, a Compose of torchvision's transforms, the name of a
            built-in pipeline, or a TOML file. A list has a pipeline for each bucket: each makes images of another size,
            and a batch has images of one size. A sample belongs to the pipeline whose images have the nearest aspect
            ratio; among several of these, to the one with the largest images that have no more pixels than the sample.
            A dict maps an epoch to what applies from that epoch on, such as
            ``{0: ddlp.imagenet_train(128), 30: ddlp.imagenet_train(224)}``.
        batch_size: Samples of a global batch, of all ranks together.
        strategy: Order of delivery: "ordered", "mte", "wrr"; "cpu" for the CPU alone, "csd" for drives alone.
        drives: "local" (a drive that the loader starts on this machine), "auto" (the drive that the kernel is connected
            to), an address, or a list of drives; an empty list is a run without drives. Default: the drive that holds
            the dataset, if `dataset` is the address of one; otherwise none.
        threads: Threads of the CPU. Default: the usable cores divided by LOCAL_WORLD_SIZE; half of them with a local
            drive.
        seed: Seed of the order and of all random choices.
        shuffle: Whether each epoch is a new permutation. Otherwise samples come in the order of the dataset, as for
            validation.
        epochs: Number of epochs. Default: no limit.
        rank: Number of this process in distributed training. Default: that of torch.distributed if it is initialised,
            else RANK, else 0.
        world_size: Number of processes. Default: as for `rank`, from WORLD_SIZE, else 1.
        last: Treatment of an epoch's last batch if samples do not fill it: "short", "drop" or "pad". With several
            ranks, a rank's share of a short batch may have no sample.
        policy: Treatment of corrupt samples: "fail", "skip" or "replace".
        max_corrupt: Corrupt samples of an epoch that "skip" and "replace" tolerate: a number, or a share such as "1%".
            Default: 16 or 1 %, whichever is larger.
        output: Kind of arrays: "torch", "numpy", or "dlpack" for ddlp.Array, which any library with DLPack takes over.
        device: Where batches lie: "cpu", or an NVIDIA GPU: "cuda:N", or "cuda" for PyTorch's current device (with the
            output "dlpack", the device whose number is in LOCAL_RANK, else the first). A batch then travels as bytes
            while the step before runs, and is an ordinary tensor on the current stream.
        dtype: Type of the images' elements: "float32", "float16", "bfloat16" or "uint8".
        layout: Order of the images' dimensions: "NCHW" or "NHWC". uint8 lies in memory as NHWC; under "NCHW" it is a
            view with strides, as floats are under "channels_last".
        normalize: Mean and standard deviation of the three channels, such as ddlp.IMAGENET: values are
            (v / 255 - mean) / std. Default: floats from 0 to 1.
        mixup: Alpha of the distribution Beta(alpha, alpha) of the weights by which images and labels are mixed in
            pairs, as by torchvision's MixUp. Labels are then float32, one number for each class. If `cutmix` is set
            too, each batch gets one of the two, with equal probability. 0 turns MixUp off.
        cutmix: Alpha of the distribution of the share that an image keeps when a rectangle of another one
            covers it, as by torchvision's CutMix. 0 turns CutMix off.
        mix_probability: Probability with which a batch is mixed, by MixUp or CutMix.
        classes: Names of all classes; a label is an index into them. They number the classes of the dataset and of
            labels in `fields`, so that a class has the same label in every dataset, also in one that lacks some of the
            classes, such as a list of files for validation. A class that is not among them is an error. Or the number
            of classes of mixed labels. Default: each dataset numbers its own.
        fields: More fields of each sample: a mapping of names to arrays, whose item `i` belongs to sample `i` of the
            dataset (of int64, float32, float16 or uint8, of any shape); a table of pyarrow, polars or pandas, whose
            first column names the sample and whose other columns are fields; or the path of a file: such a table as
            comma-separated values or Parquet (.parquet), a text (.txt) with the label of each sample in a line, or tar
            shards with numbers in .json members. Batches are then dicts. A field named "label" takes the place of the
            dataset's labels.
        per_sample: A function that changes the image of each sample, after the pipeline and before normalisation:
            ``per_sample(image, seed)`` gets an array of NumPy (uint8, height x width x 3) and a whole number, and
            returns an image of the same shape and type. A function that makes its random choices from `seed` alone,
            such as by ``numpy.random.default_rng(seed)``, makes the same images in every run. The threads of the CPU
            call it, one at a time; drives cannot call it, so there must be none. An operation of the pipeline is much
            faster.
        ragged: Whether the images of a batch come as a list, each a view in its own size. Needs a pipeline that ends
            with PadTo, which puts images of different sizes on canvases of one size. Without `ragged`, the images are
            one array of whole canvases, and `batch.sizes` says how large each image is there.
        names: Names of images and labels, such as ("image", "label"): batches are then dicts with these keys.
        buffers: Batches for which the loader has memory: those that are prepared ahead and those that you keep.
        window: Look-ahead of the strategy "ordered", in batches.
        epoch_samples: Samples of an epoch: the dataset is repeated or cut to this number. From a ddlp.Mix, each epoch
            takes this many samples, from where the epoch before stopped. Default: as many as the dataset has.
        cores: Cores that the loader's threads may use. Default: any core.
        drive_depth: Batches that one drive has in work at a time.
        drive_timeout_s: Seconds that a drive may take for a batch before it counts as lost.
        drive_optional: Whether a run may begin without its drives at tcp:// addresses.
        host_nqn: NQN by which this machine is known to drives at tcp:// addresses. Default: that of /etc/nvme/hostnqn,
            else one that DDLP makes once and keeps.
        stall_after_s: Seconds without a batch after which the report says what the loader waits for.
        metrics: Address, such as "127.0.0.1:9464", at which Prometheus can read the figures of the run over HTTP.

    Raises:
        ConfigurationError: The options do not fit each other or the dataset.
        UnavailableError: The dataset cannot be opened.
        DriveError: A drive cannot be used.
        DeviceError: The GPU cannot be used.
    """

    @refuses_other_loaders
    def __init__(
        self,
        dataset: str | os.PathLike[str] | Samples | ArrowTable | Mix,
        *,
        pipeline: Pipelines | Mapping[int, Pipelines] = imagenet_train(224),  # noqa: B008 (it is immutable)
        batch_size: int = 256,
        strategy: Literal["ordered", "mte", "wrr", "cpu", "csd"] = "ordered",
        drives: None | Drive | Sequence[Drive] = None,
        threads: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        epochs: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        last: Literal["short", "drop", "pad"] = "short",
        policy: Literal["fail", "skip", "replace"] = "fail",
        max_corrupt: int | str | None = None,
        output: Literal["torch", "numpy", "dlpack"] = "torch",
        device: str = "cpu",
        dtype: Literal["float32", "float16", "bfloat16", "uint8"] = "float32",
        layout: Literal["NCHW", "NHWC", "channels_last"] = "NCHW",
        normalize: tuple[Sequence[float], Sequence[float]] | None = None,
        mixup: float = 0.0,
        cutmix: float = 0.0,
        mix_probability: float = 1.0,
        classes: int | Sequence[str] | None = None,
        fields: Mapping[str, Any] | ArrowStream | str | os.PathLike[str] | None = None,
        per_sample: PerSample | None = None,
        ragged: bool = False,
        names: tuple[str, str] | None = None,
        buffers: int = 6,
        window: int | None = None,
        epoch_samples: int | None = None,
        cores: Sequence[int] = (),
        drive_depth: int = 2,
        drive_timeout_s: float = 30.0,
        drive_optional: bool = False,
        host_nqn: str | None = None,
        stall_after_s: float = 10.0,
        metrics: str | None = None,
    ) -> None:
        # The arguments from which a copy of this loader is made, in another process too.
        self._arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        if names is not None and not _are_two_names(names):
            raise ConfigurationError(f"names is {names!r}, but must be two names, one of images and one of labels")
        self._names = names if names is not None or fields is None else ("image", "label")
        if isinstance(fields, (str, os.PathLike)):
            self._arguments["fields"] = fields = os.path.abspath(fields)
        self._fields: Mapping[str, Any] = fields if isinstance(fields, Mapping) else {}
        self._table = table_of(fields)
        if not isinstance(dtype, str):
            raise ConfigurationError(f'dtype is {dtype!r}, but must be the name of a type, such as "float32"')
        if not isinstance(output, str) or output not in OUTPUTS:
            raise ConfigurationError(f"output is {output!r}, but must be one of {', '.join(OUTPUTS)}")
        missing = missing_library(output)
        if missing is not None:
            raise ConfigurationError(
                f"output is {output!r}, but the package {missing} is not installed: pip install {missing}, or choose "
                "another output"
            )
        if output == "numpy" and dtype == "bfloat16":
            raise ConfigurationError('NumPy has no bfloat16: choose another dtype, or the output "torch" or "dlpack"')
        self._output: Output = OUTPUTS[output]
        self._epochs = epochs
        pipelines = self._arguments["pipeline"] = pipelines_of(pipeline)
        self._phases = phases_of(pipelines, normalize, epochs)
        self._cut = None if not ragged else _cut_of(layout, output, self._phases)
        if names is not None and "size" in names and any(phase.has_canvas for phase in self._phases):
            raise ConfigurationError(
                f'names is {names!r}, but "size" is the name of the sizes that images have on the canvases of PadTo: '
                "choose another one"
            )
        class_names = names_of(classes)
        if class_names is not None:
            self._arguments["classes"] = class_names
        rank, world_size = _ranks(rank, world_size)
        self._per_sample = checked(per_sample)
        self._samples: Any = None
        self._mix: Any = None
        self._columns: dict[str, Any] | None = None
        if isinstance(dataset, (str, os.PathLike)):
            # A copy may open the dataset in another folder.
            self._arguments["dataset"] = absolute(dataset)
        elif isinstance(dataset, Mix):
            if drives:
                raise ConfigurationError(
                    "a drive opens its dataset itself, and cannot open a ddlp.Mix: describe the mix in a file (.toml), "
                    "and give the path of that file"
                )
            self._mix = (dataset._members(), dataset.weights)
        elif dataset is None:
            raise ConfigurationError(
                "dataset is None, but must be a path, an object with samples, a table or a ddlp.Mix"
            )
        else:
            self._samples, self._columns = samples_of(dataset)
            if drives:
                raise ConfigurationError(
                    "drives read the samples themselves, and cannot ask a Python object for them: pack it "
                    "(ddlp.pack), and give the pack's path"
                )
        options = {
            "dataset": self._arguments["dataset"] if isinstance(dataset, (str, os.PathLike)) else None,
            "fields": path_of(fields),
            "batch_size": batch_size,
            "strategy": strategy,
            "drives": described(drives),
            "threads": threads,
            "seed": seed,
            "shuffle": shuffle,
            "rank": rank,
            "world_size": world_size,
            "last": last,
            "policy": policy,
            "dtype": dtype,
            "layout": layout,
            "mixup": mixup,
            "cutmix": cutmix,
            "mix_probability": mix_probability,
            "classes": classes if class_names is None else None,
            "class_names": class_names or [],
            "buffers": buffers,
            "window": window,
            "epoch_samples": epoch_samples,
            "cores": cores_of(cores),
            "local_world_size": _processes_here(),
            "drive_depth": drive_depth,
            "drive_timeout_s": drive_timeout_s,
            "drive_optional": drive_optional,
            "host_nqn": host_nqn,
            "stall_after_s": stall_after_s,
            "metrics": metrics,
        }
        if max_corrupt is not None:
            options["max_corrupt"] = str(max_corrupt)
        self._options = options
        # The run of the first phase checks its own options.
        for phase in self._phases[1:]:
            _ddlp.check_options(_written({**options, **phase.options()}))
        # The position from which the run begins.
        self._resume: dict[str, Any] | None = None
        # Whether any batch was delivered.
        self._has_begun = False
        # The state at the beginning of the latest iteration.
        self._iterated_from: dict[str, Any] = {}
        # How many iterations in a row, before the latest one, were looks at its first batch.
        self._looks = 0
        self._is_closed = False
        self._run: _ddlp.Run | None = None
        # Whether the run was closed for another one, which then could not be opened.
        self._has_lost_run = False
        # The phase of the run.
        self._phase: Phase = self._phases[0]
        self._gpu = gpu_of(device, output, rank)
        self._open()
        for name in self._latest().fields:
            if self._names is not None and name in self._names:
                self.close()
                raise ConfigurationError(f"a field is named {name!r} like the images or labels: change `names`")

    # -- iteration ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        """Begins an epoch, or goes on with the one in which a state was taken.

        A look at a batch, such as ``next(iter(loader))``, costs no epoch: after an iteration that got only one batch,
        begins where that iteration began. After an iteration that got more and was left early, by `break` for example,
        begins the next epoch.

        Raises ConfigurationError when all epochs have been delivered.
        """
        self._running()
        now = self.state_dict()
        state = self._next_start(now)
        if self._epochs is not None and state["epoch"] >= self._epochs:
            raise ConfigurationError(
                f"all {self._epochs} epochs of this loader have been delivered, or left after two batches or more: "
                "give it more `epochs`, leave the option out, or choose an epoch by set_epoch"
            )
        self._looks = self._looks + 1 if state is self._iterated_from else 0
        if self._looks == _LOOKS:
            warnings.warn(
                f"the last {_LOOKS} iterations got one batch each, and it was the same one: next(iter(loader)) is a "
                "look at the first batch, after which the epoch begins again. For another batch each time, keep the "
                "iterator: `batches = iter(loader)`, then `next(batches)`",
                stacklevel=2,
            )
        if state is not now or phase_at(self._phases, state["epoch"]) is not self._phase:
            self._go_to(state)
        self._iterated_from = state
        return self._running().iterate(self._wrapped)

    def __len__(self) -> int:
        """Returns the number of batches of an epoch."""
        return self._running().batches_per_epoch

    @property
    def samples(self) -> int:
        """Number of samples of the dataset."""
        return self._latest().samples

    @property
    def classes(self) -> list[str]:
        """Names of the dataset's classes; a label is an index into them."""
        return self._latest().classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The label of each class, by its name."""
        return {name: label for label, name in enumerate(self.classes)}

    @property
    def epoch(self) -> int:
        """The epoch that is being delivered, or that the next iteration delivers if no batch of it came yet."""
        return int(self.state_dict()["epoch"])

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration deliver this epoch from its beginning. Discards batches that were prepared ahead.

        Changes nothing if the next iteration would deliver this epoch anyway, such as the rest of it after
        `load_state_dict`.
        """
        self._running()
        epoch, epochs = whole("epoch", epoch), EPOCHS_MAX if self._epochs is None else self._epochs
        if epoch < 0:
            raise ConfigurationError(f"epoch is {epoch}, but epochs count from 0")
        if epoch >= epochs:
            raise ConfigurationError(f"epoch is {epoch}, but this loader has {epochs} epochs, from 0 on")
        now = self.state_dict()
        state = self._next_start(now)
        if epoch != state["epoch"]:
            state = {**now, "epoch": epoch, "delivered": []}
        if state is not now:
            self._go_to(state)

    # -- position -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Returns the position after the batch that was delivered last, as plain data.

        A loader that loads a state from the middle of an epoch resumes there. A state taken after the last batch of an
        epoch leads to the next epoch.
        """
        state: dict[str, Any] = json.loads(self._latest().state())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration go on from a state, with the same batches as if nothing had interrupted it. A loader
        that was closed opens again.

        Raises ConfigurationError if the state is of a run with another dataset, seed, batch size or pipeline.
        """
        was_closed, self._is_closed = self._is_closed, False
        try:
            if not isinstance(state, Mapping):
                raise ConfigurationError(f"this is not a state of state_dict(), but {type(state).__qualname__}")
            state = dict(state)
            if not isinstance(state.get("epoch"), int):
                raise ConfigurationError("this is not a state of state_dict(): it lacks the number of an epoch")
            self._go_to(state)
        except BaseException:
            self._is_closed = was_closed or self._is_closed
            raise

    def _go_to(self, state: dict[str, Any]) -> None:
        """Moves the run. Opens another one if the run has ended or the state is of another phase. After an error, the
        position is the one before."""
        run = self._run
        if run is None or run.is_forked or not self._has_moved(run, state):
            if run is not None:
                # The next run may need the memory, the drives and the address of this one.
                self._has_lost_run = True
                run.close()
            before, self._resume = self._resume, state
            try:
                self._open()
            except BaseException:
                self._resume = before
                raise
        self._resume, self._iterated_from, self._has_lost_run = state, {}, False

    def _has_moved(self, run: _ddlp.Run, state: dict[str, Any]) -> bool:
        """Moves a run to a state; returns False if only another run can go there. Refuses a state that none has."""
        if phase_at(self._phases, state["epoch"]) is not self._phase:
            run.check(self._fitted(run, {**state, "delivered": []}))
            return False
        return run.go_to(self._fitted(run, state))

    def _fitted(self, run: _ddlp.Run, state: dict[str, Any]) -> str:
        """Returns a state as a run of its phase reads it."""
        if len(self._phases) > 1:
            state = moved(state, json.loads(run.state()), self._phases)
        return json.dumps(state, default=plain)

    def _next_start(self, now: dict[str, Any]) -> dict[str, Any]:
        """Returns the state from which the next iteration begins, if `now` is the loader's state."""
        began = self._iterated_from
        if began.get("epoch") != now["epoch"]:
            # The epoch of the latest iteration is over, or there was no iteration yet.
            return now
        got = len(now["delivered"]) - len(began["delivered"])
        if got == 0:
            return now
        return began if got == 1 else {**now, "epoch": now["epoch"] + 1, "delivered": []}

    # -- figures ------------------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Returns the progress so far: images, seconds, and what each prong has done.

        Any thread may call this at any time.
        """
        return self._latest().progress()

    def report(self) -> Report:
        """Returns all figures since this loader began, or since its pipeline last changed, as `ddlp run --json` writes
        them."""
        return Report(json.loads(self._latest().report()))

    def headspace(self, step: Callable[[Batch], object], seconds: float = 10.0) -> Headspace:
        """Measures what training would gain if loading were free, which stage bounds it, and what to change:
        `print(loader.headspace(train_step))` says it in words.

        Runs steps with delivered batches and with copies in memory, alternately. Takes about `seconds`, longer if
        steps or batches are slow, since it runs at least forty steps. The loader then goes on at the position where it
        was, so the batches that `step` got come again; `report()` counts them. `step` must return when its work is
        done; the loader itself waits for PyTorch's work on CUDA.

        Raises ConfigurationError if fewer than six batches are left.
        """
        if not callable(step):
            raise ConfigurationError(f"step is {step!r}, but must be a function of a batch")
        if not isinstance(seconds, SupportsFloat) or not 0 < float(seconds) <= 86_400:
            raise ConfigurationError(f"seconds is {seconds!r}, but must be a number above 0, and at most a day")
        self._running()
        state = self.state_dict()
        if phase_at(self._phases, state["epoch"]) is not self._phase:
            self._go_to(state)
        return Headspace(json.loads(self._running().headspace(whole_step(step), self._wrapped, float(seconds))))

    # -- life ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the loader's threads and its local drives. Batches that you still hold stay valid. Position and figures
        can still be read."""
        self._is_closed = True
        if self._run is not None:
            self._run.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        if self._has_begun:
            raise UsageError(
                "this loader has delivered batches, so it cannot be pickled: pickle it before its first iteration, or "
                "pickle its state_dict()"
            )
        return {"arguments": self._arguments, "resume": self._resume}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["arguments"])  # type: ignore[misc]
        if state["resume"] is not None:
            self.load_state_dict(state["resume"])

    def __repr__(self) -> str:
        return f"ddlp.Loader({self._arguments['dataset']!r}, batch_size={self._options['batch_size']})"

    def _open(self) -> None:
        _ddlp.set_log_level(min(_LOG.getEffectiveLevel(), 255))
        resume = self._resume
        phase = phase_at(self._phases, 0 if resume is None else resume.get("epoch", 0))
        # With several pipelines, `_has_moved` first adapts the state to the run.
        is_fit = len(self._phases) == 1
        options = {**self._options, **phase.options(), "resume": resume if is_fit else None}
        beside = fields_of(self._fields), self._table
        device = None if self._gpu is None else self._gpu.device
        run = _ddlp.Run(_written(options), self._samples, self._columns, beside, self._mix, self._per_sample, device)
        if resume is not None and not is_fit:
            try:
                run.go_to(self._fitted(run, resume))
            except BaseException:
                run.close()
                raise
        self._run, self._phase = run, phase
        _LOADERS.add(self)
        if self._is_closed:
            # Another thread has closed the loader meanwhile, before it had this run.
            self._run.close()

    def _running(self) -> _ddlp.Run:
        """Returns the run, and begins one if there is none."""
        if self._is_closed:
            raise UsageError("the loader is closed: make a new one")
        if self._has_lost_run:
            began = self._iterated_from
            self._go_to(self.state_dict())
            self._iterated_from = began
        return self._latest()

    def _latest(self) -> _ddlp.Run:
        """Returns the run, which may be closed, and begins one if there is none."""
        if self._run is not None and self._run.is_forked:
            if self._has_begun:
                raise UsageError(
                    "this loader began in another process, and its threads did not come along when that process was "
                    "forked: make the loader in this process, or start processes by the method 'spawn'"
                )
            self._run = None
        if self._run is None:
            self._open()
        assert self._run is not None
        return self._run

    def _wrapped(self, batch: _ddlp.Batch) -> Batch:
        if self._gpu is None:
            arrays = batch.images, batch.labels, *(array for _, array in batch.others)
            delivered_fields = [self._output(array) for array in arrays]
        else:
            delivered_fields = self._gpu.fields(batch)
        images, labels, *others = delivered_fields
        sizes = batch.sizes if self._phase.has_canvas else None
        if self._cut is not None and sizes is not None:
            images = [self._cut(image, *size) for image, size in zip(images, sizes, strict=True)]
        fields = images, labels
        # With names, a program expects dicts.
        named = None if self._names is None else NamedBatch(zip(self._names, fields, strict=True))
        if named is not None:
            named.update(zip((name for name, _ in batch.others), others, strict=True))
        delivered: Batch = Batch(*fields) if named is None else cast(Batch, named)
        delivered.epoch, delivered.index, delivered.prong = batch.epoch, batch.index, batch.prong
        delivered.sample_ids, delivered.requested_ids, delivered.sizes = batch.sample_ids, batch.requested_ids, sizes
        self._has_begun = True
        return delivered


def _cut_of(layout: str, output: str, phases: list[Phase]) -> Callable[[Any, int, int], Any]:
    """Returns the function that cuts an image out of its canvas."""
    if not all(phase.has_canvas for phase in phases):
        raise ConfigurationError(
            "ragged needs a pipeline that ends with PadTo, such as ddlp.Pipeline([ddlp.Resize(256), ddlp.PadTo(512)])"
        )
    if output == "dlpack":
        raise ConfigurationError(
            'ragged cuts images out of their canvases, which a ddlp.Array cannot: choose the output "torch" or '
            '"numpy", or leave ragged out and use batch.sizes'
        )
    if layout == "NHWC":
        return lambda image, height, width: image[:height, :width]
    return lambda image, height, width: image[:, :height, :width]


def _are_two_names(names: Any) -> bool:
    are_names = isinstance(names, Sequence) and all(isinstance(name, str) for name in names)
    return are_names and len(names) == 2 and names[0] != names[1]


def _ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Returns this process's number and the number of processes."""
    if rank is None and world_size is None:
        torch = sys.modules.get("torch")
        distributed = getattr(torch, "distributed", None)
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        if ("RANK" in os.environ) != ("WORLD_SIZE" in os.environ):
            one, no = ("RANK", "WORLD_SIZE") if "RANK" in os.environ else ("WORLD_SIZE", "RANK")
            raise ConfigurationError(f"the environment has {one}, but no {no}: set both, or give rank and world_size")
        return _number("RANK", 0), _number("WORLD_SIZE", 1)
    if rank is None or world_size is None:
        raise ConfigurationError("give both rank and world_size, or neither")
    return rank, world_size


def _processes_here() -> int:
    """Returns the number of processes of this machine that train together."""
    processes = _number("LOCAL_WORLD_SIZE", 1)
    if processes < 1:
        raise ConfigurationError(f"the environment has LOCAL_WORLD_SIZE={processes}, but must have 1 or more")
    return processes


def _number(variable: str, default: int) -> int:
    """Returns the number in a variable of the environment."""
    value = os.environ.get(variable, default)
    try:
        return int(value)
    except ValueError:
        raise ConfigurationError(f"the environment has {variable}={value!r}, which is not a number") from None


def _written(options: dict[str, Any]) -> str:
    """Writes options as JSON, which has no infinite numbers."""
    for name, value in options.items():
        try:
            json.dumps(value, default=plain, allow_nan=False)
        except ValueError:
            must = "must be a finite number" if isinstance(value, float) else "must have finite numbers"
            raise ConfigurationError(f"`{name}` is {value}, but {must}") from None
        except TypeError as error:
            raise TypeError(f"`{name}` is {value!r}, but {error}") from None
    return json.dumps(options, default=plain)


_LOADERS: weakref.WeakSet[Loader] = weakref.WeakSet()


def _shut_all() -> None:
    """Ends all loaders before the interpreter ends, so that their drives end with them."""
    for loader in list(_LOADERS):
        run = loader._run
        if run is not None:
            run.close()
    _ddlp.end_all()
    _ddlp.flush_log()
    # A thread that still opens a dataset must not call `logging` any more.
    _ddlp.set_log_level(255)


atexit.register(_shut_all)
os.register_at_fork(
    before=_ddlp.before_fork,
    after_in_parent=functools.partial(_ddlp.after_fork, False),
    after_in_child=functools.partial(_ddlp.after_fork, True),
)
