"""What the model card tells of data, cost, quality and limits."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ....engine.bundle.bundle import Bundle
from ....export.card.facts import name_teacher, read_cost
from ....export.commands.export import main
from ...support.random_runs import write_run


def test_cost_is_that_of_the_whole_run(tmp_path):
    assert read_cost(tmp_path) == {}
    lines = [{"step": 10, "pieces": 100, "seconds": 1.26}, {"step": 20, "accuracy": 0.5}]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"step": 30, "pie'
    (tmp_path / "log.jsonl").write_text(text)
    assert read_cost(tmp_path) == {"step": 20, "pieces": 100, "seconds": 1.3}


def test_files_of_links_are_not_named(tmp_path):
    """Also not one that is called as the statistical aligner."""
    for name in ("statistical", "secret.links"):
        (tmp_path / name).write_text("0-0\n")
        assert name_teacher(str(tmp_path / name)) == "a file of links"
    assert name_teacher("statistical") == "the statistical aligner"
    assert name_teacher(str(tmp_path / "de-en.mx")) == "de-en"


def export(tmp_path: Path, *arguments: object) -> tuple[Bundle, str]:
    run = tmp_path / "run"
    if not run.exists():
        write_run(run)
        log = {"step": 3000, "pieces": 2_500_000, "seconds": 1800.0}
        (run / "log.jsonl").write_text(json.dumps(log) + "\n")
    fixed = ["-o", tmp_path / "m.mx", "--dtype", "fp32", "--force"]
    result = CliRunner().invoke(main, [str(a) for a in (run, *fixed, *arguments)])
    assert result.exit_code == 0, result.output
    bundle = Bundle.load(tmp_path / "m.mx")
    return bundle, bundle.read_file("README.md").decode()


def test_the_card_tells_what_it_was_told(tmp_path):
    told = ["--data", "a corpus of ships", "--licence", "CC0", "--hardware", "two cores"]
    bundle, card = export(tmp_path, *told, "--limits", "It knows no trains.", "--text", "abc")
    for line in ("- Data: a corpus of ships\n", "- Licence of the data: CC0\n",
                 "- Cost: 30.0 minutes on two cores, 3,000 steps, 2.5M pieces",
                 "- It knows no trains.\n", "Not measured: there were no gold links"):  # fmt: skip
        assert line in card
    assert bundle.manifest.training["text"] == "abc" and "limits" in bundle.manifest.training


@pytest.mark.slow
def test_aer_is_measured_on_the_test_pairs(tmp_path):
    files = []
    for name, text in (("src", "x1 x2 x3\n"), ("tgt", "y1 y2 y3\n"), ("gold", "0-0 1-1 2p2\n")):
        files.append(tmp_path / name)
        files[-1].write_text(text * 9)
    bundle, card = export(tmp_path, "--test", *files, "--test", *files)
    test, again = bundle.manifest.training["tests"]
    assert test["pairs"] == 9 and test["aer"][1] <= test["aer"][0] <= test["aer"][2]
    assert test["links"] == "gold" and test == again
    assert card.count(f"- AER {test['aer'][0]:.2f} % (95 %: ") == 2
    assert "threshold was chosen" not in card
    assert "agreement of the directions" in bundle.manifest.thresholds.chosen
    gold = ["--gold-src", files[0], "--gold-tgt", files[1], "--gold", files[2]]
    assert "on which the threshold was chosen" in export(tmp_path, *gold)[1]
