"""mx-seed: the statistical aligner as a command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ....engine.commands.seed import main
from ....engine.errors import InputError
from ....engine.statistical.model import StatisticalModel
from ....engine.text.files import read_lines
from ...support.guarded import run_guarded
from ...support.made_up_language import make_corpus, measure_f1

PAGE = Path(__file__).parents[3] / "docs" / "seed.md"


def write_sides(folder: Path, src, tgt) -> tuple[str, str]:
    """Write the words of both sides as lines; return the paths."""
    for name, side in (("src", src), ("tgt", tgt)):
        (folder / name).write_text("".join(" ".join(words) + "\n" for words in side))
    return str(folder / "src"), str(folder / "tgt")


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    src, tgt, _ = make_corpus(150, random_seed=7)
    return write_sides(tmp_path, [*src, [], ["a"]], [*tgt, ["a"], []])


def run_seed(*args: str, stdin: str | None = None):
    return CliRunner().invoke(main, list(args), input=stdin)


def test_writes_a_line_for_each_pair(files):
    result = run_seed(*files)
    lines = result.stdout.split("\n")
    assert (result.exit_code, result.stderr) == (0, "")
    assert len(lines) == 153 and lines[150:] == ["", "", ""]
    assert lines[0].startswith("0-")


def test_writes_scores_and_keeps_the_model(files, tmp_path):
    out, scores, kept = (str(tmp_path / name) for name in ("out", "scores.gz", "kept.npz"))
    result = run_seed(*files, "-o", out, "--scores", scores, "--save", kept, "--signature")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "mx-seed|v:" in result.stderr and "pairs:150" in result.stderr
    scored = [[link.split(":")[0] for link in line.split()] for line in read_lines(scores)]
    assert scored == [line.split() for line in read_lines(out)]
    assert run_seed(*files, "--load", kept).stdout == Path(out).read_text()


def test_writes_both_directions_in_the_same_pass(files, tmp_path):
    prefix = str(tmp_path / "both")
    joined = run_seed(*files, "--symmetrize", "union", "--write-directions", prefix).stdout
    found = [(tmp_path / f"both.{side}").read_text().split("\n") for side in ("fwd", "bwd")]
    union = [set(f.split()) | set(b.split()) for f, b in zip(*found, strict=True)]
    assert [set(line.split()) for line in joined.split("\n")] == union
    assert run_seed(*files, "--forward").stdout == "\n".join(found[0])
    assert run_seed(*files, "--backward").stdout == "\n".join(found[1])
    assert "exclude each other" in run_seed(*files, "--backward", "--forward").stderr
    clash = run_seed(*files, "--write-directions", prefix, "-o", f"{prefix}.fwd")
    assert "both.fwd is an input or would be written twice" in clash.stderr


def test_counts_of_shards_are_learned_from_as_the_whole(files, tmp_path):
    start, whole, first, second = (str(tmp_path / f"{name}.npz") for name in "swab")
    run_seed(*files, "--max-pairs", "50", "--save", start)
    src, tgt = (Path(name).read_text().splitlines(keepends=True) for name in files)
    for part, path in ((slice(0, 70), first), (slice(70, None), second)):
        (tmp_path / "part.src").write_text("".join(src[part]))
        (tmp_path / "part.tgt").write_text("".join(tgt[part]))
        shard = str(tmp_path / "part.src"), str(tmp_path / "part.tgt")
        result = run_seed(*shard, "--load", start, "--save-counts", path)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    run_seed(*files, "--load", start, "--save-counts", whole)
    load = (*files, "--load", start, "--add-counts")
    kept = str(tmp_path / "kept.npz")
    merged = run_seed(*load, first, "--add-counts", second, "--save", kept).stdout
    assert merged == run_seed(*load, whole).stdout != ""
    assert run_seed(*files, "--load", kept).stdout == merged
    assert run_seed(*files, "--priors", kept).stdout.count("\n") == 152
    for wrong, message in (
        (("--save-counts", first), "--save-counts needs the model"),
        (("--load", start, "--priors", kept), "--priors cannot be heeded"),
        (("--load", start, "--add-counts", first, "--save-counts", whole), "exclude each other"),
        (("--load", kept, "--add-counts", first), "made with another model"),
    ):
        result = run_seed(*files, *wrong)
        assert result.exit_code == 2 and message in " ".join(result.stderr.split())


def test_learns_once_and_aligns_other_text(files, tmp_path):
    kept = str(tmp_path / "kept.npz")
    assert run_seed(*files, "-o", str(tmp_path / "out"), "--save", kept).exit_code == 0
    (tmp_path / "other").mkdir()
    src, tgt, gold = make_corpus(80, random_seed=9)
    others = write_sides(tmp_path / "other", src, tgt)
    result = run_seed(*others, "--load", kept)
    found = [
        {tuple(map(int, link.split("-"))) for link in line.split()}
        for line in result.stdout.splitlines()
    ]
    assert measure_f1(found, gold) > 0.95
    # What was learned before is read once, so that a side may come through a pipe.
    piped = run_seed("-", others[1], "--load", kept, stdin=Path(others[0]).read_text())
    assert (piped.exit_code, piped.stdout) == (0, result.stdout)


@pytest.mark.slow
def test_works_in_the_base_install(files, tmp_path):
    """Without torch and whatever else comes with training and export."""
    code = f"""
