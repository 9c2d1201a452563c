"""Times whole epochs of one loader. The last line of output is a JSON object with the figures.

    python bench/peers/run.py pillow --work W1 --source photos --converted FOLDER --images 1000 --batch 64

bench/side-by-side runs this program in the environment of each loader, pinned to its cores. `median` is the images/s
of the median epoch, `per_cpu_s` the images per second of CPU time of all processes.
"""
import argparse
import importlib
import json
import os
import pathlib
import random
import statistics
import sys
import time

import work

TICKS = os.sysconf("SC_CLK_TCK")
LOADERS = pathlib.Path(__file__).resolve().parent / "loaders"


def options():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loader", choices=sorted(path.stem for path in LOADERS.glob("*.py")))
    parser.add_argument("--work", choices=["W1", "W2", "W3"], default="W1")
    parser.add_argument("--variant", default="", help="way to use the loader, if it has several")
    parser.add_argument("--source", metavar="PATH", type=pathlib.Path, required=True,
                        help="folder of JPEGs, or W3's arrays x and y in a .npz file")
    parser.add_argument("--converted", metavar="DIR", type=pathlib.Path, required=True,
                        help="folder for the data that the loader needs in a format of its own")
    parser.add_argument("--images", type=int, default=1000, help="images of an epoch of W1 and W2")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1, help="threads or processes that prepare")
    parser.add_argument("--warmup", type=int, default=1, help="untimed epochs")
    parser.add_argument("--reps", type=int, default=1, help="timed epochs")
    return parser.parse_args()


def cpu_s():
    """Returns the CPU time of this process and its descendants."""
    total = sum(os.times()[:4])
    todo = children_of(os.getpid())
    while todo:
        process = todo.pop()
        try:
            fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # In user and system mode, including children that have ended.
        total += sum(map(int, fields[11:15])) / TICKS
        todo += children_of(process)
    return total


def children_of(process):
    """Returns the processes that a process has started and that are alive."""
    found = []
    for listed in pathlib.Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += map(int, listed.read_text().split())
        except OSError:
            # A thread that has ended meanwhile.
            continue
    return found


def main():
    """Runs the epochs and prints the figures."""
    given = options()
    random.seed(0)
    todo = work.Work(given.work, given.variant, given.source, given.converted, given.images, given.batch, given.threads,
                     given.warmup, given.reps)
    given.converted.mkdir(parents=True, exist_ok=True)
    epoch, note = importlib.import_module(f"loaders.{given.loader}").prepare(todo)
    for _ in range(given.warmup):
        epoch()
    rates, per_cpu_s = [], []
    # An epoch's time begins where that of the epoch before ends: loaders that work ahead never do it untimed.
    begun, cpu = time.perf_counter(), cpu_s()
    for _ in range(given.reps):
        images = epoch()
        ended, cpu_now = time.perf_counter(), cpu_s()
        rates.append(images / (ended - begun))
        per_cpu_s.append(images / max(cpu_now - cpu, 1 / TICKS))
        begun, cpu = ended, cpu_now
    print(json.dumps({
        "peer": given.loader, "work": given.work, "variant": given.variant, "workers": given.threads, "n": images,
        "reps": given.reps, "median": statistics.median(rates), "min": min(rates), "max": max(rates),
        "per_cpu_s": statistics.median(per_cpu_s), "note": note}))
    sys.stdout.flush()
    # Threads and processes of some loaders would keep the interpreter alive.
    os._exit(0)


if __name__ == "__main__":
    main()
