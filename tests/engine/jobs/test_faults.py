"""mx-align under fire: killed at random moments, and fed with lines nobody should write."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ....engine.commands import align as cli
from ...support.bundles import LINES, write_toy
from ...support.hostile import check_hostile, hostile, hostile_flags, write_hostile

WORDS = " ".join(LINES).split(" ")

# Starts the command again and again in a fresh process and kills it, until it has been killed
# often enough; the libraries are loaded once, so most of the time is spent in the run itself.
KILLER = """
import os, random, signal, sys, time
import mx_align.engine.aligner, mx_align.engine.commands.align
import mx_align.engine.runtime.onnx_cpu, mx_align.engine.text.words
from pathlib import Path

kills, seed, out, wanted, *arguments = sys.argv[1:]
kills, rng, killed, resumed, finished = int(kills), random.Random(int(seed)), 0, 0, 0
wanted = [Path(name).read_bytes() for name in wanted.split(",")]
outs = out.split(",")
while killed < kills or not finished:
    child = os.fork()
    if not child:
        try:
            mx_align.engine.commands.align.main(arguments, standalone_mode=False)
        except SystemExit as end:
            os._exit(end.code)  # at once: libraries do not expect to be ended in a fork
    deadline = time.monotonic() + (rng.random() ** 2 * 0.6 if killed < kills else 60)
    done = 0
    while not done and time.monotonic() < deadline:
        time.sleep(0.001)
        done, status = os.waitpid(child, os.WNOHANG)
    if not done:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        killed += 1
        journal = Path(outs[0] + ".partial/journal")
        resumed += journal.exists() and journal.read_bytes().count(b"\\n") > 1
        for name, data in zip(outs, wanted):
            assert not Path(name).exists() or Path(name).read_bytes() == data
        continue
    assert os.waitstatus_to_exitcode(status) == 0, status
    assert [Path(name).read_bytes() for name in outs] == wanted
    for name in outs:
        os.unlink(name)
    finished += 1
print(killed, resumed, finished)
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    return write_toy(tmp_path_factory.mktemp("toy") / "toy.mx").path


def command(*arguments, **options) -> subprocess.CompletedProcess:
    line = [sys.executable, "-m", "mx_align.engine.commands.align", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, timeout=300, **options)


@pytest.mark.slow
def test_fifty_kills_at_random_moments(bundle, tmp_path):
    rng = random.Random(1)
    for name in ("c.src", "c.tgt"):
        lines = [" ".join(rng.choices(WORDS, k=rng.randint(0, 12))) for _ in range(4000)]
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    files = (tmp_path / "c.src", tmp_path / "c.tgt", "-m", bundle, "--quiet", "--threads", 2)
    files = (*files, "--method", "model")
    clean = (tmp_path / "wanted", tmp_path / "wanted.scores")
    assert command(*files, "-o", clean[0], "--scores", clean[1]).returncode == 0
    outs = (tmp_path / "out", tmp_path / "out.scores")
    resumable = [*files, "-o", outs[0], "--scores", outs[1], "--chunk-pairs", 40]
    killer = subprocess.run(
        [sys.executable, "-c", KILLER, "50", "1", ",".join(map(str, outs)),
         ",".join(map(str, clean)), *map(str, resumable)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert killer.returncode == 0, killer.stderr
    killed, resumed, finished = map(int, killer.stdout.split())
    assert killed == 50 and resumed >= 10 and finished >= 1


def check_fuzz(bundle: Path, folder: Path, n: int) -> None:
    rng = random.Random(n)
    paths = write_hostile(folder, n, rng)
    result = command(*paths, *hostile_flags(bundle, folder))
    assert result.returncode == 0, result.stderr
    check_hostile(folder, paths, n)


@pytest.mark.slow
def test_hostile_lines(bundle, tmp_path):
    check_fuzz(bundle, tmp_path, 3000)


@pytest.mark.slow
def test_a_hundred_thousand_hostile_lines(bundle, tmp_path):
    check_fuzz(bundle, tmp_path, 100_000)


@pytest.mark.slow
def test_hostile_lines_in_one_file_and_every_format(bundle, tmp_path):
    rng = random.Random(7)
    (tmp_path / "f").write_bytes(
        b"".join(hostile(rng) + b" ||| " + hostile(rng) + b"\n" for _ in range(300))
    )
    for form, lines in (("pharaoh", 1), ("talp", 1), ("jsonl", 1), ("a3", 3)):
        for extra in ([], ["--tokenize"], ["--reverse", "--one-based"]):
            result = CliRunner().invoke(
                cli.main,
                [str(tmp_path / "f"), "-m", str(bundle), "--errors", "replace", "--format", form,
                 *extra],
            )  # fmt: skip
            assert result.exit_code == 0, result.stderr
            assert result.stdout_bytes.count(b"\n") == 300 * lines
