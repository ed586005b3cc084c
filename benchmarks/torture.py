"""Do to every command what goes wrong in the world, thousands of times, and count how it ends.

    python -m mx_align.benchmarks.torture kills --times 2000 --scratch /tmp/t
    python -m mx_align.benchmarks.torture hostile --times 1000000 --scratch /tmp/t
    python -m mx_align.benchmarks.torture table

Each phase adds its rows to `results/torture.json`; `table` puts them into the docs. A wrong byte, a
lost line, a file left behind or a traceback ends a phase with an error, and no row is written.
"""

import argparse
import os
import random
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..engine.commands import align
from ..engine.storage import replace_file
from ..tests.support import fault_scenarios, hostile
from ..tests.support.bundles import write_toy
from ..tests.support.fault_scenarios import Scenario, batter, fill_disk
from ..tests.support.faults import NONE, Ending, adopt_orphans, limit_memory, run_job
from .records import RESULTS, add_run, describe_circumstances, load_runs

PATH = RESULTS / "torture.json"
PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
HOSTILE_CHUNK = 50_000  # pairs of a file


def make_engine(scratch: Path) -> dict[str, Scenario]:
    """Return the commands of the engine."""
    fault_scenarios.load_libraries()
    return fault_scenarios.make_scenarios(make_empty(scratch / "engine"))


def make_training(scratch: Path) -> dict[str, Scenario]:
    """Return the commands that need PyTorch."""
    fault_scenarios.load_libraries()
    return fault_scenarios.make_training_scenarios(make_empty(scratch / "training"))


