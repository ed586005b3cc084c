"""Run folders over time: a run of an earlier version goes on as if nothing had happened."""

import json

from ....trainer.loop.train import train_network
from ....trainer.run.folder import RunCommand, load_run, prepare_run

OLD_NAMES = {"dtype": "precision", "guidance_weight": "seed_weight", "guidance_until": "seed_until"}


def age_run(run):
    """Write a run's files as the version before the names of today did."""
    config = json.loads((run / "config.json").read_text())
    config["train"] = {OLD_NAMES.get(k, k): v for k, v in config["train"].items()}
    config["train"]["warm_start"] = "seed"
    command = json.loads((run / "command.json").read_text())
    command["texts"]["teacher"] = ["seed"]
    links = json.loads((run / "cache" / "links" / "key.json").read_text())
    links["teachers"] = [["seed"]]
    files = {"config.json": config, "command.json": command, "cache/links/key.json": links}
    for name, content in files.items():
        (run / name).write_text(json.dumps(content))


def test_a_run_of_an_earlier_version_goes_on(start, tmp_path):
    run, settings = tmp_path / "run", {"warm_start": "statistical", "guidance_weight": 2.0}
    texts = {"teacher": ("statistical",)}
    config, *_ = arguments = start(run, texts, steps=4, **settings)
    train_network(*arguments)
    age_run(run)
    found, found_texts = load_run(run)
    assert found == config and found_texts.teacher == ("statistical",)
    notes = []
    prepare_run(RunCommand(run, None, None, ({"steps": 6},)), notes.append)
    assert notes == ["steps is 6 from now on; it was 4"]  # and nothing is made again
    assert "precision" not in json.loads((run / "config.json").read_text())["train"]
    assert train_network(*start(run, texts, steps=6, **settings)) == 0
