"""The division of a dataset into parts, and the files of splits."""

from __future__ import annotations

import math
import os
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from . import _ddlp
from ._choice import whole_numbers
from ._dataset import Dataset, numbers
from ._errors import ConfigurationError
from ._phases import whole
from ._samples import Samples


def split(
    dataset: Dataset | Samples | Any,
    parts: Sequence[float] | Sequence[int] | None = None,
    *,
    folds: int | None = None,
    by: Literal["class"] | Sequence[int] | None = None,
    balance: Literal["original", "class"] | None = None,
    where: str | None = None,
    indices: Any = None,
    seed: int = 0,
    names: Sequence[str] | None = None,
    out: str | os.PathLike[str] | None = None,
) -> list[Any]:
    """Divides the samples of a dataset into parts, such as those of training and validation.

    Returns arrays of indices in ascending order, for the option `indices` of a loader. Each sample is in one part. The
    parts follow from the arguments alone, on every machine::

        train, val = ddlp.split("train.ddlp", (0.8, 0.2), by="class")
        for train, val in ddlp.split("train.ddlp", folds=5):
            ...

    With `out`, the parts also go to a file, which `ddlp.Loader(..., split="splits.json:train")` and
    ``ddlp run --split`` take. ``ddlp split`` writes the same bytes for the same arguments.

    Args:
        dataset: A Dataset, or what a Loader takes as one.
        parts: Shares that add up to 1, such as ``(0.8, 0.2)``, or numbers of samples that add up to those of the
            dataset.
        folds: In place of `parts`: the number of folds. For each fold, the list that is returned has a pair of arrays:
            the other samples, for training, and those of the fold, for validation.
        by: "class" divides each class by the same shares, to within a sample. A list of whole numbers, one for each
            sample of the dataset, does the same for groups of equal numbers. Default: the dataset is divided as one.
        balance: "original" is the same as ``by="class"``. With "class", each part has equally many samples of each
            class: of a class that has more samples than the rarest one, the others are in no part.
        where: Divides only the samples for which this is true, such as ``"label in (1, 2) and not class = 'cat'"``.
            Columns are id, label, class, name, and fields of one number of a loader's dataset; ``ddlp split --help``
            says more.
        indices: Divides only these samples. Each may occur once.
        seed: Seed of the random choices.
        names: Names of the parts in the file `out`. Default: train and val; train, val and test; else numbers.
        out: File for the parts. It is replaced as a whole, so each rank may write it. It must not belong to the
            dataset.

    Raises:
        ConfigurationError: The arguments do not fit each other or the dataset.
        UnavailableError: The dataset cannot be opened.
    """
    if not isinstance(dataset, Dataset):
        of_loader = getattr(dataset, "dataset", None)
        dataset = of_loader if isinstance(of_loader, Dataset) else Dataset(dataset)
    if out is not None and folds is not None:
        raise ConfigurationError("`out` has the parts of one division: leave `folds` out, or write each fold by itself")
    if names is not None and out is None:
        raise ConfigurationError("`names` are those of the parts in the file `out`: give both or none")
    by = _by(by, balance)
    chosen = _chosen(indices, len(dataset)) if where is None else _matching(where, indices, dataset)
    groups = _groups(by, dataset, chosen)
    is_even = balance == "class"
    if is_even and parts is not None and any(isinstance(part, int) and part != 1 for part in parts):
        raise ConfigurationError('with balance="class", the parts must be shares that add up to 1, such as (0.8, 0.2)')
    least = min(Counter(array("q", groups)).values()) if is_even else len(groups) // 8
    sizes = _sizes(parts, folds, least)
    pieces = [array("q", piece) for piece in _ddlp.split_samples(groups, sizes, _seed(seed), is_even)]
    if chosen is not None:
        pieces = [array("q", sorted(chosen[at] for at in piece)) for piece in pieces]
    if out is not None:
        shares = list(parts or ())
        # A single 1 is all of the samples, as for `ddlp split`, and not their number.
        are_shares = shares == [1] or all(isinstance(part, float) for part in shares)
        is_plain = are_shares and indices is None and (by is None or isinstance(by, str))
        how = balance or ("none" if by is None else "original")
        query = (where, [float(share) for share in shares], how, seed) if is_plain else None
        given = None if names is None else [str(name) for name in names]
        place = dataset._arguments["dataset"]
        root = place if isinstance(place, str) and os.path.exists(place) else None
        dataset._native.write_split(os.fspath(out), root, given, [piece.tobytes() for piece in pieces], query)
    arrays = [numbers(piece.tobytes()) for piece in pieces]
    if folds is None:
        return arrays
    others = [array("q", sorted(at for other in pieces if other is not piece for at in other)) for piece in pieces]
    return [(numbers(other.tobytes()), fold) for other, fold in zip(others, arrays, strict=True)]


