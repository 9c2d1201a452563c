"""The arguments of a loader, as the Rust library's table of options has them.

The table makes this file: `DDLP_UPDATE=1 cargo test -p ddlp-host python` writes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from ._arrow import ArrowTable
from ._choice import file_of, part_of
from ._dataset import Dataset
from ._drives import Drive, cores_of, described
from ._fidelity import text_of
from ._fields import ArrowStream, path_of
from ._instead import refuses_other_loaders
from ._mix import Mix
from ._options import folder_of, limit_of
from ._phases import Normalize, Pipelines
from ._samples import Samples


class Arguments:
    """What a loader is made of. `ddlp.Loader` takes the arguments."""

    @refuses_other_loaders
    def __init__(
        self,
        dataset: str | os.PathLike[str] | Samples | ArrowTable | Mix | Dataset | Sequence[tuple[Any, Any]],
        *,
        kind: str | None = None,
        data_column: str | None = None,
        label_column: str | None = None,
        metadata_table: str | None = None,
        fields: Mapping[str, Any] | ArrowStream | str | os.PathLike[str] | None = None,
        classes: int | Sequence[str] | None = None,
        pipeline: Pipelines | Mapping[int, Pipelines] | None = None,
        fidelity: int | Mapping[int, int] | Callable[[int], int] = 10,
        batch_size: int = 256,
        epochs: int | None = None,
        strategy: Literal["ordered", "mte", "wrr", "cpu", "csd"] = "ordered",
        seed: int = 0,
        shuffle: bool = True,
        shuffle_window: int | None = None,
        policy: Literal["fail", "skip", "replace"] = "fail",
        max_corrupt: int | str | None = None,
        last: Literal["short", "drop", "pad"] = "short",
        epoch_samples: int | None = None,
        indices: Sequence[int] | Callable[[int], Any] | str | os.PathLike[str] | Any | None = None,
        split: str | None = None,
        repeats: int = 1,
        views: int = 1,
        weights: Literal["balanced"] | Sequence[float] | Any | None = None,
        dtype: Literal["uint8", "float16", "bfloat16", "float32"] = "float32",
        layout: Literal["NCHW", "NHWC", "channels_last"] = "NCHW",
        normalize: Normalize | None = None,
        mixup: float = 0.0,
        cutmix: float = 0.0,
        mix_probability: float = 1.0,
        output: Literal["torch", "numpy", "dlpack"] = "torch",
        device: str = "cpu",
        ragged: bool = False,
        names: tuple[str, str] | None = None,
        drives: Drive | Sequence[Drive] | None = None,
        drive_depth: int | None = None,
        drive_timeout_s: float = 30.0,
        drive_optional: bool = False,
        host_nqn: str | None = None,
        threads: int | None = None,
        cores: Sequence[int] = (),
        buffers: int = 6,
        fetch: Literal["in-order", "out-of-order"] = "in-order",
        fetch_depth: int | None = None,
        fetch_memory: int = 134217728,
        ramp_up: int = 0,
        fetch_hedge: int | None = None,
        cache: str | os.PathLike[str] | None = None,
        cache_limit: int | None = None,
        window: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        stall_after_s: float = 10.0,
        metrics: str | None = None,
    ) -> None:
        """Opens the dataset and the drives, and begins to prepare batches.

        Args:
            dataset: Path of a pack, an image folder, CIFAR-10's binary files, tar shards or a list of files (.csv); the
                URL of a dataset (s3, gs, az, https, http, redis, rediss, redis+sentinel, rediss+sentinel, cql or cqls);
                the address of a drive that holds a pack; an object whose items are pairs of an image and a label, such
                as a dataset of torchvision; a list of pairs of path and label; or a table in Arrow memory (ArrowTable,
                a table of pyarrow or polars, a dataset of Hugging Face). The CPU alone prepares objects, lists and
                tables. A ddlp.Mix, or a file (.toml) that describes one, has several of these. A ddlp.Dataset is what
                it was made of.
            kind: Kind of the dataset, for a folder that could be datasets of two kinds, such as one of tar shards and
                images. One of "folder", "list", "tar", "cifar", "pack" or "mix". Default: as the path and its contents
                say.
            data_column: Column of the images in a table of Cassandra or ScyllaDB that others made, and whose URL is the
                dataset (cql://HOST/KEYSPACE/TABLE). The CPU alone prepares such a table. Default: none, the dataset is
                no such table.
            label_column: Column of the labels in the table whose images are in `data_column`: whole numbers, or names
                of classes. Default: none, if the table has no further columns.
            metadata_table: Table of the labels, in the same keyspace and with the same key, if they are not in the
                table of the images. Default: the table of the images.
            fields: More fields of each sample: a mapping of names to arrays, whose item `i` belongs to sample `i` of
                the dataset (of int64, float32, float16 or uint8, of any shape); a table of pyarrow, polars or pandas,
                whose first column names the sample and whose other columns are fields; or the path of a file: such a
                table as comma-separated values or Parquet (.parquet), a text (.txt) with the label of each sample in a
                line, or tar shards with numbers in .json members. Batches are then dicts. A field named "label" takes
                the place of the dataset's labels.
            classes: Names of all classes; a label is an index into them. They number the classes of the dataset and of
                labels in `fields`, so that a class has the same label in every dataset, also in one that lacks some of
                the classes, such as a list of files for validation. A class that is not among them is an error. Or the
                number of classes of mixed labels. Default: each dataset numbers its own.
            pipeline: What is done to every sample: a Pipeline, a transform of torchvision or timm, the name of a
                built-in pipeline, or a TOML file. A list has a pipeline for each bucket: each makes images of another
                size, and a batch has images of one size. A sample belongs to the pipeline whose images have the nearest
                aspect ratio; among several of these, to the one with the largest images that have no more pixels than
                the sample. A dict maps an epoch to what applies from that epoch on, such as
                ``{0: ddlp.imagenet_train(128), 30: ddlp.imagenet_train(224)}``. Default: the transform of a dataset of
                torchvision, if it has one, else ddlp.imagenet_train(224).
            fidelity: How exactly images are read of a pack of pieces (``ddlp pack --format pcr``): the number of the
                last scan group that is read. 10 reads everything. A dict maps an epoch to the number that holds from
                that epoch on, such as ``{0: 2, 30: 10}``. Or a function that returns the number of an epoch,
                ``fidelity(epoch)``: the loader calls it once for each epoch, when the first batch of the epoch before
                is asked for.
            batch_size: Samples of a global batch, of all ranks together.
            epochs: Number of epochs. Default: no limit.
            strategy: Order of delivery, and the prongs that take part. "ordered": batches 0, 1, 2, …, whichever prong
                prepares them; "mte": batches from the head of the epoch by the CPU, then from its tail by drives;
                "wrr": from any prong that is ready, weighted by rate; "cpu": from the CPU alone; "csd": from drives
                alone.
            seed: Seed of the order and of all draws.
            shuffle: Whether each epoch is a new permutation of the samples. Otherwise they come in the order of the
                dataset, as for validation.
            shuffle_window: Number of bundles from which the samples of a shuffled epoch come at a time, so that a pack
                is read almost in sequence, as slow disks need it. A bundle is that of a pack of pieces, else 1024
                samples that lie side by side. Use it for packs whose neighbours are of different classes: batches have
                samples of a few bundles. At most `batch_size`, and best a multiple of `world_size`. Default: all
                samples are shuffled together.
            policy: Treatment of corrupt samples, which do not give an image or which the disk fails to read. A sample
                whose file is missing, has changed or is out of reach is not corrupt: it always ends the run. "fail":
                end the run with an error that names the sample; "skip": leave the sample out and count it; "replace":
                replace the sample with the next one that is not corrupt.
            max_corrupt: Limit on the distinct samples of an epoch that `policy="skip"` or `policy="replace"` passes
                over: a number of samples, of all ranks together, or a share of each rank's samples, such as 1%. When
                more are corrupt, the run ends with an error. A dataset that has disappeared or changed always ends it.
                Default: 16 or 1 %, whichever is larger.
            last: Treatment of an epoch's last batch if the samples do not fill it. A short batch has a sample for each
                rank: if fewer are left, the first ones of the epoch are added. "short": deliver it with the samples
                that are left; "drop": leave it out; "pad": fill it with samples from the beginning of the epoch.
            epoch_samples: Samples of an epoch: the dataset is repeated or cut to this number. Of a mix, each epoch
                takes this many samples, from where the epoch before stopped. Default: as many as the dataset has.
            indices: The samples of an epoch: a list or array of whole numbers, such as a part of `ddlp.split`, or the
                path of a file of them (.npy, or a text with a number in each line). An index that occurs several times
                has random choices of its own each time. Or a function that returns those of an epoch, as many for each:
                ``indices(epoch)``. It must return the same for the same epoch, and may be called three epochs ahead.
                With ``shuffle=False``, samples come in this order. A state knows the indices, and a function by those
                of epoch 0. Default: all samples.
            split: Part of a split whose samples an epoch has: the file that `ddlp split` wrote, a colon, and the part's
                name. States and plans record the split's identity. A split of another dataset is refused. Default: all
                samples.
            repeats: How many times in succession each sample of an epoch occurs, with draws of its own each time;
                several ranks take turns at them, as by torchvision's RASampler. An epoch is as long as without
                `repeats`, and so has fewer different samples.
            views: Random versions of each image in its batch. With ``views=2``, the images of a batch are a list of two
                arrays, one of the first versions and one of the second ones; labels, other fields and ids come once.
                `batch_size` and `epoch_samples` count each sample once.
            weights: Draws the samples of an epoch with replacement, as PyTorch's WeightedRandomSampler: a weight for
                each sample of the dataset, or for each class, or "balanced", by which all classes are equally frequent.
                An epoch has `epoch_samples` draws. With `indices`, only those samples are drawn. Default: each sample
                occurs once.
            dtype: Type of the images' elements.
            layout: Order of the images' dimensions. uint8 always lies in memory as NHWC; under NCHW it is a view with
                strides, as floats are under channels_last.
            normalize: Mean and standard deviation of the three channels, such as ddlp.IMAGENET: values are
                ``(v / 255 - mean) / std``. Default: floats from 0 to 1.
            mixup: MixUp: alpha of the distribution Beta(alpha, alpha) of the weights by which images and labels are
                mixed in pairs, as by torchvision's MixUp: each row with the row before it in this rank's share of the
                batch. Labels are then float32, one number for each class. With `cutmix` too, each batch gets one of the
                two, with equal probability. 0 turns MixUp off.
            cutmix: CutMix: alpha of the distribution of the share that an image keeps when a rectangle of another one
                covers it, as by torchvision's CutMix. 0 turns CutMix off.
            mix_probability: Probability with which a batch is mixed, by MixUp or CutMix.
            output: Kind of arrays: "torch", "numpy", or "dlpack" for ddlp.Array, which any library with DLPack takes
                over.
            device: Where batches lie: "cpu", or an NVIDIA GPU: "cuda:N", or "cuda" for PyTorch's current device (with
                the output "dlpack", the device whose number is in LOCAL_RANK, else the first). A batch then travels as
                bytes while the step before runs, and is an ordinary tensor on the current stream.
            ragged: Whether the images of a batch come as a list, each a view in its own size. Needs a pipeline that
                ends with PadTo, which puts images of different sizes on canvases of one size. Without `ragged`, the
                images are one array of whole canvases, and `batch.sizes` says how large each image is there.
            names: Names of images and labels, such as ("image", "label"): batches are then dicts with these keys.
            drives: "local" (a drive that the loader starts on this machine), "auto" (the drive that the kernel is
                connected to), an address, or a list of drives; an empty list is a run without drives. Default: the
                drive that holds the dataset, if `dataset` is the address of one; otherwise none.
            drive_depth: Batches that one drive has in work at a time. Default: 2, and up to 16 over a long path.
            drive_timeout_s: Seconds that a drive may take for a batch before it counts as lost; the run then tries to
                reconnect. A slow drive may take ten times as long as its rate predicts for its queued batches, if that
                is longer.
            drive_optional: Whether a run may begin without its drives at tcp:// addresses. A drive that cannot be
                reached joins as soon as it can; a drive that refuses this host or does not fit still ends the run.
            host_nqn: NQN by which this machine is known to drives at tcp:// addresses, as in their lists of allowed
                hosts. Default: that of /etc/nvme/hostnqn, else one that DDLP makes once and keeps (`ddlp devices`
                prints it).
            threads: Threads of the CPU prong. Default: the usable cores (`cores`), divided among the processes of this
                machine; half of them with a local drive.
            cores: Cores that the loader's threads may use. Default: any core.
            buffers: Batch buffers on the host: they bound how far the CPU prepares ahead, and how many batches the
                consumer can keep.
            fetch: Which batch gets a sample that comes from a store. Out of order, a late sample delays no batch but
                the last one of an epoch; which samples a batch has then depends on when they come, so a run cannot be
                repeated. Only for runs without drives, plans to replay and `views`. "in-order": the batch that asked
                for it, so that batches have the same samples each time; "out-of-order": the oldest batch that waits for
                a sample.
            fetch_depth: Samples of a dataset in a store that are asked for at the same time. Default: as many as its
                latency and rate need.
            fetch_memory: Memory in bytes for samples of a dataset in a store that are asked for or wait to be prepared.
                The batch that is due next, and one that has begun, may each take as much again.
            ramp_up: Slow start over a store: the samples of one batch are asked for at first, and those of one more for
                each `ramp_up` batches that are delivered.
            fetch_hedge: Asks a store a second time for a sample that takes longer than this share of all answers, in
                percent, and takes what comes first. At most the rest of the samples in flight are asked for twice.
                Default: each sample is asked for once.
            cache: Folder on a disk of this machine in which bytes of the dataset are cached, if the dataset comes over
                a network: what was read once is not asked for again, in later epochs, by later runs and by other
                processes. Several datasets and processes may share the folder. A dataset in files has no use for it.
                Default: no cache.
            cache_limit: Most bytes that the folder of `cache` may take. When it is full, datasets that no process has
                open make room; bytes for which there is no room are not cached. Default: all but a twentieth of the
                disk.
            window: Look-ahead of the strategy "ordered" in batches. Default: as many as buffers and slots can hold.
            rank: Number of this process, from 0. Each rank gets its share of every global batch. Default: that of
                torch.distributed if it is initialised, else RANK, else 0.
            world_size: Number of processes that train together, each one a rank. Default: as for `rank`, from
                WORLD_SIZE, else 1.
            stall_after_s: Seconds without a batch after which the report says what the loader waits for.
            metrics: Address, such as 127.0.0.1:9464, at which the run's figures can be read over HTTP, as Prometheus
                reads them; port 0 takes a free port. Whoever can reach the address can read them. Default: none.

        Raises:
            ConfigurationError: The options do not fit each other or the dataset.
            UnavailableError: The dataset cannot be opened.
            DriveError: A drive cannot be used.
            DeviceError: The GPU cannot be used.
        """
        self._begin({name: value for name, value in locals().items() if name != "self"})

    def _begin(self, arguments: dict[str, Any]) -> None:
        raise NotImplementedError


OPTIONS: dict[str, Callable[[Any], Any] | None] = {
    "kind": None,
    "data_column": None,
    "label_column": None,
    "metadata_table": None,
    "fields": path_of,
    "fidelity": text_of,
    "batch_size": None,
    "strategy": None,
    "seed": None,
    "shuffle": None,
    "shuffle_window": None,
    "policy": None,
    "max_corrupt": limit_of,
    "last": None,
    "epoch_samples": None,
    "indices": file_of,
    "split": part_of,
    "repeats": None,
    "views": None,
    "dtype": None,
    "layout": None,
    "mixup": None,
    "cutmix": None,
    "mix_probability": None,
    "drives": described,
    "drive_depth": None,
    "drive_timeout_s": None,
    "drive_optional": None,
    "host_nqn": None,
    "threads": None,
    "cores": cores_of,
    "buffers": None,
    "fetch": None,
    "fetch_depth": None,
    "fetch_memory": None,
    "ramp_up": None,
    "fetch_hedge": None,
    "cache": folder_of,
    "cache_limit": None,
    "window": None,
    "stall_after_s": None,
    "metrics": None,
}
"""Options of the native part, each with the function that makes its value of the argument."""
