"""Worker processes: results in order, errors in their turn, and nothing left behind."""

import os
import signal
import time

import pytest

from ....engine.align.processes import run_in_processes
from ....engine.errors import InputError, MxError


def work_on(value: int) -> tuple[int, int]:
    """Take longer for even values, so that results come out of order; some go wrong."""
    if value == -1:
        raise InputError("this value is wrong")
    if value == -2:
        print("words among the answers would be fatal")
    if value == -9:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02 * (value % 2 == 0))
    return value, os.getpid()


def test_results_come_in_order_from_several_processes():
    found = list(run_in_processes(work_on, range(20), 3))
    assert [value for value, _ in found] == list(range(20))
    processes = {pid for _, pid in found}
    assert os.getpid() not in processes and len(processes) <= 3


def test_no_more_processes_than_values():
    assert list(run_in_processes(work_on, [], 4)) == []
    assert [value for value, _ in run_in_processes(work_on, [7], 64)] == [7]


def test_what_is_printed_does_no_harm():
    assert [value for value, _ in run_in_processes(work_on, [-2, 5], 1)] == [-2, 5]


def test_an_error_comes_after_all_before_it():
    def values():
        yield from range(6)
        raise InputError("line 7 is wrong")

    found = []
    with pytest.raises(InputError, match="line 7"):
        for value, _ in run_in_processes(work_on, values(), 2):
            found.append(value)
    assert found == list(range(6))
    found = []
    with pytest.raises(InputError, match="this value is wrong"):
        for value, _ in run_in_processes(work_on, [1, 2, 3, -1, 5], 2):
            found.append(value)
    assert found == [1, 2, 3]


def test_a_killed_worker_is_told_of():
    with pytest.raises(MxError, match=r"worker process was ended by signal 9.*fewer --workers"):
        list(run_in_processes(work_on, [1, 2, -9, 4, 5, 6, 7], 2))


def test_reading_ahead_is_bounded_and_processes_end_with_the_consumer():
    read = []

    def endless():
        while True:
            read.append(1)
            yield len(read)

    running = run_in_processes(work_on, endless(), 2)
    pids = {next(running)[1] for _ in range(6)}
    time.sleep(0.2)
    assert len(read) <= 6 + 2 * 2 + 1
    running.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
