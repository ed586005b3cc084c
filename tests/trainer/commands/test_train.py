"""mx-train as its users meet it: flags, errors, resuming after anything."""

import dataclasses
import json
import os
import signal
import subprocess
import time

import pytest
import torch
from click.testing import CliRunner

from ....trainer.commands.train import main
from ....trainer.config import ModelConfig, TrainConfig, read_config
from ....trainer.loop.progress import Monitor


@pytest.fixture
def invoke(corpus, train_arguments):
    """Runs mx-train on the corpus in this process."""

    def call(run, *extra, files=corpus, **settings):
        arguments = [*map(str, files), "-o", str(run), "--preset", "tiny", "--quiet"]
        arguments += [*train_arguments(**settings), *map(str, extra)]
        return CliRunner().invoke(main, arguments, prog_name="mx-train")

    return call


def only_line(result):
    (line,) = result.stderr.strip().split("\n")
    return line


# ---- flags ----


def test_every_setting_has_a_flag():
    text = CliRunner().invoke(main, ["--help"]).stdout
    for field in (*dataclasses.fields(ModelConfig), *dataclasses.fields(TrainConfig)):
        assert ("--" + field.name.replace("_", "-") in text) == ("flag" in field.metadata)
    for title in ("Run", "Files", "Machine", "Model", "Text", "Losses", "Optimisation",
                  "Bookkeeping", "General"):  # fmt: skip
        assert f"\n{title}:\n" in text


def test_config_then_flags_override_the_preset(invoke, tmp_path):
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"train": {"alpha": 2.5, "beta": 3}, "clip": 0.25}))
    result = invoke(tmp_path / "run", "--config", settings, "--beta", "0.5", "--no-leaky", steps=2)
    assert result.exit_code == 0, result.stderr
    config = read_config(tmp_path / "run" / "config.json")
    assert (config.train.alpha, config.train.beta, config.train.clip) == (2.5, 0.5, 0.25)
    assert not config.model.leaky and config.model.tied  # by flag; by preset
    assert config.model.src_vocab == config.model.tgt_vocab > 256
    again = invoke(tmp_path / "two", "--config", tmp_path / "run" / "config.json", steps=2)
    assert again.exit_code == 0, again.stderr  # a run's own file serves as --config


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give SRC, TGT and -o RUN, or --resume RUN"),
        (["a", "b"], "give SRC, TGT and -o RUN"),
        (["a", "b", "-o", "r", "--gold", "g"], "--gold-src and --gold-tgt must be given too"),
        (["a", "b", "-o", "r", "--valid-src", "v"], "--valid-tgt must be given too"),
        (["a", "b", "-o", "r", "--valid-src", "v", "--valid-tgt", "w", "--valid-last", "3"],
         "exclude each other"),
        (["--resume", "r", "--gold", "g"], "--resume takes the folder alone.* to name --gold$"),
        (["--resume", "r", "--valid-last", "0"], "to name --valid-last$"),
        (["--resume", "r", "a", "b", "--vocab", "", "--restart"],
         "to name SRC, TGT, --vocab, --restart$"),
        (["--resume", "nowhere"], "nowhere does not exist"),
        (["a", "b", "-o", "r", "--config", "none.json"], "cannot read none.json"),
        (["a", "b", "-o", "r", "--select", "aer"], "a gold set is needed"),
        (["a", "b", "-o", "r", "--width", "7"], "multiple of twice the heads"),
        (["none", "b", "-o", "r"], "cannot read .*none: No such file"),
    ],
)  # fmt: skip
def test_mistakes_are_explained_in_one_line(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2 and result.stdout == ""
    import re

    assert re.search(message, only_line(result)), result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--precision", "fp32"], "mx-train: --precision is now --dtype"),
        (["--seed-until=0.5"], "mx-train: --seed-until is now --guidance-until"),
        (["--warm-start", "seed"], "mx-train: --warm-start seed is now --warm-start statistical"),
        (["--teacher=seed"], "mx-train: --teacher seed is now --teacher statistical"),
    ],
)
def test_old_flags_say_what_they_are_called_now(arguments, message):
    result = CliRunner().invoke(main, ["a", "b", "-o", "r", *arguments])
    assert result.exit_code == 2 and only_line(result) == message


def test_debug_shows_the_traceback():
    result = CliRunner().invoke(main, ["--resume", "nowhere", "--debug"])
    assert result.exit_code == 2 and "Traceback" in result.stderr


def test_the_training_extra_is_named_when_it_is_missing(monkeypatch, invoke, tmp_path):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "torch" else real(n))
    result = invoke(tmp_path)
    assert result.exit_code == 2 and 'pip install "mx-align[train]"' in only_line(result)


# ---- run folders ----


