"""Tests of bench/side-by-side: python3 bench/tests.py"""
import array
import importlib.util
import io
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock
import zipfile

sys.dont_write_bytecode = True

import contenders  # noqa: E402
import datasets  # noqa: E402
import measure  # noqa: E402
import stages  # noqa: E402
import table  # noqa: E402

AVAILABLE = os.sched_getaffinity(0)


def contender(code):
    """A run of a few lines of Python."""
    return contenders.Contender("test", "W1", 1, [sys.executable, "-c", code], {}, [])


class Figures(unittest.TestCase):
    """What follows from the runs."""

    @staticmethod
    def row(name, rates, is_ours=False, cores=1):
        runs = [{"median": rate, "per_cpu_s": rate, "rss_mb": rate, "anonymous_mb": 1, "other_cores": 0} for rate in rates]
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
        self.assertEqual(found, {("peer", 1): (2, None), ("ddlp", 1): (1, None), ("peer", 2): (2.6, 1.5), ("ddlp", 2): (1, 1.95),
                                 ("other", 2): (29.25, None)})
        lines = table.table("W1", "what", [row for row in rows if row["cores"] == 2], 2)
        self.assertTrue(lines[0].endswith("2 cores") and lines[1].endswith("scaling"))
        self.assertEqual([line.split()[-1] for line in lines[2:]], ["1.95", "1.50", "–"])

    def test_stores_are_those_of_the_same_round_and_cores(self):
        rows = table.figures([self.row("ddlp", [1000, 500, 700], is_ours=True, cores=2), self.row("peer", [1, 1, 1], cores=2)])
        of_round = [rate * table.BYTES_STORED for rate in (2000, 1000, 7000)]
        lines = table.stores({"works": {"W3": rows}, "store_bytes_per_s": {"W3": {1: [1] * 3, 2: of_round}}})
        self.assertEqual(len(lines), 1)
        self.assertIn("ddlp, W3, 2 of the cores", lines[0])
        self.assertIn(" 50% ", lines[0])

    def test_one_round_has_no_spread(self):
        rows = table.figures([self.row("ddlp", [130000.4], is_ours=True)])
        lines = table.table("W3", "what", rows, 1)
        self.assertEqual(lines[2].split()[:4], ["ddlp", "130000", "–", "1.00"])

    def test_other_work_is_a_warning(self):
        rows = table.figures([self.row("ddlp", [1.0], is_ours=True)])
        self.assertEqual(table.disturbances({"works": {"W1": rows}}), [])
        rows[0]["other_cores"] = 0.5
        self.assertIn("0.50", table.disturbances({"works": {"W1": rows}})[0])


class Profiles(unittest.TestCase):
    """What bench/profile makes of perf's output."""

    def test_functions_have_stages(self):
        report = ("# Total Lost Samples: 0\n#\n\n60|[.] ddlp_pixels::jpeg::baseline::scan::Scan::run_bmi2|-      -\n"
                  "15|[.] ddlp_pixels::jpeg::baseline::idct::x86::transform_avx2|-\n5|[.] jsimd_idct_islow_avx2|-\n"
                  "12|[k] _copy_to_iter|-\n8|[.] main|-\n")
        found = stages.shares(report)
        self.assertEqual(found, {"entropy codes": 0.6, "inverse transform": 0.2, "reading": 0.12, "the rest": 0.08})
        self.assertEqual(list(found)[-1], "the rest")
        self.assertEqual(stages.table(found, 500)[1].split(), ["entropy", "codes", "60.0%", "300.0"])

    def test_counters_are_those_of_the_images_more(self):
        short = stages.counters("# started on …\n\n110||page-faults|1|100.00||\n<not supported>||syscalls:sys_enter_futex|0|100.00||\n")
        long = stages.counters("510||page-faults:u|1|100.00||\n7||syscalls:sys_enter_futex|1|100.00||\n")
        lines = stages.per_image((short, long), 2000)
        self.assertEqual(lines[1].split(), ["page", "faults", "200.0"])
        self.assertEqual([line.split()[-2:] for line in lines if "futex" in line], [["not", "visible"]])


class Runs(unittest.TestCase):
    """One run of a contender."""

    def test_figures_memory_and_core_of_a_run(self):
        core = min(AVAILABLE)
        code = ("import json, os, time; held = bytearray(b'x') * 60_000_000; time.sleep(1); print('before')\n"
                "print('RESULT', json.dumps({'median': len(os.sched_getaffinity(0)), 'core': max(os.sched_getaffinity(0))}))")
        figures = measure.run(contender(code), [core])
        self.assertEqual((figures["median"], figures["core"]), (1, core))
        self.assertGreater(figures["anonymous_mb"], 60)
        self.assertGreaterEqual(figures["rss_mb"], figures["anonymous_mb"])

    def test_memory_of_children_counts(self):
        code = ("import subprocess, sys\n"
                "subprocess.run([sys.executable, '-c', \"import time; held = bytearray(b'x') * 60_000_000; time.sleep(1)\"])\n"
                "print('{}')")
        self.assertGreater(measure.run(contender(code), [min(AVAILABLE)])["anonymous_mb"], 60)

    def test_a_run_without_figures_says_why(self):
        with self.assertRaisesRegex(measure.Failed, "status 1: ModuleNotFoundError: .*no_such_module"):
            measure.run(contender("import no_such_module"), [min(AVAILABLE)])
        with self.assertRaisesRegex(measure.Failed, "status 0: it said nothing"):
            measure.run(contender("print('no figures')"), [min(AVAILABLE)])

    def test_the_reason_is_not_the_advice_after_it(self):
        self.assertEqual(measure.complaint("Traceback\nOSError: no library\n  try another\n"), "OSError: no library")
        self.assertEqual(measure.complaint("cc: fatal error: jpeglib.h\nhint: upgrade\n"), "cc: fatal error: jpeglib.h")

    def test_all_files_of_a_contender_are_read_whole_before_it(self):
        read = {}

        class Counted(io.FileIO):
            """A file that takes down what is read of it."""

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
    """What is made for the peers."""

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


class Peers(unittest.TestCase):
    """The peers' scripts."""

    @unittest.skipIf(importlib.util.find_spec("ensurepip") is None, "this Python makes no virtual environments (no ensurepip)")
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
        self.assertEqual({peer[0] for peer in contenders.PEERS.values()}, set(contenders.ENVIRONMENTS))

    def test_every_peer_says_what_it_does(self):
        for peer in contenders.PEERS:
            rows = contenders.theirs("W1", peer, pathlib.Path("scripts"), pathlib.Path("venvs"), {}, 2000, 1)
            self.assertTrue(rows and all(row.command[1].startswith("scripts/bench_") for row in rows), peer)
        self.assertEqual(contenders.theirs("W3", "pil", pathlib.Path(), pathlib.Path(), {}, 1, 1), [])


if __name__ == "__main__":
    unittest.main()
