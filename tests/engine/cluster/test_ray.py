"""A cluster of two workers gives the bytes of one machine, also when one of them is killed.

The whole file needs Ray and skips itself without it."""

import json
import os
import pickle
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ....engine.cluster.actors import BlockAligner
from ....engine.cluster.corpus_blocks import divide_corpus
from ....engine.cluster.ray import actor_arguments, join_cluster
from ....engine.errors import MxError
from ....engine.jobs.corpus_options import CorpusOptions
from ...support.bundles import LINES, write_toy

pytest.importorskip("ray.data", reason='needs Ray: pip install "mx-align[ray]"')

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds workers in /proc"),
]

WORDS = " ".join(LINES).split(" ")
PAIRS, CHUNK = 4000, 25
BLOCKS = PAIRS // (8 * CHUNK)
# Workers that give way to all others, as Ray has them by default, never end on a busy machine.
# A cluster of today wants a token: one of its own, not that of the home folder.
ENVIRONMENT = {
    **os.environ, "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(),
}  # fmt: skip
COMMAND = [sys.executable, "-m", "mx_align.engine.commands.align"]


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    """A folder with a model, a corpus in two forms and the links of one machine."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    folder = tmp_path_factory.mktemp("ray")
    write_toy(folder / "toy.mx")
    rng = random.Random(3)
    sides = [
        [" ".join(rng.choices(WORDS, k=rng.randint(0, 12))) for _ in range(PAIRS)] for _ in "st"
    ]
    for name, lines in zip(("c.src", "c.tgt"), sides, strict=True):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    table = pa.table({"src": sides[0], "tgt": sides[1]})
    parquet.write_table(table, folder / "c.parquet", row_group_size=333)
    line = [*COMMAND, "c.src", "c.tgt", "-m", "toy.mx", "-o", "whole", "--threads", "1"]
    line += ["--method", "model"]
    subprocess.run(line, cwd=folder, check=True, timeout=300, capture_output=True)
    return folder


# Holds the cluster until its input ends; a line on it is code to run as a driver, which then need
# not import Ray and join once more. Says "done" or how it failed after each.
HEAD = """
import ray, sys, traceback
ray.init(num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False)
print(ray.get_runtime_context().gcs_address, flush=True)
for line in sys.stdin:
    try:
        exec(eval(line))
        print(repr("done"), flush=True)
    except BaseException:
        print(repr(traceback.format_exc()), flush=True)
"""


class Cluster:
    """On this machine, with room for two aligners."""

    def __init__(self, folder: Path) -> None:
        for _ in range(5):  # Ray gives itself 30 seconds to start, which a busy machine may not
            self.head = subprocess.Popen(
                [sys.executable, "-c", HEAD], cwd=folder, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT, text=True,
            )  # fmt: skip
            if address := self.head.stdout.readline().strip():
                self.address = address
                return
            self.head.wait(60)
        raise AssertionError("no cluster could be started")

    def run(self, code: str) -> None:
        self.head.stdin.write(f"{code!r}\n")
        self.head.stdin.flush()
        said = eval(self.head.stdout.readline())
        assert said == "done", said

    def close(self) -> None:
        self.head.stdin.close()
        self.head.wait(60)


@pytest.fixture(scope="module")
def cluster(work) -> Iterator[Cluster]:
    found = Cluster(work)
    yield found
    found.close()


def start(work: Path, cluster: Cluster, *arguments: str) -> subprocess.Popen:
    line = [*COMMAND, "--ray", cluster.address, *arguments, "-m", "toy.mx", "--langs", "de-en"]
    return subprocess.Popen(
        line, cwd=work, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def wait_for(condition: Callable[[], object], process: subprocess.Popen) -> object:
    """What a condition finds while a command runs."""
    while process.poll() is None:
        if found := condition():
            return found
        time.sleep(0.002)
    raise AssertionError(f"ended too early with {process.returncode}: {process.communicate()[1]}")


def pool() -> dict[int, bytes]:
    """The aligners of our cluster and what they do, after which Ray names its processes."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes()
            ours = ENVIRONMENT["RAY_AUTH_TOKEN"].encode() in (place / "environ").read_bytes()
            if ours and line.startswith(b"ray::") and b"BlockAligner" in line:
                found[int(place.name)] = line
        except OSError:  # gone meanwhile
            continue
    return found


def at_work() -> int | None:
    """An aligner that has a block before it."""
    return next((pid for pid, line in pool().items() if b").submit" in line), None)


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*"))