from mx_align.engine.commands.seed import main
main([{files[0]!r}, {files[1]!r}, "-q", "--save", {str(tmp_path / "m")!r}], standalone_mode=False)
"""
    banned = {"torch", "triton", "safetensors", "onnx", "mx_align.trainer", "mx_align.export"}
    done = run_guarded(banned, code)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run_seed(*files).stdout


@pytest.mark.parametrize("name", ["out", "out.zst"])
def test_replaces_nothing_before_all_is_aligned(files, tmp_path, name, monkeypatch):
    def fail(self, pairs, threshold, modes):
        raise InputError("the disk is gone")

    monkeypatch.setattr(StatisticalModel, "find_modes", fail)
    out = tmp_path / name
    out.write_text("links of an earlier run")
    assert run_seed(*files, "-o", str(out), "--scores", str(tmp_path / "scores")).exit_code == 2
    assert out.read_text() == "links of an earlier run"
    assert {path.name for path in tmp_path.iterdir()} == {"src", "tgt", name}


def test_writes_no_file_twice_and_no_input(files):
    for flags in (["-o", files[0]], ["-o", "x", "--scores", "x"], ["--scores", files[1]],
                  ["--load", "m", "-o", "m"]):  # fmt: skip
        found = run_seed(*files, *flags)
        assert found.exit_code == 2 and "is an input or would be written twice" in found.stderr


def test_explains_mistakes(files, tmp_path):
    (tmp_path / "short").write_text("a b\n")
    for args, message in (
        (("-", files[1]), "cannot be read twice"),
        ((files[0], str(tmp_path / "absent")), "does not exist"),
        ((files[0], str(tmp_path / "short")), "equal line counts"),
        ((*files, "--load", str(tmp_path / "absent")), "does not exist"),
        ((*files, "--load", "m", "--lowercase"), "--load m learns nothing, so that --lowercase"),
        ((*files, "--load", "m", "--max-words", "9", "--save", "n"), "--max-words, --save cannot"),
        ((*files, "--threshold", "0"), "--threshold"),
    ):
        result = run_seed(*args)
        assert result.exit_code == 2
        assert message in result.stderr and "Traceback" not in result.stderr


def test_help_is_short_and_grouped():
    text = run_seed("-h").stdout
    for title in ("Output:", "Learning:", "Model:", "General:"):
        assert f"\n{title}" in text


@pytest.mark.slow
def test_the_commands_and_the_code_of_the_page_work(tmp_path):
    for name in ("corpus", "new", "sample", "part1", "part2", "small"):
        write_sides(tmp_path, *make_corpus(40, random_seed=3)[:2])
        (tmp_path / "src").rename(tmp_path / f"{name}.en")
        (tmp_path / "tgt").rename(tmp_path / f"{name}.fr")
    text = PAGE.read_text("utf-8")
    commands = re.findall(r"^mx-seed (?!.* all\.en).*", text, re.MULTILINE)
    assert len(commands) == 8
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in commands:
        subprocess.run(command, shell=True, check=True, cwd=tmp_path, env={"PATH": tools})
        if "new.links" in command:
            assert (tmp_path / "new.links").read_text() == (tmp_path / "corpus.links").read_text()
    assert {"part2.npz", "small.links"} < {path.name for path in tmp_path.iterdir()}
    [code] = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.startswith("0-0 1-1 2-2\n[(0, 0), (1, 1), (2, 2), (3, 3)] [")