@pytest.mark.skipif(
    not torch.set_flush_denormal(False), reason="this CPU cannot take tiny numbers for zero"
)
def test_numbers_that_have_faded_are_zero_while_training(invoke, tmp_path, monkeypatch):
    def small() -> bool:
        return bool((torch.full((1,), 1e-39) * 0.5).any())

    seen = []
    monkeypatch.setattr(
        "mx_align.trainer.loop.train.train_network", lambda *rest: seen.append(small())
    )
    assert invoke(tmp_path, steps=1).exit_code == 0
    assert seen == [False] and small()


def test_a_finished_run_says_so_and_can_go_on(invoke, tmp_path, read_log):
    assert invoke(tmp_path, steps=4).exit_code == 0
    again = invoke(tmp_path, steps=4)
    assert again.exit_code == 0 and len([x for x in read_log(tmp_path) if "loss" in x]) == 4
    more = CliRunner().invoke(main, ["--resume", str(tmp_path), "--steps", "6", "--device", "cpu"])
    assert more.exit_code == 0, more.stderr
    assert "steps is 6 from now on; it was 4" in more.stderr and "finished" in more.stderr
    assert read_log(tmp_path)[-1]["step"] == 6


def test_other_settings_are_refused_unless_restarted(invoke, tmp_path):
    assert invoke(tmp_path / "r", steps=2).exit_code == 0
    result = invoke(tmp_path / "r", "--lr", "0.5", "--valid-last", "3", steps=2)
    assert result.exit_code == 2
    assert "lr 0.002 (now 0.5), valid_last 500 (now 3)" in only_line(result)
    mine = tmp_path / "r" / "notes.txt"
    mine.write_text("keep me")
    result = invoke(tmp_path / "r", "--lr", "0.5", "--restart", steps=2)
    assert result.exit_code == 0 and mine.read_text() == "keep me"
    assert read_config(tmp_path / "r" / "config.json").train.lr == 0.5


@pytest.fixture
def copied(corpus, tmp_path):
    """The corpus in files that may be changed."""
    files = tmp_path / "a", tmp_path / "b"
    for old, new in zip(corpus, files, strict=True):
        new.write_bytes(old.read_bytes())
    return files


def test_a_changed_text_is_refused(invoke, copied, tmp_path):
    assert invoke(tmp_path / "r", files=copied, steps=2).exit_code == 0
    for file in copied:
        with open(file, "a") as out:
            out.write("one more\n")
    assert "started with" in only_line(invoke(tmp_path / "r", files=copied, steps=2))


def test_a_text_changed_in_place_is_refused_though_as_long(invoke, copied, tmp_path):
    """Its size and time are those of the first one."""
    run, text, before = tmp_path / "r", copied[0].read_bytes(), copied[0].stat()
    assert invoke(run, files=copied, steps=2).exit_code == 0
    copied[0].write_bytes(text.replace(b"w1 ", b"w2 "))
    os.utime(copied[0], ns=(before.st_atime_ns, before.st_mtime_ns))
    assert f"another text in {copied[0]}; repeat" in only_line(invoke(run, files=copied, steps=2))
    assert "another text" in only_line(CliRunner().invoke(main, ["--resume", str(run), "--quiet"]))
    copied[0].write_bytes(text)  # the old text at another time
    assert invoke(run, files=copied, steps=2).exit_code == 0


def test_a_run_that_noted_only_sizes_goes_on(invoke, copied, tmp_path):
    run = tmp_path / "r"
    assert invoke(run, files=copied, steps=2).exit_code == 0
    record = json.loads((run / "command.json").read_text())
    record["sizes"] = {file: known["size"] for file, known in record.pop("files").items()}
    (run / "command.json").write_text(json.dumps(record))
    result = invoke(run, files=copied, steps=3)
    assert result.exit_code == 0, result.stderr
    copied[0].write_bytes(copied[0].read_bytes().replace(b"w1 ", b"w2 "))
    assert "another text in" in only_line(invoke(run, files=copied, steps=3))


def test_a_text_changed_before_training_gets_a_new_vocabulary(start, copied, tmp_path):
    texts = {"src": str(copied[0]), "tgt": str(copied[1])}
    start(tmp_path / "r", texts)
    before = (tmp_path / "r" / "src.spm").read_bytes()
    copied[0].write_bytes(copied[0].read_bytes().replace(b"w", b"v"))
    start(tmp_path / "r", texts)
    assert (tmp_path / "r" / "src.spm").read_bytes() != before


def test_a_run_that_never_trained_may_be_corrected(invoke, corpus, tmp_path):
    (tmp_path / "short").write_text("one two\n")
    result = invoke(tmp_path / "r", files=(corpus[0], tmp_path / "short"))
    assert result.exit_code == 2 and "ends after 1 lines" in only_line(result)
    result = invoke(tmp_path / "r", vocab_size=340, steps=2)
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("flag", [[], ["--restart"]])
def test_foreign_folders_are_left_alone(invoke, tmp_path, flag):
    """Also if they have files that a run has: other programs write a config.json, too."""
    files = {"thesis.tex": "...", "config.json": "{}", "model.safetensors": "", "text/src": "a b"}
    (tmp_path / "text").mkdir()
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    result = invoke(tmp_path, *flag)
    assert result.exit_code == 2 and "run folder" in only_line(result)
    assert {name: (tmp_path / name).read_text() for name in files} == files
    assert not (tmp_path / "command.json").exists()