def read_split(file: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads the file of a split, as `ddlp.split` and ``ddlp split`` write it.

    Returns the indices of each part, by its name.

    Args:
        file: Path of the file.

    Raises:
        ConfigurationError: The file is not one of a split.
    """
    return {name: numbers(indices) for name, indices in _ddlp.read_split(os.fspath(file))}


def _by(by: Any, balance: Any) -> Any:
    """Returns the groups that `by` and `balance` ask for."""
    if balance is None:
        return by
    if balance not in ("original", "class"):
        raise ConfigurationError(f'balance is {balance!r}, but must be "original", "class" or None')
    if by not in (None, "class"):
        raise ConfigurationError("`by` and `balance` both say how the parts are balanced: leave one of them out")
    return "class"


def _matching(where: Any, indices: Any, dataset: Dataset) -> array[int]:
    """Returns the indices of the samples for which a question is true, in ascending order."""
    if not isinstance(where, str):
        raise ConfigurationError(f"`where` is {where!r}, but must be a text, such as 'label in (1, 2)'")
    if indices is not None:
        raise ConfigurationError("`where` and `indices` both choose samples: leave one of them out")
    return array("q", dataset._native.samples_where(where))


def _seed(seed: Any) -> int:
    number = whole("seed", seed)
    if not 0 <= number < 2**64:
        raise ConfigurationError(f"seed is {number}, but must be a whole number from 0 on")
    return number


def _chosen(indices: Any, count: int) -> array[int] | None:
    """Returns the indices that are to be divided; None for all."""
    if indices is None:
        return None
    chosen = array("q", whole_numbers("`indices`", indices))
    seen: dict[int, int] = {}
    for at, index in enumerate(chosen):
        if not 0 <= index < count:
            raise ConfigurationError(
                f"`indices`[{at}] is {index}, but the dataset has {count} samples, numbered from 0"
            )
        if index in seen:
            raise ConfigurationError(
                f"`indices`[{at}] is {index}, as is `indices`[{seen[index]}]: a sample in two parts would be no "
                "division, so name each once"
            )
        seen[index] = at
    if not chosen:
        raise ConfigurationError("`indices` is empty: leave it out to divide all samples")
    return chosen


def _groups(by: Any, dataset: Dataset, chosen: array[int] | None) -> bytes:
    if by is None:
        return bytes(8 * (len(dataset) if chosen is None else len(chosen)))
    if isinstance(by, str) and by != "class":
        raise ConfigurationError(f'by is {by!r}, but must be "class", or a list of a whole number for each sample')
    groups = array("q", dataset._labels() if isinstance(by, str) else whole_numbers("by", by))
    if len(groups) != len(dataset):
        raise ConfigurationError(
            f"by has {len(groups)} numbers, but the dataset has {len(dataset)} samples: give a number for each"
        )
    return groups.tobytes() if chosen is None else array("q", [groups[index] for index in chosen]).tobytes()


def _sizes(parts: Any, folds: Any, count: int) -> list[int]:
    """Returns the number of samples of each part."""
    if (parts is None) == (folds is None):
        raise ConfigurationError("give either the parts, such as (0.8, 0.2), or folds")
    if folds is not None:
        number = whole("folds", folds)
        if not 2 <= number <= count:
            raise ConfigurationError(f"folds is {number}, but must be 2 to {count}, the number of samples")
        return list(_cut([fold / number for fold in range(1, number + 1)], count))
    try:
        given = list(parts)
        total = math.fsum(given)
    except TypeError:
        raise ConfigurationError(
            f"the parts are {parts!r}, but must be a list of shares, such as (0.8, 0.2), or of numbers of samples"
        ) from None
    if any(not part > 0 for part in given):
        raise ConfigurationError(f"the parts are {parts!r}, but each must be above 0")
    if all(isinstance(part, int) for part in given) and given != [1]:
        if total != count:
            raise ConfigurationError(
                f"the parts are {parts!r}, {sum(given)} samples together, but the dataset has {count}: let the numbers "
                "add up to that, or give shares, such as (0.8, 0.2)"
            )
        return given
    if abs(total - 1) > 1e-9:
        raise ConfigurationError(
            f"the parts are {parts!r}, which add up to {total:g}, but must add up to 1: add a part for the rest"
        )
    return _ddlp.split_sizes([float(part) for part in given], count)


def _cut(ends: list[float], count: int) -> Iterator[int]:
    """Yields the sizes of pieces whose ends are these shares of the whole."""
    begin = 0
    for end in ends[:-1]:
        at = math.floor(end * count + 0.5)
        yield at - begin
        begin = at
    yield count - begin
