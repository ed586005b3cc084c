"""A cluster of two workers gives the bytes of one machine, also when one of them is killed.

The whole file needs Ray and skips itself without it."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bundles import LINES, write_toy

pytest.importorskip("ray.data", reason='needs Ray: pip install "mx-align[ray]"')

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds workers in /proc"),
]

WORDS = " ".join(LINES).split(" ")
PAIRS = 4000
# Workers that give way to all others, as Ray has them by default, never end on a busy machine.
ENVIRONMENT = {
    **os.environ, "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}  # fmt: skip
COMMAND = [sys.executable, "-m", "mx.engine.cli"]


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    """A folder with a model, a corpus in three forms and the links of one machine."""
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
    rows = [{"de": src, "en": tgt} for src, tgt in zip(*sides, strict=True)]
    (folder / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = pa.table({"src": sides[0], "tgt": sides[1]})
    parquet.write_table(table, folder / "c.parquet", row_group_size=333)
    line = [*COMMAND, "c.src", "c.tgt", "-m", "toy.mx", "-o", "whole", "--threads", "1"]
    subprocess.run(line, cwd=folder, check=True, timeout=300, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def cluster(work) -> str:
    """A cluster on this machine with room for two aligners; its address."""
    code = (
        "import ray, sys; ray.init(num_cpus=2, num_gpus=0, include_dashboard=False, "
        "log_to_driver=False); print(ray.get_runtime_context().gcs_address, flush=True); "
        "sys.stdin.read()"
    )
    address = ""
    for _ in range(5):  # Ray gives its own processes 30 seconds, which a busy machine may not have
        head = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=ENVIRONMENT, text=True,
        )  # fmt: skip
        assert head.stdout and head.stdin
        if address := head.stdout.readline().strip():
            break
        head.wait(60)
    assert address, "no cluster could be started"
    yield address
    head.stdin.close()
    head.wait(60)


def start(work: Path, cluster: str, *arguments: str) -> subprocess.Popen:
    line = [*COMMAND, "--ray", cluster, *arguments, "-m", "toy.mx", "--chunk-pairs", "10"]
    return subprocess.Popen(
        line, cwd=work, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(process: subprocess.Popen) -> str:
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    return said


def aligners() -> list[int]:
    """The processes of the pool; Ray names them after what they do."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes()
        except OSError:
            continue
        if line.startswith(b"ray::") and b"BlockAligner" in line:
            found.append(int(place.name))
    return found


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*"))


def test_a_killed_worker_changes_nothing(work, cluster):
    out = work / "killed"
    process = start(work, cluster, "c.src", "c.tgt", "-o", "killed", "--actors", "2")
    killed = []
    while process.poll() is None and not killed:
        time.sleep(0.02)
        if parts(out):  # in the middle: some are written, most are not
            killed = aligners()[:1]
    assert killed and len(parts(out)) < PAIRS // 80
    os.kill(killed[0], signal.SIGKILL)
    said = finish(process)
    assert f"{PAIRS:,} pairs in" in said
    assert b"".join(path.read_bytes() for path in parts(out)) == (work / "whole").read_bytes()
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["pairs"] == PAIRS == sum(shard["pairs"] for shard in manifest["shards"])
    assert [shard["file"] for shard in manifest["shards"]] == [p.name for p in parts(out)]

    line = [sys.executable, "-m", "mx.engine.merge", "killed", "-o", "merged"]
    subprocess.run(line, cwd=work, check=True, capture_output=True, timeout=60)
    assert (work / "merged").read_bytes() == (work / "whole").read_bytes()


def test_a_killed_driver_goes_on(work, cluster):
    out = work / "resumed"
    process = start(work, cluster, "c.jsonl", "--columns", "de,en", "-o", "resumed")
    while process.poll() is None and len(parts(out)) < 3:
        time.sleep(0.02)
    process.kill()
    process.wait()
    kept = {path.name: path.stat().st_mtime_ns for path in parts(out)}
    assert 3 <= len(kept) < PAIRS // 80 and not (out / "manifest.json").exists()
    said = finish(start(work, cluster, "c.jsonl", "--columns", "de,en", "-o", "resumed"))
    assert "of them by an earlier run" in said
    same = [path.name for path in parts(out) if kept.get(path.name) == path.stat().st_mtime_ns]
    assert len(same) >= len(kept) - 1  # the last one may have come before its record
    assert b"".join(path.read_bytes() for path in parts(out)) == (work / "whole").read_bytes()


def test_parquet_in_and_out_and_a_dataset(work, cluster):
    import pyarrow.parquet as parquet

    finish(start(work, cluster, "c.parquet", "-o", "table", "--format", "parquet"))
    table = parquet.ParquetDataset(parts(work / "table")).read()
    whole = (work / "whole").read_text().split("\n")[:-1]
    assert table.column("links").to_pylist() == whole
    code = (
        "import sys, ray; from mx.engine.ray import align_dataset\n"
        "ray.init(sys.argv[1], log_to_driver=False)\n"
        "ds = ray.data.read_parquet('c.parquet', override_num_blocks=3)\n"
        "rows = align_dataset(ds, 'toy.mx', actors=1, chunk_pairs=100).take_all()\n"
        "open('rows', 'w').write(''.join(row['links'] + '\\n' for row in rows))\n"
        "assert all(len(r['scores']) == len(r['links'].split()) for r in rows)\n"
    )
    line = [sys.executable, "-c", code, cluster]
    done = subprocess.run(
        line, cwd=work, env=ENVIRONMENT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert (work / "rows").read_bytes() == (work / "whole").read_bytes()


def test_mistakes_are_one_line(work, cluster):
    (work / "bad.jsonl").write_text('{"src": "a", "tgt": "b"}\n{"src": 1}\n')
    process = start(work, cluster, "bad.jsonl", "-o", "bad")
    _, said = process.communicate(timeout=600)
    assert process.returncode == 2 and "bad.jsonl, line 2: no object" in said
