"""Training with PyTorch: the example, and several processes."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.mark.parametrize("loader", ["ddlp", "torch"])
def test_the_example_learns(tmp_path, loader):
    if loader == "torch":
        pytest.importorskip("torchvision")
    made = ["--made", "1280", "--epochs", "2", "--width", "8"]
    command = [sys.executable, EXAMPLES / "resnet_cifar.py", tmp_path / "cifar", "--loader", loader, *made]
    said = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
    losses = [float(loss) for loss in re.findall(r"\d\.\d{3}", said)]
    assert len(losses) == 4 and losses[-1] < losses[0] / 2, said


def test_the_recipe_learns_from_both_sides(tmp_path):
    folder = tmp_path / "cifar"
    command = [sys.executable, EXAMPLES / "randaugment_mixup.py", folder, "--made", "960", "--epochs", "6"]
    said = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
    by_cpu, by_drive, accuracy = re.search(r"(\d+) by cpu, (\d+) by csd; accuracy (\S+)", said).groups()
    assert int(by_cpu) > 0 and int(by_drive) > 0, said
    # One class of ten is right by chance.
    assert float(accuracy) > 0.5, said


# One process of several: takes its rank from torch.distributed, and sums what all processes got.
RANK = """
import json, sys, torch, ddlp
from torch import distributed
pack, state = sys.argv[1:]
distributed.init_process_group("gloo")
loader = ddlp.Loader(pack, batch_size=8)
if state != "none":
    loader.load_state_dict(torch.load(state))
sums = []
for batch in loader:
    sums_here = [batch.images.double().sum(), batch.labels.double().sum(), torch.tensor(float(len(batch.labels)))]
    total = torch.stack([value.double() for value in sums_here])
    distributed.all_reduce(total)
    sums.append([round(value, 3) for value in total.tolist()])
    if state == "none" and batch.index == 2:
        if distributed.get_rank() == 0:
            torch.save(loader.state_dict(), "at.pt")
if distributed.get_rank() == 0:
    print(json.dumps(sums))
distributed.destroy_process_group()
"""


def ranks(processes, script, *arguments, **options):
    """Starts a script in several processes, as torchrun does; what the first one says comes by a pipe."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    count = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), "OMP_NUM_THREADS": "1"}
    place = {**os.environ, **count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, *map(str, [script, *arguments])]
    return [
        subprocess.Popen(
            command,
            env={**place, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            text=True,
            stdout=subprocess.DEVNULL if rank else subprocess.PIPE,
            **options,
        )
        for rank in range(processes)
    ]


def finished(processes):
    """Returns what the first process says, after all of them have ended well."""
    said, _ = processes[0].communicate(timeout=300)
    assert [process.wait(60) for process in processes] == [0] * len(processes)
    return said


def summed(pack, processes, folder, state="none"):
    """Returns the sums of each batch over all processes."""
    script = folder / "rank.py"
    script.write_text(RANK)
    return json.loads(finished(ranks(processes, script, pack, state, cwd=folder)))


def test_processes_share_batches_and_resume_in_another_number(pack, tmp_path):
    alone = summed(pack, 1, tmp_path)
    assert len(alone) == 8 and sum(samples for _, _, samples in alone) == 60
    assert summed(pack, 2, tmp_path) == alone
    assert summed(pack, 1, tmp_path, "at.pt") == alone[3:], "a state of two processes goes on with one"


def losses(said):
    """Returns the loss of each step of the ImageNet example."""
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+) loss (\S+)", said)}


def recipe(pack, *options):
    """Returns the command line of the ImageNet example for a small model and small images."""
    small = ["--model", "resnet18", "--classes", 10, "--size", 32, "--batch-size", 16]
    return [EXAMPLES / "imagenet_ddp.py", pack, *small, *options]