def make_empty(folder: Path) -> Path:
    """Return the folder, made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def try_kills(scratch: Path, times: int, rng: random.Random) -> None:
    """Kill every command of the engine at points of its writing and at random moments."""
    kill_each(make_engine(scratch), scratch, times, rng)


def try_training_kills(scratch: Path, times: int, rng: random.Random) -> None:
    """Kill the commands that train and export in the same way."""
    kill_each(make_training(scratch), scratch, times, rng)


def kill_each(
    scenarios: dict[str, Scenario], scratch: Path, times: int, rng: random.Random
) -> None:
    """Kill each command so often, divided by how many there are."""
    for name, scenario in scenarios.items():
        tally = batter(scenario, scratch / "work", -(-times // len(scenarios)), rng)
        outcome = "gone on to the end: same bytes, nothing left behind"
        note_row("killed (SIGKILL)", name, tally.faults, outcome, tally.kilobytes)


def try_full_disks(scratch: Path, times: int, rng: random.Random) -> None:
    """Let the disk be full from some point on, then have room again."""
    for name, scenario in make_engine(scratch).items():
        scenario.run_undisturbed(scratch / "work")
        points = rng.sample(range(1, scenario.points + 1), min(times, scenario.points))
        hit = sum(fill_disk(scenario, scratch / "work", point) for point in points)
        outcome = "one line and exit 2; whole after the same command with room"
        note_row("disk full", name, hit, outcome)


def try_hostile_pairs(scratch: Path, times: int, rng: random.Random) -> None:
    """Align lines that nobody should write, and check every line of every output."""
    fault_scenarios.load_libraries()
    bundle = write_toy(make_empty(scratch) / "toy.mx")
    assert bundle.tokenizers  # tried once, before processes are forked
    done = 0
    while done < times:
        folder = scratch / "hostile"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        paths = hostile.write_hostile(folder, HOSTILE_CHUNK, rng)
        line = [*paths, *hostile.hostile_flags(bundle.path, folder), "--threads", 1]
        ending = run_job(align.main, line, folder)
        assert ending.code == 0, ending
        hostile.check_hostile(folder, paths, HOSTILE_CHUNK)
        done += HOSTILE_CHUNK
        outcome = "a line for each, every link inside its pair, true counts"
        note_row("hostile pair", "mx-align, all outputs", HOSTILE_CHUNK, outcome, ending.kilobytes)


def try_limits(scratch: Path, times: int, rng: random.Random) -> None:
    """Give too little memory, too few open files, too small files, a clock that jumps."""

    def limit_files() -> None:
        count = len(os.listdir("/proc/self/fd")) + rng.randint(0, 12)
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))

    def limit_sizes() -> None:
        size = rng.randint(1, 20_000)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    def let_clock_jump() -> None:
        time.time = lambda: rng.random() * 4e9
        time.monotonic = lambda: rng.random() * 1e6

    scenarios = make_engine(scratch)
    kinds: dict[str, Callable[[], None]] = {
        "too little memory (RLIMIT_AS)": lambda: limit_memory(rng.randint(1, 200)),
        "too few open files (RLIMIT_NOFILE)": limit_files,
        "too small files (RLIMIT_FSIZE)": limit_sizes,
        "clock that jumps": let_clock_jump,
    }
    for fault, limit in kinds.items():
        for name in ("mx-align, all outputs", "mx-align, .zst", "mx-seed"):
            ended, peak = _try_limit(scenarios[name], scratch / "work", times, limit, rng)
            said = ", ".join(f"exit {code}: {n}" for code, n in sorted(ended.items()))
            note_row(fault, name, times, f"{said}; then whole, no traceback", peak)


def _try_limit(
    scenario: Scenario, work: Path, times: int, limit: Callable[[], None], rng: random.Random
) -> tuple[dict[int, int], int]:
    """Run under a limit, then without; return how often each exit code came, and the memory."""
    scenario.run_undisturbed(work)
    ended: dict[int, int] = {}
    peak = 0
    for n in range(times):
        scenario.set_up(work)
        seed = rng.random()

        def prepare(seed: float = seed) -> None:
            rng.seed(seed)
            limit()

        ending = run_job(scenario.command, scenario.arguments, work, NONE, prepare)
        assert ending.code in (0, 2, 70, 120, 1, -6, -11, -5, -4), (n, ending)
        assert "Traceback" not in ending.said, ending
        ended[ending.code] = ended.get(ending.code, 0) + 1
        peak = max(peak, ending.kilobytes)
        scenario.check_unharmed(work, set(scenario.wanted))
        again = scenario.run(work, NONE)
        assert again.code == 0, again
        scenario.check_whole(work)
    return ended, peak


def try_rivals(scratch: Path, times: int, rng: random.Random) -> None:
    """Let two processes write one output at the same time."""
    scenarios = make_engine(scratch)
    for name in ("mx-align, all outputs", "mx-merge", "mx-seed"):
        scenario, work, refused = scenarios[name], scratch / "work", 0
        scenario.run_undisturbed(work)
        for _ in range(times):
            scenario.set_up(work)
            jobs = [scenario.start(work)]
            time.sleep(rng.random() * scenario.seconds / 2)
            jobs.append(scenario.start(work))
            codes = sorted(wait_for_all(jobs))
            assert codes in ([0, 0], [0, 2]), codes
            refused += codes[-1] == 2
            scenario.check_whole(work)
        outcome = f"whole each time; the second was sent away {refused} times"
        note_row("two processes on one output", name, times, outcome)


def wait_for_all(jobs: list[fault_scenarios.Job]) -> list[int]:
    """Return the exit codes of processes that run at the same time."""
    statuses = {}
    while len(statuses) < len(jobs):
        process, status = os.waitpid(-1, 0)
        statuses[process] = os.waitstatus_to_exitcode(status)
    for job in jobs:
        job.told.unlink()
    return [statuses[job.process] for job in jobs]


def try_real_full_disk(scratch: Path, times: int, rng: random.Random) -> None:
    """Write to a real file system of a few kilobytes; needs the right to mount one."""
    scenario = make_engine(scratch)["mx-align, all outputs"]
    scenario.run_undisturbed(scratch / "work")
    full = 0
    for _ in range(times):
        size = rng.randint(2, 60) * 4096
        with mount_memory(scratch / "disk", size) as disk:
            ending: Ending = scenario.run(disk, NONE)
            assert ending.code in (0, 2) and "Traceback" not in ending.said, ending
            full += ending.code == 2
            subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
            assert scenario.run(disk, NONE).code == 0
            scenario.check_whole(disk)
    note_row("disk full (a real one)", scenario.name, full, "as above")


@contextmanager
def mount_memory(folder: Path, size: int) -> Iterator[Path]:
    """Mount a file system in memory, of so many bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    subprocess.run(["mount", *options], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def try_readers(scratch: Path, times: int, rng: random.Random) -> None:
    """Damage files of every kind and read them."""
    from ..tests.support.fuzz import fuzz_reader, make_readers

    fault_scenarios.load_libraries()
    for reader in make_readers(make_empty(scratch / "fuzz")):
        counts = fuzz_reader(reader, scratch / "fuzz", times, rng)
        said = ", ".join(f"{n:,} {name}" for name, n in counts.items() if n)
        note_row("damaged file", reader.name, times, f"{said}; no other error, no crash")


# ---- the table ----


def note_row(fault: str, command: str, times: int, outcome: str, kilobytes: int = 0) -> None:
    """Keep a row, and add its times to those that were kept before of this fault and command."""
    key = f"{fault}: {command}"
    old = load_runs(PATH).get(key, {})
    row = {"fault": fault, "command": command, "times": times + old.get("times", 0)}
    row |= {"outcome": outcome, "megabytes": max(kilobytes // 1024, old.get("megabytes", 0))}
    add_run(PATH, key, {**row, **describe_circumstances(["onnxruntime"])})
    print(f"{fault} | {command} | {times:,} | {outcome} | {kilobytes // 1024} MB", flush=True)


def format_table() -> str:
    """Return all rows as a table."""
    lines = ["| fault | command | times | outcome | peak MB |", "|---|---|---|---|---|"]
    for row in load_runs(PATH).values():
        memory = row["megabytes"] or "–"
        cells = row["fault"], row["command"], f"{row['times']:,}", row["outcome"], memory
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def write_table() -> None:
    """Put the table into docs/reliability.md."""
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition("<!-- torture -->\n")
    end = rest[rest.index("<!-- end -->") :]
    replace_file(PAGE, f"{before}<!-- torture -->\n{format_table()}\n{end}".encode())


PHASES: dict[str, Callable[[Path, int, random.Random], None]] = {
    "kills": try_kills,
    "training": try_training_kills,
    "disks": try_full_disks,
    "hostile": try_hostile_pairs,
    "limits": try_limits,
    "rivals": try_rivals,
    "mounts": try_real_full_disk,
    "readers": try_readers,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("phase", choices=[*PHASES, "table"])
    parser.add_argument("--times", type=int, default=100, help="of each fault; of all kills")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scratch", type=Path, default=Path("torture-scratch"))
    arguments = parser.parse_args()
    if arguments.phase == "table":
        write_table()
        return
    adopt_orphans()
    scratch = arguments.scratch.resolve()
    PHASES[arguments.phase](scratch, arguments.times, random.Random(arguments.seed))


if __name__ == "__main__":
    main()
