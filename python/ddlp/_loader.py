"""The loader: epochs, positions and options on top of a native run."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, SupportsFloat

from . import _ddlp
from ._arrow import ArrowTable
from ._batch import Batch, maker_of
from ._choice import choice_of
from ._classes import names_of
from ._compose import pipeline_of_dataset
from ._dataset import Dataset, of_run, source_and_options
from ._device import gpu_of
from ._drives import Drive
from ._ending import LOADERS
from ._errors import ConfigurationError, UsageError
from ._fields import ArrowStream, fields_of, table_of
from ._headspace import Headspace
from ._headspace import whole as whole_step
from ._instead import refuses_other_loaders
from ._mix import Mix
from ._options import options_of, written
from ._per_sample import PerSample, checked
from ._phases import EPOCHS_MAX, Phase, Pipelines, moved, phase_at, phases_of, pipelines_of, whole
from ._pipeline import plain
from ._position import LatestIteration
from ._report import Report
from ._samples import Samples

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of ImageNet's channels, for the option `normalize`."""

_LOG = logging.getLogger("ddlp")


class Loader:
    """Delivers the batches of a dataset, prepared by the CPU and by drives.

    Each iteration is one epoch, and yields pairs of images and labels. Only a look at a batch, ``next(iter(loader))``
    before the first epoch, costs none::

        loader = ddlp.Loader("train.ddlp", batch_size=256, normalize=ddlp.IMAGENET)
        for epoch in range(3):
            for images, labels in loader:
                ...

    Images lie in the loader's own buffers: no copy is made. A buffer returns to the loader when the batch and all views
    of it are gone, so a program that keeps batches slows the loader down. `list(loader)` keeps all of them: copy what
    you keep. On a GPU (`device`), batches have their own memory, and may be kept.

    Args:
        dataset: Path of a pack, an image folder, CIFAR-10's binary files, tar shards or a list of files (.csv); the
            address of a drive that holds a pack; an object whose items are pairs of an image and a label, such as a
            dataset of torchvision; a list of pairs of path and label; or a table in Arrow memory (ArrowTable, a table
            of pyarrow or polars, a dataset of Hugging Face). The CPU alone prepares objects, lists and tables. A
            ddlp.Mix, or a file (.toml) that describes one, has several of these. A ddlp.Dataset is what it was made of.
        kind: Kind of the dataset, for a folder that could be datasets of two kinds, such as one of tar shards and
            images: "folder", "list", "tar", "cifar", "pack" or "mix". Default: as the path and its contents say.
        pipeline: What is done to every sample: a Pipeline, a Compose of torchvision's transforms, the name of a
            built-in pipeline, or a TOML file. A list has a pipeline for each bucket: each makes images of another size,
            and a batch has images of one size. A sample belongs to the pipeline whose images have the nearest aspect
            ratio; among several of these, to the one with the largest images that have no more pixels than the sample.
            A dict maps an epoch to what applies from that epoch on, such as
            ``{0: ddlp.imagenet_train(128), 30: ddlp.imagenet_train(224)}``. Default: the transform of a dataset of
            torchvision, if it has one, else ``ddlp.imagenet_train(224)``.
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
        indices: The samples of an epoch: a list or array of whole numbers, such as a part of `ddlp.split`. An index
            that occurs several times has random choices of its own each time. Or a function that returns those of an
            epoch, as many for each: ``indices(epoch)``. It must return the same for the same epoch, and may be called
            three epochs ahead. With ``shuffle=False``, samples come in this order. A state knows the indices, and a
            function by those of epoch 0. Default: all samples.
        weights: Draws the samples of an epoch with replacement, as PyTorch's WeightedRandomSampler: a weight for each
            sample of the dataset, or for each class, or "balanced", by which all classes are equally frequent. An epoch
            has `epoch_samples` draws. With `indices`, only those samples are drawn.
        repeats: How many times in succession each sample of an epoch occurs, with random choices of its own each time;
            several ranks take turns at them, as by torchvision's RASampler. An epoch is as long as without `repeats`,
            and so has fewer different samples.
        views: Random versions of each image in its batch. With ``views=2``, the images of a batch are a list of two
            arrays, one of the first versions and one of the second ones; labels, other fields and ids come once.
            `batch_size` counts samples, each once.
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
        dataset: str | os.PathLike[str] | Samples | ArrowTable | Mix | Dataset,
        *,
        kind: str | None = None,
        pipeline: Pipelines | Mapping[int, Pipelines] | None = None,
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
        indices: Sequence[int] | Any | Callable[[int], Any] | None = None,
        weights: Literal["balanced"] | Sequence[float] | Any | None = None,
        repeats: int = 1,
        views: int = 1,
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
        if isinstance(fields, (str, os.PathLike)):
            self._arguments["fields"] = os.path.abspath(fields)
        self._fields: Mapping[str, Any] = fields if isinstance(fields, Mapping) else {}
        self._table = table_of(fields)
        self._epochs = epochs
        self._source, of_dataset = source_and_options(dataset, kind, classes, drives)
        self._arguments |= of_dataset
        own = pipeline_of_dataset(self._source.transform) if pipeline is None else pipeline
        pipelines = self._arguments["pipeline"] = pipelines_of(own)
        self._phases = phases_of(pipelines, normalize, epochs)
        self._choice = choice_of(indices, weights, repeats, views)
        self._maker = maker_of(output, dtype, layout, names, fields is not None, ragged, views, self._phases)
        class_names = names_of(self._arguments["classes"])
        if class_names is not None:
            self._arguments["classes"] = class_names
        self._per_sample = checked(per_sample)
        self._options = options_of(self._arguments, class_names)
        # The run of the first phase checks its own options.
        for phase in self._phases[1:]:
            _ddlp.check_options(written({**self._options, **phase.options()}))
        # The position from which the run begins.
        self._resume: dict[str, Any] | None = None
        # Whether any batch was delivered.
        self._has_begun = False
        self._latest_iteration = LatestIteration()
        self._is_closed = False
        self._run: _ddlp.Run | None = None
        self._dataset: Dataset | None = None
        # Whether the run was closed for another one, which then could not be opened.
        self._has_lost_run = False
        # The phase of the run.
        self._phase: Phase = self._phases[0]
        self._gpu = gpu_of(device, output, self._options["rank"])
        self._open()
        note = self._latest().note_of_classes
        if note is not None:
            # The caller of `__init__`, which has a decorator.
            warnings.warn(note, stacklevel=3)
        for name in self._latest().fields:
            if self._maker.names is not None and name in self._maker.names:
                self.close()
                raise ConfigurationError(f"a field is named {name!r} like the images or labels: change `names`")

    # -- iteration ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        """Begins an epoch, or goes on with the one in which a state was taken.

        After an iteration that was left early, by `break` for example, begins the next epoch. A look at a batch, such
        as ``next(iter(loader))`` before training, costs no epoch: it is the first iteration since the loader was made
        or its position was set (`load_state_dict`, `set_epoch`), if it was asked for no more than one batch. Then the
        next one begins where it began.

        Raises ConfigurationError when all epochs have been delivered.
        """
        self._running()
        now = self._position()
        state = self._latest_iteration.next_start(now, self._latest().asks)
        if self._epochs is not None and state["epoch"] >= self._epochs:
            raise ConfigurationError(
                f"all {self._epochs} epochs of this loader have been delivered, or left early: give it more `epochs`, "
                "leave the option out, or choose an epoch by set_epoch"
            )
        latest = self._latest_iteration
        if state is not now or phase_at(self._phases, state["epoch"]) is not self._phase:
            self._go_to(state)
        latest.begin(state, now)
        self._latest_iteration = latest
        iterator = self._running().iterate(self._wrapped)
        latest.follow(iterator)
        return iterator

    def __len__(self) -> int:
        """Returns the number of batches of an epoch."""
        return self._running().batches_per_epoch

    @property
    def dataset(self) -> Dataset:
        """The dataset: names, classes and labels of all its samples, also of those that `indices` leaves out."""
        if self._dataset is None:
            native = self._latest().dataset()
            if native is None:
                raise UsageError("the loader is closed: ask for its dataset before, or open it by ddlp.Dataset")
            self._dataset = of_run(native, self._arguments)
        return self._dataset

    @property
    def samples(self) -> int:
        """Number of samples of the dataset, also of those that `indices` leaves out."""
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
        `load_state_dict`. A look at that epoch costs nothing.
        """
        self._running()
        epoch, epochs = whole("epoch", epoch), EPOCHS_MAX if self._epochs is None else self._epochs
        if epoch < 0:
            raise ConfigurationError(f"epoch is {epoch}, but epochs count from 0")
        if epoch >= epochs:
            raise ConfigurationError(f"epoch is {epoch}, but this loader has {epochs} epochs, from 0 on")
        now = self._position()
        state = self._latest_iteration.next_start(now, self._latest().asks)
        if epoch != state["epoch"]:
            state = {**now, "epoch": epoch, "delivered": []}
        if state is not now:
            self._go_to(state)
        else:
            self._latest_iteration.set(now)

    # -- position -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Returns the position after the batch that was delivered last, as plain data. After a look at a batch whose
        iterator is gone, that is the position before the look, from which the next iteration begins.

        A loader that loads a state from the middle of an epoch resumes there. A state taken after the last batch of an
        epoch leads to the next epoch.
        """
        return self._latest_iteration.state(self._position(), self._latest().asks)

    def _position(self) -> dict[str, Any]:
        """Returns the position of the run, after the batch that was delivered last."""
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
        self._resume, self._latest_iteration, self._has_lost_run = state, LatestIteration(), False

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
        state = self._position()
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
        beside, (_, samples, columns, mix, _) = (fields_of(self._fields), self._table), self._source
        device = None if self._gpu is None else self._gpu.device
        choice = self._choice
        run = _ddlp.Run(written(options), samples, columns, beside, mix, self._per_sample, device, choice)
        if resume is not None and not is_fit:
            try:
                run.go_to(self._fitted(run, resume))
            except BaseException:
                run.close()
                raise
        self._run, self._phase = run, phase
        LOADERS.add(self)
        if self._is_closed:
            # Another thread has closed the loader meanwhile, before it had this run.
            self._run.close()

    def _running(self) -> _ddlp.Run:
        """Returns the run, and begins one if there is none."""
        if self._is_closed:
            raise UsageError("the loader is closed: make a new one")
        if self._has_lost_run:
            latest = self._latest_iteration
            self._go_to(self._position())
            self._latest_iteration = latest
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
        wrapped = self._maker.make(batch, self._phase.has_canvas, self._gpu)
        self._has_begun = True
        return wrapped