def test_a_file_is_no_run_folder(invoke, tmp_path):
    (tmp_path / "file").write_text("")
    assert "as run folder: File exists" in only_line(invoke(tmp_path / "file"))


def test_one_process_at_a_time(invoke, tmp_path):
    from ....trainer.run.folder import hold_run

    with hold_run(tmp_path):
        result = invoke(tmp_path)
    assert result.exit_code == 2
    assert f"is in use by process {os.getpid()}" in only_line(result)
    assert invoke(tmp_path, steps=2).exit_code == 0


def test_a_full_disk_is_explained(invoke, tmp_path, monkeypatch):
    from safetensors import SafetensorError

    from ....trainer.networks import weights

    def save_file(tensors, path):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(weights, "save_file", save_file)
    assert "No space left on device" in only_line(invoke(tmp_path))


def test_standard_input(corpus, tmp_path, train_arguments):
    arguments = ["-", str(corpus[1]), "-o", str(tmp_path), "--quiet", *train_arguments(steps=2)]
    text = corpus[0].read_bytes()
    for _ in range(2):
        assert CliRunner().invoke(main, arguments, input=text).exit_code == 0
    assert (tmp_path / "text" / "src").read_bytes() == text


def test_standard_input_may_be_corrected(corpus, tmp_path, train_arguments):
    arguments = ["-", str(corpus[1]), "-o", str(tmp_path), "--quiet", *train_arguments(steps=2)]
    result = CliRunner().invoke(main, arguments, input=b"a b\n\xff\n")
    assert result.exit_code == 2 and "not valid UTF-8" in only_line(result)
    assert CliRunner().invoke(main, arguments, input=corpus[0].read_bytes()).exit_code == 0


def test_what_a_killed_process_left_is_swept_up(tmp_path):
    from ....trainer.run.folder import delete_leftovers

    for name in (".train.1.0123abcd.tmp", ".mine.tmp", "train"):
        (tmp_path / "cache" / name).mkdir(parents=True)
    delete_leftovers(tmp_path)
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == [".mine.tmp", "train"]


def test_killed_before_the_folder_is_known_as_a_runs(invoke, tmp_path):
    (tmp_path / ".command.json.1.0123abcd.tmp").write_text("{")
    assert invoke(tmp_path, steps=2).exit_code == 0


# ---- stopping and going on ----


def wait_for(condition, process, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.005)


@pytest.mark.slow
def test_killed_and_resumed_equals_uninterrupted(
    invoke, corpus, tmp_path, command, train_arguments, read_log
):
    """SIGKILL somewhere in the middle, then the same command again."""
    settings = {"steps": 60, "dropout": 0.1, "save_every": 10, "eval_every": 20}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert invoke(whole, **settings).exit_code == 0
    line = [*command, *map(str, corpus), "-o", str(broken), "--preset", "tiny"]
    with subprocess.Popen([*line, *train_arguments(**settings)]) as process:
        wait_for((broken / "checkpoints" / "step-00000010").exists, process)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert len(read_log(broken)) < len(read_log(whole))
    assert invoke(broken, **settings).exit_code == 0
    assert read_log(broken) == read_log(whole)
    for file in ("model.safetensors", "checkpoints/step-00000060/averaged.safetensors"):
        assert (broken / file).read_bytes() == (whole / file).read_bytes()
    assert not list(broken.glob("**/.*.tmp"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_ends_the_run(invoke, tmp_path, monkeypatch, read_log, number):
    """Sent twice, as a launcher does that passes on what the terminal has sent already."""

    def interrupt(monitor, progress, *values):
        if progress.step == 5:
            for _ in range(2):
                os.kill(os.getpid(), number)

    with monkeypatch.context() as patch:
        patch.setattr(Monitor, "step", interrupt)
        assert invoke(tmp_path).exit_code == 128 + number
    assert (tmp_path / "checkpoints" / "step-00000005").exists()
    assert signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)
    assert invoke(tmp_path).exit_code == 0
    assert read_log(tmp_path)[0]["step"] == 6


def test_an_interruption_before_training(invoke, tmp_path, monkeypatch):
    def interrupt(*values):
        raise KeyboardInterrupt

    monkeypatch.setattr("mx_align.trainer.run.training_data.tokenize_texts", interrupt)
    result = invoke(tmp_path)
    assert result.exit_code == 130 and only_line(result) == "mx-train: interrupted"