@pytest.mark.slow
def test_a_killed_driver_and_a_killed_worker_change_nothing(work, cluster):
    out = work / "links"
    arguments = "c.src", "c.tgt", "-o", "links", "--actors", "2", "--chunk-pairs", str(CHUNK)
    process = start(work, cluster, *arguments)
    wait_for(lambda: len(parts(out)) >= 2, process)
    process.kill()
    process.communicate()
    while pool():  # Ray ends those of a lost driver
        time.sleep(0.02)
    kept = {path.name: path.stat().st_mtime_ns for path in parts(out)}
    assert len(kept) < BLOCKS - 4 and not (out / "manifest.json").exists()

    process = start(work, cluster, *arguments)
    worker = wait_for(at_work, process)
    os.kill(worker, signal.SIGSTOP)  # with a block under way, while the other one goes on
    try:
        wait_for(lambda: len(parts(out)) > len(kept), process)
    finally:
        written = len(parts(out))
        os.kill(worker, signal.SIGKILL)
    assert written < BLOCKS
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert said.startswith("mx-align:") and said.count("\n") == 1  # not a word of Ray's
    assert f"{PAIRS:,} pairs" in said and "of them by an earlier run" in said

    same = [path.name for path in parts(out) if kept.get(path.name) == path.stat().st_mtime_ns]
    assert len(same) >= len(kept) - 1  # the last one may have come before its record
    assert b"".join(path.read_bytes() for path in parts(out)) == (work / "whole").read_bytes()
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["pairs"] == PAIRS == sum(shard["pairs"] for shard in manifest["shards"])
    assert [shard["file"] for shard in manifest["shards"]] == [p.name for p in parts(out)]
    line = [sys.executable, "-m", "mx_align.engine.commands.merge", "links", "-o", "merged"]
    subprocess.run(line, cwd=work, check=True, capture_output=True, timeout=60)
    assert (work / "merged").read_bytes() == (work / "whole").read_bytes()


@pytest.mark.slow
def test_a_dataset_gets_two_columns(work, cluster):
    cluster.run(
        "from mx_align.engine.cluster.ray import align_dataset\n"
        "import pyarrow.parquet as pq\n"
        "table = pq.read_table('c.parquet')\n"
        "ds = ray.data.from_arrow([table.slice(n, 777) for n in range(0, len(table), 777)])\n"
        "rows = align_dataset(ds, 'toy.mx', actors=1, chunk_pairs=500).take_all()\n"
        "open('rows', 'w').write(''.join(row['links'] + '\\n' for row in rows))\n"
        "assert all(len(r['scores']) == len(r['links'].split()) for r in rows)\n"
    )
    assert (work / "rows").read_bytes() == (work / "whole").read_bytes()


@pytest.mark.slow
def test_a_mistake_stops_the_cluster(work, cluster):
    (work / "bad.jsonl").write_text('{"src": "a", "tgt": "b"}\n{"src": 1}\n')
    cluster.run(
        "from mx_align.engine.cluster.ray import *\n"
        "todo = divide_corpus('bad.jsonl', None, 100)\n"
        "try:\n"
        "    list(align_blocks(todo, {'model': 'toy.mx'}, CorpusOptions()))\n"
        "except MxError as error:\n"
        "    open('mistake', 'w').write(str(error))\n"
    )
    assert "bad.jsonl, line 2: no object" in (work / "mistake").read_text()


# ---- without a cluster ----


def test_parquet_in_and_out(work):
    import io

    import pyarrow as pa
    import pyarrow.parquet as parquet

    todo = divide_corpus(str(work / "c.parquet"), None, 50)
    options = CorpusOptions(format="parquet", chunk_pairs=50)
    aligner = BlockAligner({"model": str(work / "toy.mx")}, options, 1)
    rows = aligner(pa.table({"block": list(map(pickle.dumps, todo))})).to_pylist()
    found = [pickle.loads(row["found"]) for row in rows]
    assert [block for block, *_ in found] == todo
    table = pa.concat_tables(parquet.read_table(io.BytesIO(data)) for _, data, _ in found)
    assert table.column("links").to_pylist() == (work / "whole").read_text().split("\n")[:-1]
    given = parquet.read_table(work / "c.parquet")
    assert table.column("src").to_pylist() == given.column("src").to_pylist()


def test_a_pool_is_no_larger_than_its_work():
    class Cluster:
        """Of sixteen cores."""

        class data:
            ActorPoolStrategy = dict

        @staticmethod
        def cluster_resources():
            return {"CPU": 16.0}

    pools = [actor_arguments(Cluster, "auto", None, 2, blocks=n) for n in (3, 100)]
    assert [pool["compute"]["size"] for pool in pools] == [3, 8]
    with pytest.raises(MxError, match="each aligner wants 32 cores"):
        actor_arguments(Cluster, "auto", None, 32, blocks=3)


@pytest.mark.slow
def test_a_cluster_that_does_not_answer(monkeypatch, capfd):
    import ray

    def nobody(**options):
        os.write(2, b"noise of a library")
        raise ConnectionError("nobody there.\nmany more lines")

    monkeypatch.setattr(ray, "init", nobody)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setenv("RAY_BACKEND_LOG_LEVEL", "fatal")
    message = "cannot join the Ray cluster host:1: nobody there; if it wants a token, set RAY_AUTH"
    with pytest.raises(MxError, match=message), join_cluster("host:1"):
        pass
    os.write(2, b"ours")
    assert capfd.readouterr().err == "ours"
