"""Runs a contender of bench/side-by-side on fixed cores, and measures its memory and the machine's other work."""
import ctypes
import json
import os
import pathlib
import platform
import re
import resource
import signal
import subprocess
import tempfile
import threading
import time

# Limit of a run; a longer run counts as failed. A peer's first run may convert the data.
RUN_SECONDS_MAX = 900
# Interval between two readings of a run's memory.
LOOK_S = 0.1
# CPU time of other processes, in cores, above which figures count as disturbed.
QUIET_CORES = 0.1
# To measure the bandwidth of stores: bytes that a core stores at a time, and how often.
STORE_BYTES = 256 << 20
STORES = 8
TICKS = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """Error of a run that has no figures; one line says why."""


def run(contender, cores):
    """Runs a contender once. Returns its figures with `rss_mb`, `anonymous_mb` (both None for a short run) and
    `other_cores` added."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        before, begun = machine_busy_s(), time.monotonic()
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = subprocess.Popen(
            contender.command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
            # No compiled files in the peers' folder, and one-line error messages.
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "RUST_BACKTRACE": "0", **contender.environment},
            preexec_fn=lambda: os.sched_setaffinity(0, cores))
        memory = Memory(process.pid)
        try:
            status = process.wait(RUN_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise Failed(f"took longer than {RUN_SECONDS_MAX} s") from None
        finally:
            memory.stop()
            # Helper processes left behind would disturb the next run.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        wall_s = time.monotonic() - begun
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        own_s = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
        out.seek(0)
        err.seek(0)
        figures = last_figures(out.read().decode(errors="replace"))
        if figures is None:
            raise Failed(f"ended with status {status}: {complaint(err.read().decode(errors='replace'))}")
    for name in ("median", "per_cpu_s"):
        if not isinstance(figures.get(name), (int, float)):
            raise Failed(f"its last line of JSON has no number '{name}'")
    # A run that ended before the first reading has no memory figures.
    figures["rss_mb"], figures["anonymous_mb"] = (value / 1e6 if value else None
                                                  for value in (memory.rss, memory.anonymous))
    figures["other_cores"] = max(0.0, machine_busy_s() - before - own_s) / wall_s
    return figures


def complaint(said):
    """Returns the line that says what is wrong: the last Python exception, else the last line with “error”, else the
    last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    exceptions = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)]
    errors = [line for line in lines if "error" in line.lower()]
    return (exceptions or errors or lines or ["it printed nothing"])[-1][:200]


def last_figures(out):
    """Returns the last line that is a JSON object, with or without the word RESULT in front."""
    for line in reversed(out.splitlines()):
        try:
            figures = json.loads(line.removeprefix("RESULT "))
        except ValueError:
            continue
        if isinstance(figures, dict):
            return figures
    return None


class Memory:
    """Peak memory of a process and its descendants together, read at intervals."""

    def __init__(self, root):
        self.root, self.rss, self.anonymous, self.over = root, 0, 0, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        """Reads the memory until `stop` is called."""
        while not self.over.wait(LOOK_S):
            self.look()

    def look(self):
        """Reads the memory once. The kernel also reports each process's own peak, so that none is missed."""
        tree = [memory_of(process) for process in descendants(self.root)]
        sums = [sum(process.get(name, 0) for process in tree) for name in ("VmRSS", "RssAnon", "RssShmem")]
        peaks = [process.get("VmHWM", 0) for process in tree]
        self.rss = max([self.rss, sums[0], *peaks])
        self.anonymous = max(self.anonymous, sums[1] + sums[2])

    def stop(self):
        """Stops the readings."""
        self.over.set()
        self.thread.join()


def warm(paths):
    """Reads files, and those in folders, into the page cache, from which some machines drop files that are not used for
    a while."""
    for path in paths:
        for file in [path] if path.is_file() else path.rglob("*"):
            if file.is_file():
                with file.open("rb", buffering=0) as opened:
                    while opened.read(1 << 20):
                        pass


def store_bandwidth(cores):
    """Returns the bytes per second that these cores together store to memory, each to its own, larger than caches.
    Raises `Failed` if a core may not be used or memory is missing."""
    rates, ready = [], threading.Barrier(len(cores))

    def fill(core):
        try:
            # The affinity of this thread alone.
            os.sched_setaffinity(0, [core])
            memory = ctypes.create_string_buffer(STORE_BYTES)
        except (OSError, MemoryError):
            ready.abort()
            return
        ctypes.memset(memory, 1, STORE_BYTES)
        try:
            ready.wait()
        except threading.BrokenBarrierError:
            return
        begun = time.monotonic()
        for _ in range(STORES):
            ctypes.memset(memory, 2, STORE_BYTES)
        rates.append(STORES * STORE_BYTES / (time.monotonic() - begun))

    threads = [threading.Thread(target=fill, args=[core]) for core in cores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(rates) < len(cores):
        raise Failed("the bandwidth of stores cannot be measured: a core or memory is missing")
    return sum(rates)


def descendants(root):
    """Returns the process and those of its descendants that are alive."""
    found, todo = [], [root]
    while todo:
        process = todo.pop()
        found.append(process)
        try:
            threads = os.listdir(f"/proc/{process}/task")
        except OSError:
            # It has ended meanwhile.
            continue
        for thread in threads:
            todo += [int(child) for child in first_line(f"/proc/{process}/task/{thread}/children").split()]
    return found


def memory_of(process):
    """Returns the lines Vm… and Rss… of a process's status in bytes, or nothing if the process is gone."""
    try:
        lines = pathlib.Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in lines if line.startswith(("Vm", "Rss")))
    return {name: int(value.split()[0]) * 1024 for name, value in pairs}


def machine_busy_s():
    """Returns the CPU time that the machine's processes used and that a hypervisor took away."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, first_line("/proc/stat").split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS


def first_line(path, otherwise=""):
    """Returns the first line of one of the kernel's files."""
    try:
        return pathlib.Path(path).read_text().splitlines()[0]
    except (OSError, IndexError):
        return otherwise


def available_cores():
    """Returns the cores that this process may use."""
    return os.sched_getaffinity(0)


def choose_cores(available, count, siblings):
    """Returns the first cores, if possible without two hardware threads of the same core."""
    chosen, others = [], []
    for core in sorted(available):
        (others if siblings(core) & set(chosen) else chosen).append(core)
    return (chosen + others)[:count]


def siblings(core):
    """Returns the hardware threads of the same core, this one included."""
    listed = first_line(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list", str(core))
    found = set()
    for part in listed.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def machine(cores):
    """Describes the machine: processor, cores, kernel, governor."""
    listed = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in listed if line.startswith("model name")]
    governors = {first_line(f"/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor") for core in cores}
    return {
        "processor": names[0] if names else platform.machine(),
        "online_cores": os.cpu_count(),
        "used_cores": cores,
        "kernel": f"{platform.system()} {platform.release()}",
        "governor": "/".join(sorted(governors - {""})) or None,
        "load_before": os.getloadavg()[0],
    }


def warnings_about(described):
    """Returns what makes figures on this machine doubtful, before the first run."""
    found = []
    if described["governor"] not in (None, "performance"):
        found.append(f"the frequency governor is {described['governor']}, not performance")
    if described["load_before"] > QUIET_CORES:
        found.append(f"the load average before the first run was {described['load_before']:.2f}")
    cores = described["used_cores"]
    if any(siblings(core) & set(cores) != {core} for core in cores):
        found.append("the cores are hardware threads of one core")
    return found
