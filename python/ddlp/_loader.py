"""The loader: epochs, positions and options on top of a native run."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, SupportsFloat

from . import _ddlp
from ._arguments import OPTIONS, Arguments
from ._batch import Batch, maker_of
from ._choice import choice_of
from ._classes import names_of
from ._compose import pipeline_of_dataset
from ._dataset import Dataset, of_run, source_and_options
from ._device import gpu_of
from ._ending import LOADERS
from ._errors import ConfigurationError, UsageError
from ._fidelity import function_of
from ._fields import fields_of, table_of
from ._function import caller, merged
from ._headspace import Headspace
from ._headspace import whole as whole_step
from ._options import options_of, written
from ._phases import EPOCHS_MAX, Phase, moved, phase_at, phases_of, pipelines_of, whole
from ._pipeline import plain
from ._position import LatestIteration
from ._report import Report
from ._sampler import sampler_of

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of ImageNet's channels, for the option `normalize`."""

_LOG = logging.getLogger("ddlp")


class Loader(Arguments):
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
    """

    def _begin(self, arguments: dict[str, Any]) -> None:
        # The arguments from which a copy of this loader is made, in another process too.
        self._arguments = arguments
        fields, epochs, output = arguments["fields"], arguments["epochs"], arguments["output"]
        if isinstance(fields, (str, os.PathLike)):
            arguments["fields"] = os.path.abspath(fields)
        self._fields: Mapping[str, Any] = fields if isinstance(fields, Mapping) else {}
        self._table = table_of(fields)
        self._epochs: int | None = epochs
        self._source, of_dataset = source_and_options(arguments)
        arguments |= of_dataset
        if arguments["pipeline"] is None:
            arguments["pipeline"] = pipeline_of_dataset(self._source.transform, self._source.size)
        pipelines = arguments["pipeline"] = pipelines_of(arguments["pipeline"])
        self._phases = phases_of(pipelines, arguments["normalize"], epochs)
        arguments["views"] = whole("`views`", arguments["views"])
        self._maker = maker_of(arguments, self._phases)
        class_names = names_of(arguments["classes"])
        if class_names is not None:
            arguments["classes"] = class_names
        used = [pipeline.functions for of_epoch in pipelines.values() for pipeline in of_epoch]
        self._functions = [(name, caller(function)) for name, function in merged(used).items()]
        self._fidelity = function_of(arguments["fidelity"])
        self._choice = choice_of(arguments["indices"], arguments["weights"])
        self._options = options_of(arguments, class_names, OPTIONS)
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
        self._sampler: Any = None
        self._batch_sampler: Any = None
        # Whether the run was closed for another one, which then could not be opened.
        self._has_lost_run = False
        # The phase of the run.
        self._phase: Phase = self._phases[0]
        self._gpu = gpu_of(arguments["device"], output, self._options["rank"])
        self._open()
        note = self._latest().note_of_classes
        if note is not None:
            # The caller of `__init__`, which has a decorator.
            warnings.warn(note, stacklevel=4)
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
    def sampler(self) -> Any:
        """What a program asks of a DataLoader's sampler: the number of samples of an epoch on this rank (`len`), and
        `set_epoch`. With PyTorch installed, it is one of PyTorch's, a SequentialSampler under ``shuffle=False``."""
        if self._sampler is None:
            shuffles = self._options["shuffle"]
            self._sampler = sampler_of(shuffles, lambda: self._latest().samples_of_rank, self.set_epoch)
        return self._sampler

    @property
    def batch_sampler(self) -> Any:
        """The same of the batches of an epoch."""
        if self._batch_sampler is None:
            self._batch_sampler = sampler_of(True, self.__len__, self.set_epoch)
        return self._batch_sampler

    @property
    def batch_size(self) -> int:
        """Samples of a global batch, of all ranks together."""
        return int(self._options["batch_size"])

    @property
    def drop_last(self) -> bool:
        """Whether a last batch that the samples do not fill is left out."""
        return bool(self._options["last"] == "drop")

    @property
    def collate_fn(self) -> None:
        """None: the loader makes batches itself. Such as timm's PrefetchLoader look for a function here."""

    @property
    def num_workers(self) -> int:
        """0, as for a DataLoader that makes its batches in the program's own process: threads prepare them there."""
        return 0

    @property
    def pin_memory(self) -> bool:
        """False: batches lie in ordinary memory, or, by the option `device`, on the GPU."""
        return False

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
        ranks = self._options["world_size"]
        of_all = f" of all {ranks} ranks" if ranks > 1 else ""
        return f"ddlp.Loader({self._arguments['dataset']!r}, batch_size={self.batch_size}{of_all})"

    def _open(self) -> None:
        _ddlp.set_log_level(min(_LOG.getEffectiveLevel(), 255))
        resume = self._resume
        phase = phase_at(self._phases, 0 if resume is None else resume.get("epoch", 0))
        # With several pipelines, `_has_moved` first adapts the state to the run.
        is_fit = len(self._phases) == 1
        options = {**self._options, **phase.options(), "resume": resume if is_fit else None}
        beside, (_, samples, columns, mix, *_) = (fields_of(self._fields), self._table), self._source
        device = None if self._gpu is None else self._gpu.device
        further = (self._functions, device, self._choice, self._fidelity)
        run = _ddlp.Run(written(options), samples, columns, beside, mix, *further)
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
