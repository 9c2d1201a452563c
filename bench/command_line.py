"""What the command lines of bench/side-by-side and bench/profile share: numbers, cores, progress."""
import argparse
import sys

import measure


def positive(text):
    """A number from 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1")
    return int(text)


def usable_cores(option, count):
    """The cores that this process may use; an error where they are fewer than `option` asks for."""
    available = measure.available_cores()
    if len(available) < count:
        raise SystemExit(f"error: {option} {count}: this process may use {len(available)}")
    return available


def say(text):
    """Progress, beside what goes to standard output."""
    print(text, file=sys.stderr, flush=True)
