"""The ablation: eight rows, the paper's directions, and the shared cache of a real, tiny run."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ...benchmarks import ablation, records
from ...benchmarks.ablation import ROWS, check_claims, drop_end, list_steps
from ...trainer.commands.train import main as mx_train


def test_eight_rows_and_their_steps():
    assert len({row.parts for row in ROWS.values()}) == len(ROWS) == 8
    assert len(list(list_steps())) == 12  # the edges of a cube
    assert all(ROWS[better].paper < ROWS[worse].paper for worse, better in list_steps())
    assert ROWS["leaky"].flags() == ["--no-masked", "--leaky", "--alpha=0"]
    known = {flag for one in mx_train.params for flag in (*one.opts, *one.secondary_opts)}
    assert all(flag.partition("=")[0] in known for row in ROWS.values() for flag in row.flags())


def test_directions_hold_or_not():
    runs = {
        "none": {"aer": [28.0, 26, 30]},
        "masked": {"aer": [20.0, 18, 22], "aer_without_end": [15.0, 14, 16]},
        "leaky": {"aer": [27.5, 26, 29]},
        "agree": {"aer": [35.0, 33, 37]},
        "masked+leaky": {"aer": [14.0, 12, 15], "aer_without_end": [14.1, 12, 15]},
    }
    found = {d.claim.split(" ")[0] + d.here: d.verdict for d in check_claims(runs)}
    assert found["none28.0 → 20.0"] == "yes"
    assert found["none28.0 → 27.5"] == "within the noise"
    assert found["none28.0 → 35.0"] == "no"
    assert found["masked,20.0 → 15.0"] == "yes"
    assert found["masked+leaky,14.0 → 14.1"] == "yes"
    # Sentence by sentence less is needed to tell two rows apart.
    runs["leaky"]["against"] = {"none": [-0.5, -0.9, -0.1]}
    runs["masked"]["against"] = {ablation.WITH_END: [-5.0, -11.0, 1.0]}
    found = {d.claim.split(" ")[0] + d.here: d.verdict for d in check_claims(runs)}
    assert found["none28.0 → 27.5"] == "yes" and found["masked,20.0 → 15.0"] == "within the noise"
    far = {"none": {"aer": [84.0, 83, 85]}, "leaky": {"aer": [80.0, 79, 81]}}
    assert [d.verdict for d in check_claims(far)] == ["nothing learned yet"]


def test_the_end_is_dropped_but_for_another_end():
    scores = np.full((2, 3), 0.5, np.float32)
    drop_end(["a", "."], ["x", "y", "。"], scores)
    np.testing.assert_array_equal(scores, [[0.5, 0.5, 0], [0, 0, 0.5]])
    scores = np.full((2, 2), 0.5, np.float32)
    drop_end(["a", "."], ["x", "y"], scores)
    np.testing.assert_array_equal(scores, [[0.5, 0.5], [0, 0]])
    drop_end([], [], np.zeros((0, 0)))


@pytest.fixture
def data(corpus, tmp_path) -> Path:
    folder = tmp_path / "data" / "de-en"
    folder.mkdir(parents=True)
    for file, name in zip(corpus, ("train.de", "train.en"), strict=True):
        (folder / name).write_bytes(file.read_bytes())
        first = (folder / name).read_text("utf-8").split("\n")[:4]
        (folder / name.replace("train", "test")).write_text("".join(f"{x}\n" for x in first))
    (folder / "test.talp").write_text("0-0\n" * 4)
    return tmp_path / "data"


@pytest.mark.slow
def test_two_rows_share_a_cache_and_are_not_trained_twice(data, tmp_path, train_arguments):
    flags = train_arguments(steps=3, vocab_size=4000)  # the preset's, as the shared vocabulary
    results, work = tmp_path / "ablation.json", tmp_path / "work"
    arguments = ["--data", data, "--steps", 3, "--preset", "tiny", "--row", "none"]
    arguments += ["--row", "masked+leaky", "--work", work, "--json", results]
    arguments += ["--flags", " ".join(flags)]

    def call(*more):
        return CliRunner().invoke(ablation.main, [*map(str, arguments), *more])

    result = call()
    assert result.exit_code == 0, result.output
    runs = records.load_runs(results)
    assert set(runs) == {"none", "masked+leaky"} and 0 <= runs["none"]["aer"][0] <= 100
    assert len(runs["masked+leaky"]["aer_without_end"]) == 3
    against = runs["masked+leaky"]["against"]
    assert list(against) == [ablation.WITH_END] and len(against[ablation.WITH_END]) == 3
    folder = work / "de-en-tiny"
    settings = json.loads((folder / "none--steps=3" / "config.json").read_text())
    assert not settings["model"]["masked"] and settings["train"]["alpha"] == 0
    one, base = folder / "none--steps=3" / "cache", folder / "base" / "cache"
    files = [path.relative_to(base) for path in base.rglob("*") if path.is_file()]
    assert files and all((one / name).samefile(base / name) for name in files)
    log = (folder / "none--steps=3" / "log.jsonl").read_bytes()
    # A row more, in a command of its own, is compared with those there were.
    more = ["--data", data, *arguments[2:6], "--row", "masked", *arguments[10:]]
    assert CliRunner().invoke(ablation.main, list(map(str, more))).exit_code == 0
    assert (folder / "none--steps=3" / "log.jsonl").read_bytes() == log
    again = records.load_runs(results)
    assert set(again["masked"]["against"]) == {ablation.WITH_END, "none"}
    assert set(again["masked+leaky"]["against"]) == {ablation.WITH_END, "masked"}
    assert again["none"] == runs["none"]
    assert call().exit_code == 0 and records.load_runs(results) == again
    arguments[arguments.index(3)] = 4
    other = call()
    assert other.exit_code == 1 and "which cannot be compared" in other.output
    less = call("--pairs", "20")
    assert less.exit_code == 1 and "rows of another text" in less.output


@pytest.mark.slow
def test_a_guided_start_is_the_same_for_all_rows(data, tmp_path, train_arguments):
    flags = train_arguments(steps=4, vocab_size=4000, warm_start="statistical")
    arguments = ["--data", data, "--steps", 4, "--preset", "tiny", "--guided", 0.5, "--row", "all"]
    arguments += ["--work", tmp_path / "work", "--json", tmp_path / "guided.json"]
    arguments += ["--flags", " ".join([*flags, "--log-every 1"])]
    result = CliRunner().invoke(ablation.main, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    run = tmp_path / "work" / "de-en-tiny-guided" / "all--steps=4"
    settings = json.loads((run / "config.json").read_text())["train"]
    assert settings["warm_start"] == "statistical" and settings["guidance_until"] == 0.5
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().split("\n")[:-1]]
    seeds = [line["seeds"] for line in log if "seeds" in line]
    assert all(seeds[:2]) and not any(seeds[2:])  # from half of the steps on none is taught
