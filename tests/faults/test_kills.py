"""Each command is killed at its points of writing, and its disk runs full; all ends well again.

`benchmarks/torture.py` does the same two thousand times.
"""

import random

import pytest

from ..support.fault_scenarios import batter, fill_disk, load_libraries, make_scenarios


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory):
    load_libraries()
    return make_scenarios(tmp_path_factory.mktemp("scenarios"), pairs=60)


NAMES = (
    "mx-align, plain", "mx-align, .gz", "mx-align, .zst", "mx-align, all outputs",
    "mx-align, a shard", "mx-merge", "mx-seed",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_killed_at_any_moment(scenarios, tmp_path, name):
    tally = batter(scenarios[name], tmp_path / "work", 8, random.Random(name))
    assert tally.faults >= 8 and tally.finished >= 1


@pytest.mark.parametrize("name", NAMES)
def test_a_disk_that_runs_full(scenarios, tmp_path, name):
    scenario = scenarios[name]
    scenario.run_undisturbed(tmp_path / "work")
    points = random.Random(name).sample(range(1, scenario.points + 1), 4)
    assert sum(fill_disk(scenario, tmp_path / "work", point) for point in points)
