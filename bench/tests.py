"""Tests of the programs in this folder: python3 bench/tests.py"""
import array
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock
import urllib.request
import zipfile

sys.dont_write_bytecode = True

import contenders  # noqa: E402
import datasets  # noqa: E402
import measure  # noqa: E402
import stages  # noqa: E402
import table  # noqa: E402

AVAILABLE = os.sched_getaffinity(0)
HERE = pathlib.Path(__file__).resolve().parent
# Output that bench/profile gets from perf without root: no tracepoints, and nothing of the kernel.
PERF_OF_A_USER = """#!/bin/sh
case "$1" in
report) echo "# Samples: 4 of event 'cpu-clock:u'"; echo '30|[.] ddlp_pixels::resize::columns'; echo '10|[.] main';;
record) while [ "$1" != taskset ]; do shift; done; exec "$@";;
stat)
  case "$*" in *:sys_enter_*) echo 'no permissions' >&2; exit 129;; *taskset*) ;; *) exit 0;; esac
  while [ "$1" != --output ]; do shift; done
  out=$2; shift 2
  printf '%s||page-faults:u|1|100\\n0||context-switches:u|1|100\\n' "$(cat "$COUNTS")" >"$out"
  echo 90 >"$COUNTS"
  exec "$@";;
esac
"""
LOADER = """#!/bin/sh
[ -z "$SIGNALLED" ] || { kill -INT "$PPID"; exec sleep 60; }
echo '{"n": 10, "per_cpu_s": 1000, "median": 1000}'
"""
CARGO = """#!/bin/sh
[ "$1" != metadata ] || echo '{"target_directory": "'"$TARGET"'"}'
"""


