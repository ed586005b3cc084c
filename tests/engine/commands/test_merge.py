"""Shards that are pre-empted at random merge to the bytes of one run; others do not merge."""

import gzip
import random
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ....engine.commands import align as cli
from ....engine.commands import merge
from ....engine.jobs.journal import write_records
from ...support.bundles import LINES, write_toy

WORDS = " ".join(LINES).split(" ")

# Plays a cluster that takes its machines back: starts shards in random order in fresh processes,
# which are killed at random moments, until each has had its share of kills and finished.
PREEMPTER = """
import os, random, signal, sys, time
import mx_align.engine.aligner, mx_align.engine.commands.align, mx_align.engine.jobs.journal
import mx_align.engine.runtime.onnx_cpu, mx_align.engine.text.words

# On a fast machine a shard would be done before anybody could kill it.
journal = mx_align.engine.jobs.journal.Journal
append = journal.append
journal.append = lambda *given, **more: (time.sleep(0.005), append(*given, **more))

def count(journal):
    return open(journal, "rb").read().count(b"\\n") if os.path.exists(journal) else 0

shards, kills, seed, out, *arguments = sys.argv[1:]
rng = random.Random(int(seed))
left = {n: int(kills) for n in range(1, int(shards) + 1)}
killed = resumed = 0
while left:
    n = rng.choice(sorted(left))
    child = os.fork()
    if not child:
        share = [*arguments, "--shard", f"{n}/{shards}", "-o", f"{out}.{n}"]
        try:
            mx_align.engine.commands.align.main(share, standalone_mode=False)
        except SystemExit as end:
            os._exit(end.code)  # at once: libraries do not expect to be ended in a fork
    # At any moment, or, since slow machines are still loading then, when some chunks are done.
    journal = f"{out}.{n}.partial/journal"
    lines = count(journal) + rng.randint(1, 12) if rng.random() < 0.5 else 1 << 30
    deadline = time.monotonic() + (120 if lines < 1 << 30 or not left[n] else rng.random() * 0.5)
    done = 0
    while not done and time.monotonic() < deadline and (not left[n] or count(journal) < lines):
        time.sleep(0.001)
        done, status = os.waitpid(child, os.WNOHANG)
    if done:
        assert os.waitstatus_to_exitcode(status) == 0, status
        del left[n]
        continue
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    killed, left[n] = killed + 1, left[n] - 1
    resumed += count(journal) > 1
print(killed, resumed)
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    """A folder with a model, a corpus and its links in one piece."""
    folder = tmp_path_factory.mktemp("merge")
    write_toy(folder / "toy.mx")
    rng = random.Random(5)
    for name in ("c.src", "c.tgt"):
        lines = [" ".join(rng.choices(WORDS, k=rng.randint(0, 12))) for _ in range(1500)]
        (folder / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    align(folder, "-o", folder / "whole")
    return folder


def align(folder, *arguments):
    line = [*files(folder), *map(str, arguments)]
    subprocess.run(
        [sys.executable, "-m", "mx_align.engine.commands.align", *line], check=True, timeout=300
    )


def files(folder) -> list[str]:
    names = [folder / "c.src", folder / "c.tgt", "-m", folder / "toy.mx"]
    return [*map(str, names), "--quiet", "--threads", "1"]


@pytest.fixture
def shards(work, tmp_path):
    """Makes shards in this process; gives their names."""

    def make(n, name="links.{}", only=None, *more):
        found = []
        for k in only or range(1, n + 1):
            found.append(tmp_path / name.format(k))
            line = [*files(work), "--shard", f"{k}/{n}", "-o", str(found[-1]), *more]
            result = CliRunner().invoke(cli.main, line)
            assert result.exit_code == 0, result.output
        return found

    return make


def merged(*arguments, code=0):
    result = CliRunner().invoke(merge.main, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.slow
def test_shards_that_are_preempted_at_random(work, tmp_path):
    line = [*files(work), "--chunk-pairs", "10"]
    done = subprocess.run(
        [sys.executable, "-c", PREEMPTER, "4", "4", "8", str(tmp_path / "links"), *line],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    killed, resumed = map(int, done.stdout.split())
    assert killed >= 4 and resumed >= 1
    # What a shell finds by `links.*`, with whatever else lies there, in another order.
    there = sorted(tmp_path.glob("links.*"), reverse=True)
    said = merged(*there, "-o", tmp_path / "links")
    assert (tmp_path / "links").read_bytes() == (work / "whole").read_bytes()
    assert "4 shards, 1,500 pairs, 1,500 lines" in said
    merged(*tmp_path.iterdir(), "-o", tmp_path / "links")  # once more, over the first


@pytest.mark.slow
def test_missing_and_unfinished_shards(shards, tmp_path):
    found = shards(3, "links.{}", (1, 3))
    out = tmp_path / "links"
    assert "shards 2 of 3 are missing" in merged(*found, "-o", out, code=2)
    (tmp_path / "links.2.partial").mkdir()
    said = merged(*found, tmp_path / "links.2.partial", "-o", out, code=2)
    assert "links.2.partial is unfinished" in said and said.count("\n") == 1
    said = merged(*found, tmp_path / "links.2", "-o", out, code=2)
    assert "links.2 is incomplete" in said
    assert "links.9 does not exist" in merged(tmp_path / "links.9", "-o", out, code=2)
    assert "no finished shard" in merged(tmp_path / "links.2.partial", "-o", out, code=2)
    assert not out.exists()


def test_shards_of_something_else(shards, tmp_path):
    one, two = shards(2)
    out = tmp_path / "links"
    (other,) = shards(2, "other.{}", (2,), "--threshold", "0.3")
    assert "other.2 does not belong" in merged(one, other, "-o", out, code=2)
    (third,) = shards(3, "third.{}", (2,))
    assert "one of 3 shards" in merged(one, third, "-o", out, code=2)
    (tmp_path / "stray").write_text("0-0\n")
    assert "stray.shard.json" in merged(one, two, tmp_path / "stray", "-o", out, code=2)
    two.write_bytes(two.read_bytes()[:-2] + b"9\n")
    out.write_text("older")
    assert "has changed since it was written" in merged(one, two, "-o", out, code=2)
    assert out.read_text() == "older"


def test_compressed_shards(shards, work, tmp_path):
    found = shards(2, "links.{}.gz")
    merged(*found, "-o", tmp_path / "links.gz")
    packed = (tmp_path / "links.gz").read_bytes()
    assert gzip.decompress(packed) == (work / "whole").read_bytes()
    assert "all be plain, all .gz" in merged(*found, "-o", tmp_path / "links", code=2)


def test_a_folder_needs_its_manifest(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    out = tmp_path / "links"
    assert "has no manifest.json" in merged(folder, "-o", out, code=2)
    write_records(folder / "manifest.json", [{"mx-align": 3, "format": "parquet"}])
    assert "nothing to merge" in merged(folder, "-o", out, code=2)


def test_shards_of_different_texts_do_not_merge(shards, work, tmp_path):
    """Both have as many lines, so that only digests tell them apart."""
    (one,) = shards(2, "links.{}", (1,), "--method", "model")
    words = (work / "c.src").read_text("utf-8")
    (tmp_path / "c.src").write_text(words.swapcase(), "utf-8")
    line = [str(tmp_path / "c.src"), *files(work)[1:], "--method", "model", "--shard", "2/2"]
    result = CliRunner().invoke(cli.main, [*line, "-o", str(tmp_path / "links.2")])
    assert result.exit_code == 0, result.output
    said = merged(one, tmp_path / "links.2", "-o", tmp_path / "links", code=2)
    assert "does not belong to the others: another text" in said
