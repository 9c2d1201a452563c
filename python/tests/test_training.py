"""Training with PyTorch: the example, and several processes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def test_the_example_learns(tmp_path):
    command = [sys.executable, EXAMPLES / "resnet_cifar.py", tmp_path / "cifar", "--made", "640", "--epochs", "2"]
    said = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
    losses = [float(loss) for loss in re.findall(r"\d\.\d{3}", said)]
    assert len(losses) == 4 and losses[-1] < losses[0] / 2, said


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


def summed(pack, processes, folder, state="none"):
    """Returns the sums of each batch over all processes."""
    script = folder / "rank.py"
    script.write_text(RANK)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [*launch, script, pack, state]
    done = subprocess.run(command, check=True, text=True, capture_output=True, cwd=folder)
    return json.loads(done.stdout)


def test_processes_share_batches_and_resume_in_another_number(pack, tmp_path):
    alone = summed(pack, 1, tmp_path)
    assert len(alone) == 8 and sum(samples for _, _, samples in alone) == 60
    assert summed(pack, 2, tmp_path) == alone
    assert summed(pack, 1, tmp_path, "at.pt") == alone[3:], "a state of two processes goes on with one"
