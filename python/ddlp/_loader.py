"""The loader: epochs, positions and options on top of a native run."""

from __future__ import annotations

import atexit
import functools
import json
import logging
import math
import operator
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, SupportsIndex, cast

from . import _ddlp
from ._arrow import ArrowTable, samples_of
from ._drives import Drive, described
from ._errors import ConfigurationError, UsageError
from ._fields import fields_of
from ._headspace import Headspace, whole
from ._mix import Mix, absolute
from ._output import OUTPUTS, Output, missing_library
from ._phases import Phase, moved, phase_at, phases_of
from ._pipeline import Pipeline, imagenet_train
from ._report import Report

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of ImageNet's channels, for the option `normalize`."""

_LOG = logging.getLogger("ddlp")


class Samples(Protocol):
    """Samples of a program's own: item `i` is the bytes of an image file, and a label.

    Threads of the loader ask for items, several at a time, each item once per epoch. If the object has an attribute
    `classes`, it names the classes. Item `i` must always be the same pair: another label ends the run. A state of a
    loader knows the object by its type, length and first item.
    """

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> tuple[Any, SupportsIndex]: ...


class _Fields(NamedTuple):
    images: Any
    labels: Any


class Batch(_Fields):
    """A batch: a pair of images and labels, with its epoch, number, prong and sample ids.

    A copy that a library makes by `type(batch)(*batch)` lacks these: its attributes are None.
    """

    epoch: int | None = None
    """Epoch, from 0."""
    index: int | None = None  # type: ignore[assignment]
    """Number within the epoch, from 0."""
    prong: int | None = None
    """Who prepared it: 0 is the CPU, 1 the first drive."""
    sample_ids: list[int] | None = None
    """Sample id of each image."""

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


