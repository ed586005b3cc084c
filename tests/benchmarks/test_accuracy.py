"""The accuracy benchmark on a made-up set, with peers that are a line of shell."""

import gzip
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ...benchmarks import accuracy, records, systems, watch
from ...engine.errors import MxError


@pytest.fixture
def data(tmp_path) -> Path:
    """A set laid out as the benchmark wants it: two words a side, linked in order."""
    folder = tmp_path / "data" / "en-fr"
    folder.mkdir(parents=True)
    train = ["The House", "", "a ||| b", "x y", "z"]
    for language in ("en", "fr"):
        text = "".join(f"{line}\n" for line in train)
        (folder / f"train.{language}.gz").write_bytes(gzip.compress(text.encode()))
        (folder / f"test.{language}").write_text("Un Deux\nTrois Quatre\n")
    (folder / "test.talp").write_text("0-0 1-1\n0-0 1p1\n")
    return tmp_path / "data"


def run(data: Path, *arguments: str):
    return CliRunner().invoke(accuracy.main, ["--data", str(data), "--set", "en-fr", *arguments])


def test_the_text_is_lowercased_and_ends_with_the_gold_pairs(data, tmp_path):
    text = accuracy.prepare_text(data, "en-fr", None, tmp_path / "work")
    assert text.src.read_text() == "the house\nx y\nz\nun deux\ntrois quatre\n"
    assert text.joint.read_text().startswith("the house ||| the house\nx y ||| x y\n")
    assert (text.pairs, text.gold_pairs) == (5, 2)
    assert accuracy.prepare_text(data, "en-fr", None, tmp_path / "work") == text
    fewer = accuracy.prepare_text(data, "en-fr", 1, tmp_path / "work")
    assert fewer.pairs == 3 and fewer.digest != text.digest


def test_a_peer_with_one_output(data, tmp_path):
    results = tmp_path / "results.json"
    records.add_run(results, "en-fr/other", {"system": "other"})
    peer = "sed 's/.*/0-0/' {src} > {out}"
    result = run(data, "--peer", f"first={peer}", "--json", str(results))
    assert result.exit_code == 0, result.output
    runs = json.loads(results.read_text())["runs"]
    assert set(runs) == {"en-fr/first", "en-fr/other"}  # added, the other one kept
    found = runs["en-fr/first"]
    # Two links, both sure, of three sure ones: AER 1 - (2 + 2) / (2 + 3).
    assert (found["aer"], found["precision"], found["recall"]) == (20.0, 100.0, 66.67)
    assert found["interval"]["aer"][0] <= 20 <= found["interval"]["aer"][1]
    assert found["text"]["pairs"] == 5 and found["both"]["wall"] >= 0
    assert found["both"]["peak_mb"] > 0 and found["hardware"] and found["date"]
    assert "first" in result.stdout and "20.00" in result.stdout


def test_a_peer_with_two_directions_gets_the_best_way_to_join_them(data, tmp_path):
    peer = "sed 's/.*/0-0 1-0/' {src} > {fwd}; sed 's/.*/0-0 1-1/' {src} > {bwd}"
    results = tmp_path / "r.json"
    result = run(data, "--peer", f"two={peer}", "--json", str(results))
    assert result.exit_code == 0, result.output
    found = records.load_runs(results)["en-fr/two"]
    assert found["symmetrization"] == "backward" and found["aer"] == 0
    assert found["symmetrizations"]["intersect"] == 20.0
    assert found["symmetrizations"]["union"] > 0


def test_what_fails_is_left_out_and_the_rest_goes_on(data, tmp_path):
    peers = ["--peer", "bad=false {out}", "--peer", "short=echo 0-0 > {out}",
             "--peer", "good=sed 's/.*/0-0/' {src} > {out}"]  # fmt: skip
    result = run(data, *peers, "--pairs", "2")
    assert result.exit_code == 1
    assert "en-fr bad: left out" in result.stderr and "ended with 1" in result.stderr
    assert "has 1 lines of links for 4 pairs" in result.stderr
    assert "good" in result.stdout and "bad" not in result.stdout
    assert run(data, "--bundle", "nonsense").exit_code == 1


def test_commands_of_the_peers(data, tmp_path, monkeypatch):
    text = accuracy.prepare_text(data, "en-fr", None, tmp_path / "work")
    monkeypatch.setattr(systems, "peer_version", lambda python, package: "9")
    (tmp_path / "eflomal-align").touch()
    (tmp_path / "fast_align").touch()
    options = systems.Options(python=str(tmp_path / "python"))
    plan = systems.plan_eflomal(text, tmp_path, options)
    assert plan.phases[0].command[0] == str(tmp_path / "eflomal-align")
    assert plan.links == (tmp_path / "fwd", tmp_path / "bwd") and "v:9" in plan.signature
    forward, backward = systems.plan_fast_align(text, tmp_path, options).phases
    assert "-r" in backward.command and "-r" not in forward.command
    assert [p.what for p in systems.plan_systran(text, tmp_path, options).phases] == [
        "train",
        "align",
    ]
    with pytest.raises(MxError, match=r"must have \{out\}, or \{fwd\} and \{bwd\}"):
        systems.peer_system("x {src}")
    with pytest.raises(MxError, match="neither beside"):
        systems.find_program("/nowhere/python", "no-such-program", "install it")


@pytest.mark.slow
def test_the_peak_is_that_of_all_processes(tmp_path):
    hold = "x = bytearray(60_000_000); import time; time.sleep(1.5)"
    line = f"{sys.executable} -c '{hold}' & {sys.executable} -c '{hold}'; wait"
    cost = watch.run_command(["sh", "-c", line], tmp_path / "log")
    assert cost.peak_mb > 110 and cost.wall > 1.4
    both = cost + watch.Cost(1.0, 2.0, 3.0)
    assert both.peak_mb == cost.peak_mb and both.wall == cost.wall + 1


def test_a_command_that_fails_says_why(tmp_path):
    with pytest.raises(watch.CommandError, match=r"(?s)ended with 3.*oh no"):
        watch.run_command(["sh", "-c", "echo oh no >&2; exit 3"], tmp_path / "log")
    cost = watch.run_command(["echo", "out"], tmp_path / "log", stdout=tmp_path / "printed")
    assert (tmp_path / "printed").read_text() == "out\n" and cost.wall < 60
