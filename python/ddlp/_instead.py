"""What takes the place of arguments that PyTorch's DataLoader, torchvision's datasets or earlier versions have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

_INSTEAD = {
    "batch_sampler": "the loader makes the batches: see batch_size, shuffle, indices and weights",
    "collate_fn": "call the function on each batch, or put ddlp.Function, a function of one image, into the pipeline",
    "drop_last": 'give last="drop" for True',
    "generator": "give a whole number as seed",
    "in_order": "leave it out: the strategy sets the order",
    "multiprocessing_context": "leave it out: threads take the place of processes",
    "num_workers": "give the number of threads as threads",
    "per_sample": "put ddlp.Function(f) at the end of the pipeline, with f(image, rng) in place of f(image, seed)",
    "persistent_workers": "leave it out: the threads live as long as the loader",
    "pin_memory": 'give device="cuda", which delivers to the GPU',
    "pin_memory_device": "give the GPU as device",
    "prefetch_factor": "give the number of batches in memory as buffers",
    "sampler": "the loader makes the order: see shuffle, indices, weights, repeats, rank and world_size",
    "timeout": "leave it out: the report says what the loader waits for, see stall_after_s",
    "transform": "give it as pipeline",
    "worker_init_fn": "leave it out: all random choices follow from seed",
}

_Parameters = ParamSpec("_Parameters")


def refuses_other_loaders(function: Callable[_Parameters, None]) -> Callable[_Parameters, None]:
    """Makes a function of the loader's arguments say what takes the place of one that it does not have."""

    @functools.wraps(function)
    def checked(*arguments: _Parameters.args, **options: _Parameters.kwargs) -> None:
        others = [f"{name}={value!r} ({_INSTEAD[name]})" for name, value in options.items() if name in _INSTEAD]
        if others:
            raise TypeError(f"ddlp.Loader does not have these arguments: {'; '.join(others)}")
        function(*arguments, **options)

    return checked