def program(path, text):
    """Writes an executable script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def start(name, folder, *words, **environment):
    """Runs one of the two programs with stand-ins for perf, cargo and our loader, which lie in `folder`."""
    program(folder / "bin/perf", PERF_OF_A_USER)
    program(folder / "bin/cargo", CARGO)
    program(folder / "release/examples/epochs_f32", LOADER)
    (folder / "counts").write_text("100")
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return subprocess.run([sys.executable, HERE / name, *map(str, words)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False, timeout=60,
                          env={**os.environ, "PATH": path, "TARGET": str(folder), "COUNTS": str(folder / "counts"),
                               **environment})


def script(name):
    """Loads a program of this folder as a module, without running it."""
    loader = importlib.machinery.SourceFileLoader(name, str(HERE / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def contender(code):
    """Returns a contender that runs a few lines of Python."""
    return contenders.Contender("test", "W1", 1, [sys.executable, "-c", code], {}, [])


class Figures(unittest.TestCase):
    """Figures of the runs."""

    @staticmethod
    def row(name, rates, is_ours=False, cores=1):
        runs = [{"median": rate, "per_cpu_s": rate, "rss_mb": rate, "anonymous_mb": 1, "other_cores": 0}
                for rate in rates]
        return {"name": name, "cores": cores, "is_ours": is_ours, "runs": runs}

    def test_a_ratio_is_that_of_one_round(self):
        # The machine was half as fast in the second round: the ratio of medians would be 1.5.
        rows = table.figures([self.row("peer", [100, 50, 100]), self.row("ddlp", [200, 100, 150], is_ours=True)])
        self.assertEqual([row["name"] for row in rows], ["ddlp", "peer"])
        self.assertEqual(rows[1]["ratios"], {"ddlp": 2})
        self.assertEqual((rows[0]["images_per_s"], rows[0]["peak_rss_mb"]), (150, 200))
        self.assertEqual(rows[1]["spread"], 0.5)

    def test_rows_are_compared_on_as_many_cores_and_scale_by_rounds(self):
        rows = table.figures([
            self.row("peer", [100, 50]), self.row("ddlp", [200, 100], is_ours=True),
            self.row("peer", [150, 75], cores=2), self.row("ddlp", [390, 195], is_ours=True, cores=2),
            self.row("other", [10, 10], cores=2)])
        found = {(row["name"], row["cores"]): (row["ratios"]["ddlp"], row["scaling"]) for row in rows}
        self.assertEqual(found, {("peer", 1): (2, None), ("ddlp", 1): (1, None), ("peer", 2): (2.6, 1.5),
                                 ("ddlp", 2): (1, 1.95), ("other", 2): (29.25, None)})
        lines = table.table("W1", "what", [row for row in rows if row["cores"] == 2], 2)
        self.assertTrue(lines[0].endswith("2 cores") and lines[1].endswith("scaling"))
        self.assertEqual([line.split()[-1] for line in lines[2:]], ["1.95", "1.50", "–"])

    def test_stores_are_those_of_the_same_round_and_cores(self):
        rows = table.figures([self.row("ddlp", [1000, 500, 700], is_ours=True, cores=2),
                              self.row("peer", [1, 1, 1], cores=2)])
        of_round = [rate * table.BYTES_STORED for rate in (2000, 1000, 7000)]
        lines = table.stores({"works": {"W3": rows}, "store_bytes_per_s": {1: [1] * 3, 2: of_round}})
        self.assertEqual(len(lines), 1)
        self.assertIn("ddlp, W3, 2 of the cores", lines[0])
        self.assertIn(" 50% ", lines[0])

    def test_one_round_has_no_spread(self):
        rows = table.figures([self.row("ddlp", [130000.4], is_ours=True)])
        lines = table.table("W3", "what", rows, 1)
        self.assertEqual(lines[2].split()[:4], ["ddlp", "130000", "–", "1.00"])

    def test_memory_that_nobody_looked_at_is_no_zero(self):
        row = self.row("ddlp", [130, 120], is_ours=True)
        row["runs"][0]["rss_mb"] = None
        self.assertEqual(table.figures([row])[0]["peak_rss_mb"], 120)
        row["runs"][1]["rss_mb"] = None
        lines = table.table("W3", "what", table.figures([row]), 1)
        self.assertEqual(lines[2].split()[-2:], ["–", "1.0"])

    def test_other_work_is_a_warning(self):
        rows = table.figures([self.row("ddlp", [1.0], is_ours=True)])
        self.assertEqual(table.disturbances({"works": {"W1": rows}}), [])
        rows[0]["other_cores"] = 0.5
        self.assertIn("0.50", table.disturbances({"works": {"W1": rows}})[0])


class Profiles(unittest.TestCase):
    """Tables of bench/profile from perf's output."""

    def test_functions_have_stages(self):
        report = ("# Total Lost Samples: 0\n#\n\n20|[.] ddlp_pixels::jpeg::baseline::scan::Scan::run_bmi2|-      -\n"
                  "40|[.] ddlp_pixels::jpeg::baseline::block::one|-\n"
                  "15|[.] ddlp_pixels::jpeg::baseline::idct::x86::transform_avx2|-\n5|[.] jsimd_idct_islow_avx2|-\n"
                  "12|[k] _copy_to_iter|-\n8|[.] main|-\n")
        found = stages.shares(report, 0.5)
        self.assertEqual(found, {"entropy codes": 0.6, "inverse transform": 0.2, "reading": 0.12, "the rest": 0.08})
        self.assertEqual(list(found)[-1], "the rest")
        self.assertEqual(stages.table(found, 500)[1].split(), ["entropy", "codes", "60.0%", "300.0"])
        self.assertEqual(stages.table(found, 1.6)[2].split(), ["inverse", "transform", "20.0%", "0.320"])

    def test_counters_are_those_of_the_images_more(self):
        short = stages.counters("# started on …\n\n110||page-faults|1|100.00||\n"
                                "<not supported>||syscalls:sys_enter_futex|0|100.00||\n"
                                "80||cpu-migrations|1|100.00||\n0||context-switches:u|1|100.00||\n")
        long = stages.counters("510||page-faults:u|1|100.00||\n7||syscalls:sys_enter_futex|1|100.00||\n"
                               "2||cpu-migrations|1|100.00||\n0||context-switches:u|1|100.00||\n")
        lines = stages.per_image((short, long), 2000)
        self.assertEqual([line.split() for line in lines[1:3]],
                         [["page", "faults", "200.0"], ["migrations", "below", "noise"]])
        self.assertTrue(lines[3].startswith("not visible: context switches, futex calls, reads ("), lines[3])

    def test_what_perf_gives_to_root_alone_is_missing_and_nothing_else(self):
        with tempfile.TemporaryDirectory() as name:
            done = start("profile", pathlib.Path(name), "photos")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        resizing, hidden = ([float(word.rstrip("%")) for word in line.split()[-2:]] for line in lines
                            if line.startswith(("resizing", stages.HIDDEN)))
        # Three quarters of the time that perf saw, at 1000 µs an image.
        self.assertAlmostEqual(resizing[0], 0.75 * (100 - hidden[0]), delta=0.2)
        self.assertAlmostEqual(resizing[1], 10 * resizing[0], delta=1)
        self.assertIn("  page faults           below noise", lines)
        unseen = "not visible: context switches, migrations, futex calls, reads ("
        self.assertTrue(lines[-1].startswith(unseen), lines[-1])
        self.assertEqual([line[:10] for line in done.stderr.splitlines()], ["run 1 of 3", "run 2 of 3", "run 3 of 3"])

    def test_interrupted_it_says_so_in_a_line(self):
        with tempfile.TemporaryDirectory() as name:
            before = signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                done = start("profile", pathlib.Path(name), "photos", SIGNALLED="1")
            finally:
                signal.signal(signal.SIGINT, before)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("\nstopped: ", done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_numbers_begin_at_one_and_cores_are_those_there_are(self):
        with tempfile.TemporaryDirectory() as name:
            for words, message in [(["--threads", "0"], "--threads: '0' is not a whole number of 1 or more"),
                                   (["--epochs", "-1"], "--epochs: '-1' is not a whole number of 1 or more"),
                                   (["--threads", "99999"],
                                    f"--threads 99999: this process may use only {len(AVAILABLE)} cores")]:
                done = start("profile", pathlib.Path(name), "photos", *words)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(message, done.stderr)


class DriveAlone(unittest.TestCase):
    """bench/drive-alone."""

    program = script("drive-alone")

    def test_differences_are_those_of_one_round(self):
        rounds = [{"file": 100, "drive": 120, "recv": 10}, {"file": 50, "drive": 60, "recv": 20},
                  {"file": 100, "drive": 130, "recv": 10}]
        lines = [line.rsplit(maxsplit=3)[1:] for line in self.program.table(rounds)]
        self.assertEqual(lines[1:], [["100.0", "50.0", "100.0"], ["120.0", "60.0", "130.0"], ["10.0", "10.0", "20.0"],
                                     ["20.0", "10.0", "30.0"], ["2.00", "0.50", "3.00"]])

    def test_a_receiver_takes_all_bytes_and_its_cores_are_given_back(self):
        core = min(AVAILABLE)
        self.assertGreater(self.program.receive(100_000, 300, core, core), 0)
        self.assertEqual(os.sched_getaffinity(0), AVAILABLE)


class SlowLink(unittest.TestCase):
    """bench/link."""

    program = script("link")

    def test_all_connections_together_get_no_more_bytes_than_the_limit(self):
        link = self.program.Link(1e6)
        packs = {"pack.ddlp": bytes(range(256)) * 500}
        came = []

        def read(url, start):
            request = urllib.request.Request(url + "pack.ddlp", headers={"Range": f"bytes={start}-{start + 29_999}"})
            with urllib.request.urlopen(request) as answer:
                self.assertEqual(answer.status, 206)
                came.append(answer.read() == packs["pack.ddlp"][start:start + 30_000])

        begun = time.monotonic()
        with self.program.serving(link, packs) as url:
            readers = [threading.Thread(target=read, args=(url, 1000 * number)) for number in range(10)]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join()
        self.assertEqual((came, link.sent, link.requests), ([True] * 10, 300_000, 10))
        # A slow machine makes it longer, never shorter.
        self.assertGreaterEqual(time.monotonic() - begun, 0.3)


class Runs(unittest.TestCase):
    """One run of a contender."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        seen, look = pathlib.Path(folder.name) / "seen", measure.Memory.look

        def looked(memory):
            look(memory)
            if memory.anonymous > 60e6:
                seen.touch()

        patch = mock.patch.object(measure.Memory, "look", looked)
        patch.start()
        self.addCleanup(patch.stop)
        # A program that holds memory until a reading has seen it, a minute at most.
        self.holds = ("import os, time; held = bytearray(b'x') * 60_000_000; until = time.monotonic() + 60\n"
                      f"while not os.path.exists({str(seen)!r}) and time.monotonic() < until: time.sleep(0.01)\n")

    def test_figures_memory_and_core_of_a_run(self):
        core = min(AVAILABLE)
        code = (self.holds + "import json; print('before'); cores = os.sched_getaffinity(0)\n"
                "print('RESULT', json.dumps({'per_cpu_s': 1.5, 'median': len(cores), 'core': max(cores)}))")
        figures = measure.run(contender(code), [core])
        self.assertEqual((figures["median"], figures["core"]), (1, core))
        self.assertGreater(figures["anonymous_mb"], 60)
        self.assertGreaterEqual(figures["rss_mb"], figures["anonymous_mb"])

    def test_memory_of_children_counts(self):
        code = ("import subprocess, sys\n"
                f"subprocess.run([sys.executable, '-c', {self.holds!r}])\n"
                "print('{\"median\": 1, \"per_cpu_s\": 1}')")
        self.assertGreater(measure.run(contender(code), [min(AVAILABLE)])["anonymous_mb"], 60)

    def test_a_process_that_ends_while_its_tree_is_looked_at_is_the_end_of_its_branch(self):
        child = subprocess.Popen(["sleep", "60"])
        self.assertIn(child.pid, measure.descendants(os.getpid()))
        child.kill()
        child.wait()
        self.assertNotIn(child.pid, measure.descendants(os.getpid()))
        # As if the process had ended between two readings.
        gone = FileNotFoundError("/proc/1/task")
        with mock.patch("os.listdir", side_effect=gone), mock.patch("os.scandir", side_effect=gone):
            self.assertEqual(measure.descendants(1), [1])

    def test_a_run_without_figures_says_why(self):
        with self.assertRaisesRegex(measure.Failed, "status 1: ModuleNotFoundError: .*no_such_module"):
            measure.run(contender("import no_such_module"), [min(AVAILABLE)])
        with self.assertRaisesRegex(measure.Failed, "status 0: it printed nothing"):
            measure.run(contender("print('no figures')"), [min(AVAILABLE)])

    def test_a_run_whose_figures_lack_one_says_which(self):
        with self.assertRaisesRegex(measure.Failed, "no number 'per_cpu_s'"):
            measure.run(contender("print('{\"median\": 1.5}')"), [min(AVAILABLE)])

    def test_a_run_that_is_over_before_its_memory_is_looked_at_has_none(self):
        with mock.patch.object(measure, "LOOK_S", 60):
            figures = measure.run(contender("print('{\"median\": 1, \"per_cpu_s\": 1}')"), [min(AVAILABLE)])
        self.assertEqual((figures["rss_mb"], figures["anonymous_mb"]), (None, None))

    def test_the_reason_is_not_the_advice_after_it(self):
        self.assertEqual(measure.complaint("Traceback\nOSError: no library\n  try another\n"), "OSError: no library")
        self.assertEqual(measure.complaint("cc: fatal error: jpeglib.h\nhint: upgrade\n"), "cc: fatal error: jpeglib.h")

    def test_all_files_of_a_contender_are_read_whole_before_it(self):
        read = {}

        class Counted(io.FileIO):
            """A file that records what is read of it."""

            def read(self, size=-1):
                content = super().read(size)
                name = pathlib.Path(self.name).name
                read[name] = read.get(name, 0) + len(content)
                return content

        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name, "a")
            folder.mkdir()
            for path in (folder / "1", pathlib.Path(name, "2")):
                path.write_bytes(b"x" * (3 << 20))
            with mock.patch.object(pathlib.Path, "open", lambda path, *_, **__: Counted(path)):
                measure.warm([folder, pathlib.Path(name, "2"), pathlib.Path(name, "none")])
        self.assertEqual(read, {"1": 3 << 20, "2": 3 << 20})

    def test_stores_have_a_bandwidth_and_leave_the_cores_of_this_process_alone(self):
        with mock.patch.object(measure, "STORE_BYTES", 1 << 20):
            self.assertGreater(measure.store_bandwidth(sorted(AVAILABLE)[:2]), 0)
            with self.assertRaisesRegex(measure.Failed, "cannot be measured"):
                measure.store_bandwidth([min(AVAILABLE), 1 << 14])
        self.assertEqual(os.sched_getaffinity(0), AVAILABLE)

    def test_threads_of_one_core_are_taken_last(self):
        self.assertEqual(measure.choose_cores({0, 1, 2, 3}, 2, lambda core: {core, core ^ 1}), [0, 2])
        self.assertEqual(measure.choose_cores({0, 1}, 2, lambda core: {0, 1}), [0, 1])


class Data(unittest.TestCase):
    """Data made for the peers."""

    def test_arrays_hold_planes_as_pixels(self):
        with tempfile.TemporaryDirectory() as name:
            batch, arrays = pathlib.Path(name, "data_batch_1.bin"), pathlib.Path(name, "x.npz")
            planes = b"".join(bytes([value]) * 1024 for value in (10, 20, 30))
            batch.write_bytes(bytes([7]) + planes + bytes([3]) + planes)
            datasets.write_arrays(arrays, [batch])
            with zipfile.ZipFile(arrays) as opened:
                pixels, labels = opened.read("x.npy"), opened.read("y.npy")
        self.assertIn(b"'shape': (2, 32, 32, 3)", pixels)
        for content, values in [(pixels, bytes([10, 20, 30]) * 2048), (labels, array.array("q", [7, 3]).tobytes())]:
            header = 10 + int.from_bytes(content[8:10], "little")
            self.assertEqual((content[:8], header % 64), (b"\x93NUMPY\x01\x00", 0))
            self.assertEqual(content[header:], values)

    def test_a_changed_file_is_another_state(self):
        with tempfile.TemporaryDirectory() as name:
            path = pathlib.Path(name, "a", "1.JPEG")
            path.parent.mkdir()
            path.write_bytes(b"1")
            before = datasets.state(name)
            self.assertEqual((datasets.jpegs(name), datasets.state(name)), ([str(path)], before))
            path.write_bytes(b"22")
            self.assertNotEqual(datasets.state(name), before)

    def test_a_link_to_nothing_has_a_state(self):
        with tempfile.TemporaryDirectory() as name:
            before = datasets.state(name)
            pathlib.Path(name, "1.jpg").symlink_to("nowhere")
            self.assertNotEqual(datasets.state(name), before)

    def test_damaged_files_are_named_after_the_first_pack(self):
        listed = [{"sample": number, "name": f"a/{number}.jpg", "verdict": "rejected: truncated"}
                  for number in range(12)]
        listed.append({"sample": 12, "name": "a/12.jpg", "verdict": "repaired"})
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            source = folder / "photos/a"
            source.mkdir(parents=True)
            (source / "1.jpg").touch()
            program(folder / "release/ddlp", "#!/bin/sh\n"
                    f"[ $1 != inspect ] || echo '{json.dumps({'pack': {'listed': listed}})}'\n"
                    '[ $1 != pack ] || { echo "$@" >>"$TARGET/packs"; touch "$3"; }\n')
            for _ in range(2):
                done = start("side-by-side", folder, "--peers", "none", "--work", "W1", "--jpegs", source.parent)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn("rejects 12 of its files: remove them\n  a/0.jpg: truncated\n", done.stderr)
                self.assertTrue(done.stderr.endswith("a/9.jpg: truncated\n  and 2 more\n"), done.stderr)
            # The second run knows the damaged files without packing again.
            self.assertEqual(len((folder / "packs").read_text().splitlines()), 1)

    def test_a_file_that_cannot_be_written_is_found_before_anything_is_made(self):
        with tempfile.TemporaryDirectory() as name:
            done = start("side-by-side", pathlib.Path(name), "--peers", "none", "--json", f"{name}/none/x.json")
            self.assertFalse(pathlib.Path(name, "side-by-side").exists())
        self.assertEqual((done.returncode, done.stderr),
                         (1, f"error: --json {name}/none/x.json: No such file or directory\n"))

    def test_what_takes_time_is_announced_when_it_is_made_and_not_again(self):
        with tempfile.TemporaryDirectory() as name, mock.patch.object(datasets, "say") as say:
            home = pathlib.Path(name)
            ddlp = home / "ddlp"
            program(ddlp, '#!/bin/sh\n[ $1 = pack ] && touch "$3" || mkdir "$2"\n')
            made = datasets.Datasets(home / "made", ddlp)
            for _ in range(2):
                photographs = made.photographs(None, 3)
                made.pack(photographs, "kept")
        self.assertEqual([call.args[0] for call in say.call_args_list],
                         ["making 3 photographs", f"packing {photographs}: kept"])


    def test_what_another_program_or_other_options_make_is_made_again(self):
        with tempfile.TemporaryDirectory() as name:
            program, home = pathlib.Path(name, "ddlp"), pathlib.Path(name, "home")

            def made(version, options):
                program.write_text(f"#!/bin/sh\n# {version}\n[ $1 = pack ] && exec touch \"$3\"\n"
                                   "[ $1 = sample-data ] && mkdir \"$2\"\n")
                program.chmod(0o755)
                of = datasets.Datasets(home, program)
                source = of.photographs(None, 3)
                converted = of.for_peers(source, False).converted
                paths = [source, of.pack(source), of.pack(source, "raw", options), converted]
                self.assertTrue(all(path.exists() for path in paths))
                return paths

            first = made(1, ["--format", "raw"])
            times = [path.stat().st_mtime_ns for path in first]
            self.assertEqual(made(1, ["--format", "raw"]), first)
            self.assertEqual([path.stat().st_mtime_ns for path in first], times)
            smaller = made(1, ["--format", "raw", "--max-side", "500"])
            self.assertEqual([new == old for new, old in zip(smaller, first)], [True, True, False, True])
            second = made(2, ["--format", "raw"])
            self.assertFalse(set(second) & set(first + smaller))
            # Data that no program makes any more is removed.
            self.assertEqual(sorted(home.iterdir()), sorted(second))


class ThroughPython(unittest.TestCase):
    """bench/through-python with stand-ins for our programs, pip and Python."""

    def test_rounds_have_a_ratio_and_a_control(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            program(folder / "release/ddlp", "#!/bin/sh\n[ $1 = pack ] && exec touch \"$3\"\n"
                    "mkdir \"$2\" && touch \"$2/1.jpg\"\n")
            program(folder / "side-by-side/maker/bin/pip", "#!/bin/sh\n")
            program(folder / "python", "#!/bin/sh\n[ -n \"$PYTHONPATH\" ] || exit 1\n[ $1 = -c ] && exec echo 0.005\n"
                    "[ $2 = ddlp ] || exit 1\n"
                    """echo '{"per_cpu_s": 980, "median": 980, "note": "stand-in"}'\n""")
            done = start("through-python", folder, "--rounds", 3, "--python", folder / "python")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line.split() for line in done.stdout.splitlines()]
        self.assertEqual(lines[1:4], [[str(number), "1000", "980", "1000", "0.980", "1.000"] for number in range(3)])
        self.assertEqual(" ".join(lines[4]), "median of python ÷ rust 0.980, of the control 1.000")
        self.assertEqual(" ".join(lines[5]), "import ddlp: 5 to 5 ms, median 5")
        self.assertEqual(lines[6][0], "stand-in;")


class Against(unittest.TestCase):
    """bench/against."""

    program = script("against")

    def test_a_round_has_our_program_between_two_runs_of_the_other(self):
        rates = (900, 1000, 1100)
        runs = [contender(f"print('{{\"median\": 1, \"per_cpu_s\": {rate}}}')") for rate in rates]
        ratios, controls = self.program.compare(runs, [], 2, sorted(AVAILABLE)[:1])
        self.assertEqual(ratios, [1.0, 1.0])
        self.assertEqual([round(control, 3) for control in controls], [1.222, 1.222])

    def test_a_commit_that_does_not_exist_is_named(self):
        with tempfile.TemporaryDirectory() as name, self.assertRaises(SystemExit) as ended:
            self.program.build_other("no-such-commit", pathlib.Path(name))
        self.assertIn("no commit no-such-commit", str(ended.exception))


class Peers(unittest.TestCase):
    """The peers' scripts."""

    @unittest.skipIf(importlib.util.find_spec("ensurepip") is None,
                     "this Python makes no virtual environments (no ensurepip)")
    def test_a_failed_installation_says_why_and_is_tried_again(self):
        with tempfile.TemporaryDirectory() as name, mock.patch.dict(contenders.ENVIRONMENTS):
            home = pathlib.Path(name)
            contenders.ENVIRONMENTS["light"] = [["--no-index", "no-such-package"]]
            self.assertIn("no-such-package", contenders.install("light", home))
            contenders.ENVIRONMENTS["light"] = [["--no-index", "--upgrade", "pip"]]
            self.assertIsNone(contenders.install("light", home))
            made = home / "light/made-once"
            made.touch()
            self.assertIsNone(contenders.install("light", home))
            self.assertTrue(made.exists())

    def test_every_peer_has_an_environment(self):
        environments = {peer[0] for peer in contenders.PEERS.values()} | {"torchvision"}
        self.assertEqual(environments, set(contenders.ENVIRONMENTS))

    def test_every_peer_has_a_program_for_its_works(self):
        data = datasets.ForPeers(pathlib.Path("photos"), pathlib.Path("made"))
        for peer in contenders.PEERS:
            rows = contenders.theirs("W1", peer, pathlib.Path("venvs"), data, 2000, 1)
            self.assertTrue(rows, peer)
            for row in rows:
                self.assertTrue((contenders.PEER_PROGRAM.parent / f"loaders/{row.command[2]}.py").is_file(), peer)
        for path in contenders.PEER_PROGRAM.parent.rglob("*.py"):
            compile(path.read_text(), path, "exec")
        self.assertEqual(contenders.theirs("W3", "pillow", pathlib.Path(), data, 1, 1), [])

    def test_what_was_converted_is_read_in_place_of_the_images_and_by_its_peer_alone(self):
        def rows(work):
            data = datasets.ForPeers(pathlib.Path("photos"), pathlib.Path(name))
            return contenders.theirs(work, "ffcv", pathlib.Path("venvs"), data, 2000, 1)

        with tempfile.TemporaryDirectory() as name:
            made = pathlib.Path(name, "ffcv-q90", "W1.beton")
            made.parent.mkdir(parents=True)
            # An empty folder holds nothing to read.
            self.assertEqual([row.files() for row in rows("W1")], [[pathlib.Path("photos")]] * 3)
            made.touch()
            folders = [row.converts_to for row in rows("W1")]
            self.assertEqual(folders[1], made.parent)
            self.assertEqual(len(set(folders)), 3)
            self.assertEqual([row.files()[0] for row in rows("W1")],
                             [pathlib.Path("photos"), made.parent, pathlib.Path("photos")])
            (of_arrays,) = rows("W3")
            of_arrays.converts_to.mkdir()
            (of_arrays.converts_to / "cifar.beton").touch()
            self.assertEqual(of_arrays.files(), [of_arrays.converts_to, pathlib.Path("photos")])


if __name__ == "__main__":
    unittest.main()
