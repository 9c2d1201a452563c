"""The loader: epochs, positions and options on top of a native run."""

from __future__ import annotations

import atexit
import json
import operator
import os
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from . import _ddlp
from ._compose import Compose
from ._drives import Drive, described
from ._errors import ConfigurationError, UsageError
from ._output import OUTPUTS, Output, missing_library
from ._pipeline import Pipeline, imagenet_train, pipeline_of
from ._report import Report

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of ImageNet's channels, for the option `normalize`."""

_EPOCHS_MAX = 2**32 - 1


class _Fields(NamedTuple):
    images: Any
    labels: Any


class Batch(_Fields):
    """A batch: a pair of images and labels, which knows where it belongs."""

    epoch: int
    """Epoch, from 0."""
    index: int  # type: ignore[assignment]
    """Number within the epoch, from 0."""
    prong: int
    """Who prepared it: 0 is the CPU, 1 the first drive."""
    sample_ids: list[int]
    """Sample id of each image."""


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
        dataset: Path of a pack, an image folder, CIFAR-10's binary files or tar shards, or the address of a drive that
            holds a pack.
        pipeline: What is done to every sample: a Pipeline, a Compose of torchvision's transforms, the name of a
            built-in pipeline, or a TOML file.
        batch_size: Samples of a global batch, of all ranks together.
        strategy: Order of delivery: "ordered", "mte", "wrr"; or one side alone: "cpu", "csd".
        drives: None, "local" (a drive that the loader starts on this machine), "auto" (the drive that the kernel is
            connected to), an address, or a list of drives.
        threads: Threads of the CPU. Default: the usable cores divided by LOCAL_WORLD_SIZE; half of them with a local
            drive.
        seed: Seed of the order and of all random choices.
        epochs: Number of epochs. Default: without end.
        rank: Number of this process in distributed training. Default: that of torch.distributed if it is initialised,
            else RANK, else 0.
        world_size: Number of processes. Default: as for `rank`, from WORLD_SIZE, else 1.
        last: Treatment of an epoch's last batch if samples do not fill it: "short", "drop" or "pad".
        policy: Treatment of corrupt samples: "fail", "skip" or "replace".
        max_corrupt: Corrupt samples of an epoch that "skip" and "replace" tolerate: a number, or a share such as "1%".
            Default: 16 or 1 %, whichever is larger.
        output: Kind of arrays: "torch", "numpy", or "dlpack" for ddlp.Array, which any library with DLPack takes over.
        dtype: Type of the images' elements: "float32", "float16", "bfloat16" or "uint8".
        layout: Order of the images' dimensions: "NCHW" or "NHWC". uint8 lies in memory as NHWC; under "NCHW" it is a
            view with strides.
        normalize: Mean and standard deviation of the three channels, such as ddlp.IMAGENET: values are
            (v / 255 - mean) / std. Default: floats from 0 to 1.
        buffers: Batches for which the loader has memory: those that are prepared ahead and those that you keep.
        window: Look-ahead of the strategy "ordered", in batches.
        epoch_samples: Samples of an epoch. A smaller dataset is repeated. Default: those of the dataset.
        cores: Cores that the loader's threads may use. Default: any core.
        drive_depth: Batches that one drive has in work at a time.
        drive_timeout_s: Seconds that a drive may take for a batch before it counts as lost.
        drive_optional: Whether a run may begin without its drives at tcp:// addresses.
        stall_after_s: Seconds without a batch after which the report says what the loader waits for.
        metrics: Address, such as "127.0.0.1:9464", at which Prometheus can read the figures of the run over HTTP.

    Raises:
        ConfigurationError: The options do not fit each other or the dataset.
        UnavailableError: The dataset cannot be opened.
        DriveError: A drive cannot be used.
    """

    def __init__(
        self,
        dataset: str | os.PathLike[str],
        *,
        pipeline: Pipeline | str | os.PathLike[str] = imagenet_train(224),
        batch_size: int = 256,
        strategy: Literal["ordered", "mte", "wrr", "cpu", "csd"] = "ordered",
        drives: None | Drive | Sequence[Drive] = None,
        threads: int | None = None,
        seed: int = 0,
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
        buffers: int = 6,
        window: int | None = None,
        epoch_samples: int | None = None,
        cores: Sequence[int] = (),
        drive_depth: int = 2,
        drive_timeout_s: float = 30.0,
        drive_optional: bool = False,
        stall_after_s: float = 10.0,
        metrics: str | None = None,
    ) -> None:
        # What a copy of this loader is made from, in another process too.
        self._arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
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
        pipeline = pipeline_of(pipeline)
        if isinstance(pipeline, Compose) and pipeline.normalize is not None:
            if normalize is not None:
                raise ConfigurationError(
                    "both the option normalize and the pipeline (ddlp.Compose) normalise: give one"
                )
            normalize = pipeline.normalize
        self._epochs = epochs
        rank, world_size = _ranks(rank, world_size)
        # A copy may open the dataset in another folder.
        self._arguments["dataset"] = os.path.abspath(dataset) if os.path.exists(dataset) else os.fspath(dataset)
        options = {
            "dataset": self._arguments["dataset"],
            "pipeline": pipeline.to_dict(),
            "batch_size": batch_size,
            "strategy": strategy,
            "drives": described(drives),
            "threads": threads,
            "seed": seed,
            "epochs": _EPOCHS_MAX if epochs is None else epochs,
            "rank": rank,
            "world_size": world_size,
            "last": last,
            "policy": policy,
            "dtype": dtype,
            "layout": layout,
            "normalize": _normalize(normalize),
            "buffers": buffers,
            "window": window,
            "epoch_samples": epoch_samples,
            "cores": list(cores),
            "drive_depth": drive_depth,
            "drive_timeout_s": drive_timeout_s,
            "drive_optional": drive_optional,
            "stall_after_s": stall_after_s,
            "metrics": metrics,
        }
        if max_corrupt is not None:
            options["max_corrupt"] = str(max_corrupt)
        self._options = _share_cores(options)
        # The position from which the next run begins.
        self._resume: dict[str, Any] | None = None
        # Whether any batch was delivered.
        self._has_begun = False
        # The number of the latest iteration, and the state at its beginning.
        self._iteration = 0
        self._iterated_from: dict[str, Any] = {}
        self._is_closed = False
        self._run: _ddlp.Run | None = None
        self._open()

    # -- iteration ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        """Begins an epoch, or goes on with the one in which a state was taken. After a `break`, begins the next epoch.

        Raises ConfigurationError when all epochs have been delivered.
        """
        if self._is_within():
            self._go_to(self.epoch + 1)
        run = self._running()
        state = json.loads(run.state())
        if self._epochs is not None and state["epoch"] >= self._epochs:
            raise ConfigurationError(
                f"all {self._epochs} epochs of this loader have been delivered: give it more `epochs`, or leave the "
                "option out"
            )
        self._iterated_from = state
        self._iteration += 1
        return _Epoch(self, run, state["epoch"])

    def __len__(self) -> int:
        """Returns the number of batches of an epoch."""
        return self._running().batches_per_epoch

    @property
    def epoch(self) -> int:
        """The epoch that is being delivered, or that the next iteration delivers if no batch of it came yet."""
        return int(self.state_dict()["epoch"])

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration deliver this epoch from its beginning. Batches that were prepared ahead are thrown
        away, unless the next iteration would deliver this epoch anyway: then this changes nothing."""
        if epoch < 0:
            raise ConfigurationError(f"epoch is {epoch}, but epochs count from 0")
        if self._epochs is not None and epoch >= self._epochs:
            raise ConfigurationError(f"epoch is {epoch}, but this loader has {self._epochs} epochs, from 0 on")
        if self._is_within() or epoch != self.epoch:
            self._go_to(epoch)

    # -- position -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Returns the position after the batch that was delivered last, as plain data.

        A state of the middle of an epoch goes on there; a state of the end of an epoch goes on with the next one.
        """
        if self._is_closed and self._run is None and self._resume is not None:
            return dict(self._resume)
        state: dict[str, Any] = json.loads(self._latest().state())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration go on from a state, with the same batches as if nothing had interrupted it. A loader
        that was closed opens again.

        Raises ConfigurationError if the state is of a run with another dataset, seed, batch size or pipeline.
        """
        before, run = self._resume, self._run
        at = json.loads(run.state()) if run is not None and not run.is_forked else before
        self._resume = dict(state)
        self._shut()
        try:
            self._open()
        except BaseException:
            # A loader that is closed keeps its run, which has its position and figures; another one opens a new run.
            self._resume, self._run = at, run if self._is_closed else None
            raise
        self._iterated_from = {}
        self._is_closed = False

    def _go_to(self, epoch: int) -> None:
        self._resume = {**self.state_dict(), "epoch": epoch, "delivered": []}
        self._iterated_from = {}
        self._shut()

    def _is_within(self) -> bool:
        """Returns whether an iteration has got a batch of the epoch that is being delivered, but not the last one."""
        began, now = self._iterated_from, self.state_dict()
        return began.get("epoch") == now["epoch"] and len(now["delivered"]) > len(began["delivered"])

    # -- figures ------------------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Returns the progress now: images, seconds, and what each side has done. Any thread may ask at any time."""
        return self._latest().progress()

    def report(self) -> Report:
        """Returns all figures, since this loader began or its position was last set, as `ddlp run --json` writes
        them."""
        return Report(json.loads(self._latest().report()))

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
        options = self._options
        return f"ddlp.Loader({options['dataset']!r}, batch_size={options['batch_size']})"

    def _open(self) -> None:
        run = _ddlp.Run(json.dumps({**self._options, "resume": self._resume}, default=_plain))
        self._run = run
        _LOADERS.add(self)

    def _shut(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.close()

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
            if self._is_closed:
                raise UsageError("the loader is closed, and its last run has no figures: make a new loader")
            self._open()
        assert self._run is not None
        return self._run

    def _wrapped(self, batch: _ddlp.Batch) -> Batch:
        delivered = Batch(self._output(batch.images), self._output(batch.labels))
        delivered.epoch, delivered.index, delivered.prong = batch.epoch, batch.index, batch.prong
        delivered.sample_ids = batch.sample_ids
        return delivered


class _Epoch:
    """One iteration: what is left of an epoch. Several threads may share it.

    It counts nothing itself, since an interrupt may come between a delivery and a count: the run knows its epoch.
    """

    def __init__(self, loader: Loader, run: _ddlp.Run, epoch: int) -> None:
        self._loader, self._run, self._epoch, self._number = loader, run, epoch, loader._iteration
        # A signal's handler may ask for a batch on the thread that waits for one, and is told that it cannot.
        self._lock = threading.RLock()

    def __iter__(self) -> _Epoch:
        return self

    def __next__(self) -> Batch:
        loader = self._loader
        if loader._iteration != self._number or loader._run is not self._run or self._run.is_forked:
            # Says why, if the loader cannot be used at all.
            loader._running()
            raise UsageError("this iteration is over: another iteration, set_epoch or load_state_dict came after it")
        # Another thread may take the last batch of the epoch meanwhile.
        with self._lock:
            if self._run.progress()["epoch"] != self._epoch:
                raise StopIteration
            batch = self._run.next()
        if batch is None:
            raise StopIteration
        loader._has_begun = True
        return loader._wrapped(batch)


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


def _share_cores(options: dict[str, Any]) -> dict[str, Any]:
    """Divides the cores among the processes of this machine, if there are several and the options do not say."""
    processes = _number("LOCAL_WORLD_SIZE", 1)
    if processes <= 1 or options["threads"] is not None or options["cores"]:
        return options
    own = max(1, len(os.sched_getaffinity(0)) // processes)
    local = [drive["local"] for drive in options["drives"] if "local" in drive]
    if not local:
        return {**options, "threads": own}
    for drive in local:
        drive["threads"] = drive["threads"] or max(1, own // 2 // len(local))
    return {**options, "threads": max(1, own - own // 2)}


def _plain(value: Any) -> int | float:
    """Returns the number that a library such as NumPy has a type of its own for."""
    try:
        return operator.index(value)
    except TypeError:
        return float(value)


def _normalize(normalize: tuple[Sequence[float], Sequence[float]] | None) -> dict[str, list[float]] | None:
    if normalize is None:
        return None
    mean, std = normalize
    return {"mean": [float(value) for value in mean], "std": [float(value) for value in std]}


_LOADERS: weakref.WeakSet[Loader] = weakref.WeakSet()


def _shut_all() -> None:
    """Ends all loaders before the interpreter ends, so that their drives end with them."""
    for loader in list(_LOADERS):
        run = loader._run
        if run is not None:
            run.close()


atexit.register(_shut_all)