class Loader:
    """Delivers the batches of a dataset, prepared by the CPU and by drives.

    Each iteration is one epoch, and yields pairs of images and labels::

        loader = ddlp.Loader("train.ddlp", batch_size=256, normalize=ddlp.IMAGENET)
        for epoch in range(3):
            for images, labels in loader:
                ...

    Images lie in the loader's own buffers: no copy is made. A buffer returns to the loader when the batch and all views
    of it are gone, so a program that keeps batches slows the loader down. `list(loader)` keeps all of them: copy what
    you keep.

    Args:
        dataset: Path of a pack, an image folder, CIFAR-10's binary files, tar shards or a list of files (.csv); the
            address of a drive that holds a pack; an object whose items are pairs of the bytes of an image file and a
            label, or a table in Arrow memory (ArrowTable, a table of pyarrow or polars, a dataset of Hugging Face),
            which the CPU alone prepares. A ddlp.Mix, or a file (.toml) that describes one, has several of these.
        pipeline: What is done to every sample: a Pipeline, a Compose of torchvision's transforms, the name of a
            built-in pipeline, or a TOML file. A dict has the pipelines from some epochs on, such as
            ``{0: ddlp.imagenet_train(128), 30: ddlp.imagenet_train(224)}``.
        batch_size: Samples of a global batch, of all ranks together.
        strategy: Order of delivery: "ordered", "mte", "wrr"; or one side alone: "cpu", "csd".
        drives: "local" (a drive that the loader starts on this machine), "auto" (the drive that the kernel is connected
            to), an address, or a list of drives; an empty list is a run without drives. Default: the drive that holds
            the dataset, if `dataset` is the address of one; otherwise none.
        threads: Threads of the CPU. Default: the usable cores divided by LOCAL_WORLD_SIZE; half of them with a local
            drive.
        seed: Seed of the order and of all random choices.
        shuffle: Whether each epoch is a permutation of its own. Otherwise samples come in the order of the dataset, as
            for validation.
        epochs: Number of epochs. Default: without end.
        rank: Number of this process in distributed training. Default: that of torch.distributed if it is initialised,
            else RANK, else 0.
        world_size: Number of processes. Default: as for `rank`, from WORLD_SIZE, else 1.
        last: Treatment of an epoch's last batch if samples do not fill it: "short", "drop" or "pad". With several
            ranks, a rank's share of a short batch may have no sample.
        policy: Treatment of corrupt samples: "fail", "skip" or "replace".
        max_corrupt: Corrupt samples of an epoch that "skip" and "replace" tolerate: a number, or a share such as "1%".
            Default: 16 or 1 %, whichever is larger.
        output: Kind of arrays: "torch", "numpy", or "dlpack" for ddlp.Array, which any library with DLPack takes over.
        dtype: Type of the images' elements: "float32", "float16", "bfloat16" or "uint8".
        layout: Order of the images' dimensions: "NCHW" or "NHWC". uint8 lies in memory as NHWC; under "NCHW" it is a
            view with strides.
        normalize: Mean and standard deviation of the three channels, such as ddlp.IMAGENET: values are
            (v / 255 - mean) / std. Default: floats from 0 to 1.
        mixup: Alpha of the distribution Beta(alpha, alpha) of the weights by which images and labels are mixed in
            pairs, as by torchvision's MixUp. Labels are then float32, one number for each class. With `cutmix` too,
            each batch gets one of the two, both equally often. 0: none.
        cutmix: Alpha of the distribution of the share that an image keeps when a rectangle of another one
            covers it, as by torchvision's CutMix. 0: none.
        mix_probability: Share of the batches to which MixUp or CutMix is done.
        classes: Number of classes of mixed labels. Default: that of the dataset.
        fields: More fields of each sample: a mapping of names to arrays, whose item `i` belongs to sample `i` of the
            dataset (of int64, float32, float16 or uint8, of any shape), or the path of a table as comma-separated
            values, whose first column names the sample and whose other columns are fields. Batches are then dicts. A
            field named "label" takes the place of the dataset's labels.
        names: Names of images and labels, such as ("image", "label"): batches are then dicts with these keys.
        buffers: Batches for which the loader has memory: those that are prepared ahead and those that you keep.
        window: Look-ahead of the strategy "ordered", in batches.
        epoch_samples: Samples of an epoch: the dataset is repeated or cut to this number. Of a ddlp.Mix, each epoch
            takes this many samples, from where the one before stopped. Default: those of the dataset.
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
    """

    def __init__(
        self,
        dataset: str | os.PathLike[str] | Samples | ArrowTable | Mix,
        *,
        pipeline: Pipeline | str | os.PathLike[str] | Mapping[int, Pipeline | str | os.PathLike[str]] = imagenet_train(
            224
        ),
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
        dtype: Literal["float32", "float16", "bfloat16", "uint8"] = "float32",
        layout: Literal["NCHW", "NHWC"] = "NCHW",
        normalize: tuple[Sequence[float], Sequence[float]] | None = None,
        mixup: float = 0.0,
        cutmix: float = 0.0,
        mix_probability: float = 1.0,
        classes: int | None = None,
        fields: Mapping[str, Any] | str | os.PathLike[str] | None = None,
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
        # What a copy of this loader is made from, in another process too.
        self._arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        if names is not None and (len(names) != 2 or names[0] == names[1]):
            raise ConfigurationError(f"names is {names!r}, but must be two names, one of images and one of labels")
        self._names = names if names is not None or fields is None else ("image", "label")
        self._fields = [] if fields is None or isinstance(fields, (str, os.PathLike)) else fields_of(fields)
        if output not in OUTPUTS:
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
        self._phases = phases_of(pipeline, normalize, epochs)
        rank, world_size = _ranks(rank, world_size)
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
        else:
            self._samples, self._columns = samples_of(dataset)
            if drives:
                raise ConfigurationError(
                    "drives read the samples themselves, and cannot ask a Python object for them: pack it "
                    "(ddlp.pack), and give the pack's path"
                )
        options = {
            "dataset": self._arguments["dataset"] if isinstance(dataset, (str, os.PathLike)) else None,
            "fields": os.path.abspath(fields) if isinstance(fields, (str, os.PathLike)) else None,
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
            "classes": classes,
            "buffers": buffers,
            "window": window,
            "epoch_samples": epoch_samples,
            "cores": list(cores),
            "local_world_size": _number("LOCAL_WORLD_SIZE", 1),
            "drive_depth": drive_depth,
            "drive_timeout_s": drive_timeout_s,
            "drive_optional": drive_optional,
            "host_nqn": host_nqn,
            "stall_after_s": stall_after_s,
            "metrics": metrics,
        }
        if max_corrupt is not None:
            options["max_corrupt"] = str(max_corrupt)
        for name, value in options.items():
            # JSON, which carries the options, has no such numbers.
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigurationError(f"`{name}` is {value}, but must be a finite number")
        self._options = options
        # The position from which the run begins.
        self._resume: dict[str, Any] | None = None
        # Whether any batch was delivered.
        self._has_begun = False
        # The state at the beginning of the latest iteration.
        self._iterated_from: dict[str, Any] = {}
        self._is_closed = False
        self._run: _ddlp.Run | None = None
        # The phase of the run.
        self._phase: Phase = self._phases[0]
        self._open()

    # -- iteration ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        """Begins an epoch, or goes on with the one in which a state was taken. After a `break`, begins the next epoch.

        Raises ConfigurationError when all epochs have been delivered.
        """
        self._running()
        if self._is_within():
            self._go_to({**self.state_dict(), "epoch": self.epoch + 1, "delivered": []})
        state = self.state_dict()
        if phase_at(self._phases, state["epoch"]) is not self._phase:
            self._go_to(state)
        run = self._running()
        if self._epochs is not None and state["epoch"] >= self._epochs:
            raise ConfigurationError(
                f"all {self._epochs} epochs of this loader have been delivered: give it more `epochs`, or leave the "
                "option out"
            )
        self._iterated_from = state
        return run.iterate(self._wrapped)

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
        """Makes the next iteration deliver this epoch from its beginning. Batches that were prepared ahead are thrown
        away, unless the next iteration would deliver this epoch anyway: then this changes nothing."""
        self._running()
        if epoch < 0:
            raise ConfigurationError(f"epoch is {epoch}, but epochs count from 0")
        if self._epochs is not None and epoch >= self._epochs:
            raise ConfigurationError(f"epoch is {epoch}, but this loader has {self._epochs} epochs, from 0 on")
        if self._is_within() or epoch != self.epoch:
            self._go_to({**self.state_dict(), "epoch": epoch, "delivered": []})

    # -- position -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Returns the position after the batch that was delivered last, as plain data.

        A state of the middle of an epoch goes on there; a state of the end of an epoch goes on with the next one.
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
            self._go_to(dict(state))
        except BaseException:
            self._is_closed = was_closed or self._is_closed
            raise

    def _go_to(self, state: dict[str, Any]) -> None:
        """Moves the run, or opens another one if it has ended. An error changes nothing."""
        run = self._run
        if run is not None and not run.is_forked and phase_at(self._phases, state.get("epoch", 0)) is not self._phase:
            # The next run may need the memory, the drives and the address of this one.
            run.close()
        if run is None or run.is_forked or not self._has_moved(run, state):
            before, self._resume = self._resume, state
            try:
                self._open()
            except BaseException:
                self._resume = before
                raise
            if run is not None:
                run.close()
        self._resume, self._iterated_from = state, {}

    def _has_moved(self, run: _ddlp.Run, state: dict[str, Any]) -> bool:
        """Moves a run to a state of its phase; returns False if the run has ended."""
        if len(self._phases) > 1:
            state = moved(state, json.loads(run.state()), self._phases)
        return run.go_to(json.dumps(state, default=_plain))

    def _is_within(self) -> bool:
        """Returns whether an iteration has got a batch of the epoch that is being delivered, but not the last one."""
        began, now = self._iterated_from, self.state_dict()
        return began.get("epoch") == now["epoch"] and len(now["delivered"]) > len(began["delivered"])

    # -- figures ------------------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Returns the progress now: images, seconds, and what each side has done. Any thread may ask at any time."""
        return self._latest().progress()

    def report(self) -> Report:
        """Returns all figures since this loader began, or since its latest pipeline began if it has several, as
        `ddlp run --json` writes them."""
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
        if not 0 < seconds <= 86_400:
            raise ConfigurationError(f"seconds is {seconds}, but must be above 0, and at most a day")
        state = self.state_dict()
        if phase_at(self._phases, state["epoch"]) is not self._phase:
            self._go_to(state)
        return Headspace(json.loads(self._running().headspace(whole(step), self._wrapped, seconds)))

    # -- life ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the loader's threads and its local drives. Batches that you have stay valid. Position and figures can
        still be read."""
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
        # With several pipelines, a state is made to fit the run first.
        is_fit = len(self._phases) == 1
        options = {**self._options, **phase.options(), "resume": resume if is_fit else None}
        run = _ddlp.Run(json.dumps(options, default=_plain), self._samples, self._columns, self._fields, self._mix)
        if resume is not None and not is_fit:
            try:
                self._has_moved(run, resume)
            except BaseException:
                run.close()
                raise
        self._run, self._phase = run, phase
        _LOADERS.add(self)
        if self._is_closed:
            # Another thread has closed the loader meanwhile, and not this run.
            self._run.close()

    def _running(self) -> _ddlp.Run:
        """Returns the run, and begins one if there is none."""
        if self._is_closed:
            raise UsageError("the loader is closed: make a new one")
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
        fields = self._output(batch.images), self._output(batch.labels)
        # With names, a program expects dicts.
        named = None if self._names is None else NamedBatch(zip(self._names, fields, strict=True))
        if named is not None:
            named.update((name, self._output(field)) for name, field in batch.others)
        delivered: Batch = Batch(*fields) if named is None else cast(Batch, named)
        delivered.epoch, delivered.index, delivered.prong = batch.epoch, batch.index, batch.prong
        delivered.sample_ids = batch.sample_ids
        self._has_begun = True
        return delivered


def _ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Returns this process's number and the number of processes."""
    if rank is None and world_size is None:
        torch = sys.modules.get("torch")
        distributed = getattr(torch, "distributed", None)
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return _number("RANK", 0), _number("WORLD_SIZE", 1)
    if rank is None or world_size is None:
        raise ConfigurationError("give both rank and world_size, or neither")
    return rank, world_size


def _number(variable: str, default: int) -> int:
    """Returns the number in a variable of the environment."""
    value = os.environ.get(variable, default)
    try:
        return int(value)
    except ValueError:
        raise ConfigurationError(f"the environment has {variable}={value!r}, which is not a number") from None


def _plain(value: Any) -> int | float:
    """Returns the number that a library such as NumPy has a type of its own for."""
    try:
        return operator.index(value)
    except TypeError:
        return float(value)


_LOADERS: weakref.WeakSet[Loader] = weakref.WeakSet()


def _shut_all() -> None:
    """Ends all loaders before the interpreter ends, so that their drives end with them."""
    for loader in list(_LOADERS):
        run = loader._run
        if run is not None:
            run.close()
    _ddlp.flush_log()


atexit.register(_shut_all)
os.register_at_fork(
    before=_ddlp.before_fork,
    after_in_parent=functools.partial(_ddlp.after_fork, False),
    after_in_child=functools.partial(_ddlp.after_fork, True),
)