def test_a_killed_rank_loses_nothing(pack, tmp_path):
    pytest.importorskip("torchvision")
    command = recipe(pack, "--epochs", 3, "--val", pack)
    said = finished(ranks(2, *command))
    expected = losses(said)
    assert list(expected) == list(range(1, 10)) and len(re.findall(r"accuracy 0\.\d", said)) == 3

    checkpoint = tmp_path / "at.pt"
    saving = ["--checkpoint", checkpoint, "--checkpoint-every", 2]
    first, second = ranks(2, *command, *saving, stderr=subprocess.DEVNULL)
    before = {}
    for line in first.stdout:
        before |= losses(line)
        if len(before) == 5:
            second.kill()
    assert first.wait(60) != 0 and second.wait(60) == -signal.SIGKILL
    assert len(before) < len(expected) and before == {step: expected[step] for step in before}

    def resumed(processes):
        own = tmp_path / f"{processes}.pt"
        shutil.copy(checkpoint, own)
        return losses(finished(ranks(processes, *command, "--checkpoint", own)))

    after = resumed(2)
    assert 5 <= min(after) <= len(before) + 1
    assert before | after == expected, "to the bit"
    for processes in (1, 4):
        # The same batches, but gradients are added up in another order.
        assert resumed(processes) == pytest.approx(after, rel=1e-3)


def test_torchrun_starts_the_example(pack):
    pytest.importorskip("torchvision")
    if torch.__version__ < "2" and sys.version_info >= (3, 11):
        pytest.skip("torchrun before 2.0 does not work with Python 3.11")
    command = recipe(pack, "--epochs", 1)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, *command]
    said = subprocess.run(map(str, launch), check=True, text=True, stdout=subprocess.PIPE).stdout
    assert losses(said) == losses(finished(ranks(2, *command)))


ROOT = Path(__file__).resolve().parents[2]
SUMS = r"images (\d+) labels (\d+) mean (-?\d+\.\d+) loss (\d+\.\d+)"


def changes_in_the_docs():
    """Returns the changes to pytorch/examples' program, each as the lines before and after it."""
    diff = re.search(r"^```diff\n(.*?)^```$", (ROOT / "docs/coming-from.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    assert len(re.findall(r"^\+", diff, re.MULTILINE)) <= 8
    for change in diff.split("\n\n"):
        lines = change.splitlines()
        yield tuple("".join(f"\n{line[1:]}" for line in lines if line[0] in kinds) + "\n" for kinds in (" -", " +"))


def epochs(said):
    """Returns what the program says of the training and the validation of each epoch."""
    found = re.findall(rf"epoch \d+ train {SUMS} val {SUMS}", said)
    rows = [[float(number) for number in numbers] for numbers in found]
    return [(row[:4], row[4:]) for row in rows]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_program_of_pytorch_trains_after_the_changes_in_the_docs(photos, tmp_path, processes):
    pytest.importorskip("torchvision")
    program = Path(__file__).with_name("imagenet_main.py").read_text()
    (tmp_path / "before.py").write_text(program)
    for before, after in changes_in_the_docs():
        assert program.count(before) == 1, before
        program = program.replace(before, after)
    (tmp_path / "after.py").write_text(program)
    for part in ("train", "val"):
        (tmp_path / part).symlink_to(photos)
    options = [tmp_path, "--batch-size", 8 // processes, *(["--dist-url", "env://"] if processes > 1 else [])]
    before, after = (
        epochs(finished(ranks(processes, tmp_path / name, *options))) for name in ("before.py", "after.py")
    )
    assert len(before) == len(after) == 2
    for (trained, validated), (train, val) in zip(before, after, strict=True):
        assert train[:2] == trained[:2], "each image once"
        assert train[2] == pytest.approx(trained[2], abs=0.2)
        padded = 64 if processes > 1 else 60
        assert val[0] == padded and (processes > 1 or val[1] == validated[1])
        assert val[2] == pytest.approx(validated[2], abs=0.05)
    for program in (before, after):
        assert program[1][1][3] < program[0][1][3], "it learns"
    if processes > 1:
        resumed = epochs(finished(ranks(processes, tmp_path / "after.py", *options, "--start-epoch", 1)))
        assert resumed[0][0][:3] == after[1][0][:3], "the images of epoch 1"
