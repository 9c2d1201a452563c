"""Helpers for the command lines of bench/side-by-side and bench/profile: numbers, cores, progress."""
import argparse
import sys

import measure


def positive(text):
    """Parses a whole number, 1 or more."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 1 or more")
    return int(text)


def usable_cores(option, count):
    """Returns the cores that this process may use. Exits if `option` asks for more."""
    available = measure.available_cores()
    if len(available) < count:
        raise SystemExit(f"error: {option} {count}: this process may use only {len(available)} cores")
    return available


def say(text):
    """Prints progress on standard error, which keeps standard output for results."""
    print(text, file=sys.stderr, flush=True)
