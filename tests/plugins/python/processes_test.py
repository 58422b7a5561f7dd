"""Tests processes that a recorded program starts while a window is open."""

import pytest

from profile_test import LOOP, reports

PROGRAM = LOOP + """
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 8 * 8
    def __getitem__(self, index): return data[index]

if __name__ == "__main__":  # a worker that is spawned imports this file
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    with profile(schedule=schedule(wait=1, warmup=1, active=4, repeat=0), log_dir="runs", print_report=False) as prof:
        for epoch in "xxxx":  # of 8 steps each: workers start in steps 8 and 16, which are recorded, and 0 and 24, which are not
            for batch in torch.utils.data.DataLoader(Rows(), batch_size=8, num_workers=2, multiprocessing_context=START):
                train(batch)
                prof.step()
    import multiprocessing
    print("children left", len(multiprocessing.active_children()), "steps", prof.step_num)
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_of_a_loader_start_while_windows_are_open(run_program, tmp_path, start):
    done = run_program(PROGRAM.replace("START", repr(start)))
    assert done.stdout == "children left 0 steps 32\n"
    assert "stepscope:" not in done.stderr
    found = reports(tmp_path / "runs")
    assert [report["steps"]["count"] for report in found] == [4] * 5
    assert all(not any(loss["severity"] == "error" for loss in report["losses"]) for report in found)
