"""mx-align --train-on-input: a text in, a model kept, links out."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from ...engine import train_on_input as module
from ...engine.bundle.bundle import Bundle
from ...engine.bundle.installed import find_installed
from ...engine.commands import align as cli
from ...engine.commands.align_flags import parse_duration
from ...engine.errors import MxError
from ...engine.text.files import read_lines
from ...engine.train_on_input import (
    TrainingRequest,
    find_statistical_links,
    find_trained_model,
)


@pytest.fixture
def make_request(corpus, tmp_path, train_arguments):
    """A model of a few steps; --steps and --minutes of the request are overruled."""

    def make(**changes):
        settings = [*train_arguments(steps=6, minutes=0), "--preset", "tiny"]
        keep = str(changes.pop("keep", tmp_path / "kept.mx"))
        files = changes.pop("files", corpus)
        flags = changes.pop("flags", shlex.join(settings))
        return TrainingRequest(*map(str, files), keep_model=keep, train_flags=flags, **changes)

    return make


def test_times():
    assert [parse_duration(t) for t in ("30m", "2h", "1h30m", "90s")] == [1800, 7200, 5400, 90]
    for wrong in ("", "30", "m", "0m", "1.5h", "-3m"):
        with pytest.raises(ValueError, match="it must be a time like 30m"):
            parse_duration(wrong)


@pytest.mark.slow
def test_text_to_links_and_again(make_request, corpus, tmp_path):
    wanted = make_request(langs="xx-yy")
    line = [
        sys.executable,
        "-m",
        "mx_align.engine.commands.align",
        wanted.src,
        wanted.tgt,
        "--train-on-input",
    ]
    line += [
        "--keep-model",
        wanted.keep_model,
        "--train-flags",
        wanted.train_flags,
        "--langs",
        "xx-yy",
    ]
    line += ["--threshold", "0.001", "--signature"]
    first = subprocess.run(line, capture_output=True, text=True, timeout=900)
    assert first.returncode == 0, first.stderr
    assert f"kept the model in {wanted.keep_model}" in first.stderr and "step 6/" in first.stderr
    assert "reading the source as" not in first.stderr  # the model is of this text
    links = first.stdout.split("\n")[:-1]
    assert len(links) == 120 and all("-" in line for line in links)
    bundle = Bundle.load(wanted.keep_model)
    assert bundle.languages == ("xx", "yy") and bundle.manifest.training["text"]
    assert not Path(f"{wanted.keep_model}.run").exists()
    # The second time nothing is trained.
    said: list[str] = []
    assert find_trained_model(wanted, said.append) == Path(wanted.keep_model)
    assert said == [f"using {wanted.keep_model}, which was trained on this text"]
    (links,) = tmp_path.glob("kept.mx.*.links.zst")
    assert find_statistical_links(wanted, said.append) == links and len(said) == 1
    assert len(list(read_lines(links))) == 120
    other = tmp_path / "other"
    other.write_text("another text\n")
    with pytest.raises(MxError, match="is a model of another text"):
        find_trained_model(make_request(files=(other, other)), said.append)


def test_a_killed_training_goes_on(make_request, monkeypatch):
    """The programs are called in turn; what was done of one is not lost."""
    calls: list[list[str]] = []

    def program(name, arguments):
        calls.append([name, *arguments])
        if name == "mx-train":
            run = Path(arguments[arguments.index("-o") + 1])
            run.mkdir(exist_ok=True)
            if len(calls) == 1:
                raise KeyboardInterrupt

    monkeypatch.setattr(module, "run_program", program)
    wanted, said = make_request(budget=5400), []
    with pytest.raises(KeyboardInterrupt):
        find_trained_model(wanted, said.append)
    assert "goes on" in said[-1] and Path(f"{wanted.keep_model}.run").is_dir()
    find_trained_model(wanted, said.append)
    assert [call[0] for call in calls] == ["mx-train", "mx-train", "mx-export"]
    assert calls[0] == calls[1] and calls[0][calls[0].index("--minutes") + 1] == "90"
    assert "going on with a model for this text, 90 min once all is read" in said[-2]
    assert not Path(f"{wanted.keep_model}.run").exists()


def test_a_longer_time_trains_anew(make_request, monkeypatch):
    """A model of this text that has had less time is used unless more is asked for."""
    lines: list[list[str]] = []

    def program(name, arguments):
        lines.append([name, *arguments])
        if name == "mx-export":
            text = arguments[arguments.index("--text") + 1]
            minutes = lines[-2][lines[-2].index("--minutes") + 1]
            training = {"text": text, "settings": {"minutes": float(minutes)}}
            bundle = SimpleNamespace(manifest=SimpleNamespace(training=training))
            monkeypatch.setattr(Bundle, "load", lambda path: bundle)
            Path(arguments[arguments.index("-o") + 1]).mkdir(exist_ok=True)

    monkeypatch.setattr(module, "run_program", program)
    said: list[str] = []
    for budget, trained in ((10, 1), (10, 1), (None, 1), (5, 1), (7200, 2), (3600, 2)):
        kept = find_trained_model(make_request(budget=budget, flags=""), said.append)
        assert len(lines) == 2 * trained
    assert "--force" in lines[-1]
    used = [line.removeprefix(f"using {kept}, which was ") for line in said if "using" in line]
    ends = ["10 s"] * 3 + ["120 min"]
    assert used == [f"trained on this text for {x}; a longer --budget trains it anew" for x in ends]


@pytest.mark.parametrize(
    ("flags", "taught", "sized"),
    [
        ("--alpha 1", True, True),
        ("--teacher x", False, True),
        ("--preset tiny", False, False),
    ],
)
def test_the_links_by_statistics_teach_unless_others_do(
    make_request, monkeypatch, tmp_path, flags, taught, sized
):
    lines: list[list[str]] = []
    monkeypatch.setattr(
        module, "run_program", lambda name, arguments: lines.append(list(arguments))
    )
    links = tmp_path / "s.links"
    for pairs in (10, 50_000):
        links.write_text("0-0:0.5\n" * pairs, "utf-8")
        find_trained_model(make_request(flags=flags), lambda line: None, links)
        line = lines[-2]
        assert (str(links) in line) == taught
        assert ("--vocab-size" in line) == (sized and pairs == 10)  # of a small text


def test_without_a_place_the_cache_keeps_it(make_request, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "run_program", lambda name, arguments: None)
    wanted = make_request()
    kept = find_trained_model(TrainingRequest(wanted.src, wanted.tgt), lambda line: None)
    assert kept.parent == tmp_path / "mx-align" / "models" and kept.suffix == ".mx"
    other = find_trained_model(
        TrainingRequest(wanted.src, wanted.tgt, train_flags="--alpha 1"), lambda line: None
    )
    assert other != kept


def test_links_by_statistics_belong_to_a_text(make_request, monkeypatch, tmp_path):
    """Those of another text are never used with a model of the same name."""
    made: list[Path] = []

    def learn(src, tgt, scores, on_progress):
        made.append(scores)
        scores.touch()

    monkeypatch.setattr(module, "learn_links", learn)
    other = tmp_path / "other"
    other.write_text("another text\n")
    one = find_statistical_links(make_request(), lambda line: None)
    two = find_statistical_links(make_request(files=(other, other)), lambda line: None)
    assert made == [one, two] and one != two
    assert find_statistical_links(make_request(), lambda line: None) == one and len(made) == 2


def test_it_may_start_from_a_model(make_request, monkeypatch, tmp_path):
    """An installed one by name, or one at a path, which is told apart by what is in it."""
    lines: list[list[str]] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        module, "run_program", lambda name, arguments: lines.append(list(arguments))
    )
    text = make_request().src, make_request().tgt
    model = find_installed("fr-en")
    copied = shutil.copytree(model, tmp_path / "mine.mx")
    run = tmp_path / "run"
    run.mkdir()
    for name in ("config.json", "model.safetensors"):
        (run / name).write_text(name)

    def kept(**changes):
        return find_trained_model(TrainingRequest(*text, **changes), lambda line: None)

    plain, named = kept(), kept(start="fr-en", langs="fr-en")
    assert "--start" not in lines[0] and "--lowercase" in lines[0]
    assert lines[2][lines[2].index("--start") + 1] == str(model.resolve())
    assert not {"--preset", "--lowercase"} & set(lines[2])  # the model's own
    by_path, from_run = kept(start=str(copied)), kept(start=str(run))
    assert named == by_path and len({plain, named, from_run}) == 3
    (run / "model.safetensors").write_text("trained further")
    assert kept(start=str(run)) != from_run


@pytest.mark.slow
def test_a_started_model_aligns(corpus, tmp_path):
    """The whole way from an installed model to one of the text."""
    kept = tmp_path / "kept.mx"
    line = [
        sys.executable,
        "-m",
        "mx_align.engine.commands.align",
        *map(str, corpus),
        "--train-on-input",
    ]
    line += ["--start", "fr-en", "--keep-model", str(kept), "--threads", "1", "--train-flags"]
    line += ["--minutes 0 --steps 2 --batch-tokens 200 --batch-tokens-start 0 --device cpu"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert "starting with the weights and the vocabulary of" in done.stderr
    assert "too few to learn statistics from: these 120 pairs" in done.stderr
    assert done.stdout.count("\n") == 120 and "-" in done.stdout
    found, old = Bundle.load(kept), Bundle.load(find_installed("fr-en"))
    assert {**found.manifest.model, **old.manifest.model} == found.manifest.model
    assert found.manifest.tokenizer == old.manifest.tokenizer
    assert found.read_file("src.spm") == old.read_file("src.spm")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "langs", "message"),
    [
        ("fr-en", "en-fr", "--start fr-en is a model for any two of .*, not for en-fr: change"),
        ("en-fr", None, "--start en-fr is a model for any two of .*, not for en-fr: change"),
        ("en-fr", None, "--reverse then still gives the links in the order of en-fr"),
        ("th-en", None, "no installed model of that name; installed: any two of ar"),
        (".", None, "neither a bundle nor a trained run: no config.json"),
    ],
)
def test_models_that_cannot_be_started_from(
    make_request, start, langs, message, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MxError, match=message):
        find_trained_model(make_request(start=start, langs=langs), lambda line: None)


def test_what_a_failed_program_leads_to(corpus):
    """Mistakes, of code 2, are made again by the same command."""
    with pytest.raises(MxError, match="mx-train ended with 1, see above; the same command goes on"):
        module.run_program("mx-train", ["json.tool", str(corpus[0])])
    with pytest.raises(MxError, match=r"mx-train ended with 2, see above$"):
        module.run_program("mx-train", ["json.tool", "--no-such-flag"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["c.src", "c.tgt", "--budget", "5m"], "--budget is for --train-on-input only"),
        (["c.src", "c.tgt", "--start", "en-fr"], "--start is for --train-on-input only"),
        (["c.src", "c.tgt", "--train-on-input", "-m", "x.mx"], "excludes -m; --start begins"),
        (["c.src", "c.tgt", "--train-on-input", "--tokenize"], "excludes --tokenize"),
        (["c.src", "--train-on-input"], "needs SRC and TGT, two files"),
        (["c.src", "-", "--train-on-input"], "- is not a file"),
        (["c.src", "c.tgtt", "--train-on-input"], "c.tgtt does not exist; check the path"),
        (["c.src", "c.tgt", "--train-on-input", "--budget", "x"], "must be a time like 30m"),
        (["c.src", "c.tgt", "--train-on-input", "--errors", "replace"], "from UTF-8 only"),
        (["c.src", "c.tgt", "--train-on-input", "--langs", "english"], "two codes such as de-en"),
        (["c.src", "c.tgt", "--train-on-input", "--langs", ""], "two codes such as de-en"),
        (["c.src", "c.tgt", "--train-on-input", "--train-flags", "'"], "No closing quotation"),
        (["c.src", "c.tgt", "--train-on-input", "-o", "no/links"], "its folder does not exist"),
        (["c.src", "c.tgt", "--train-on-input", "-o", "c.src"], "would be overwritten"),
        (["c.src", "c.tgt", "--train-on-input", "--scores", "x"], "--scores needs -o OUT"),
        (["c.src", "c.tgt", "--train-on-input", "--format", "parquet"], "is for --ray only"),
    ],
)
def test_mistakes_are_noticed_before_training(arguments, message, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "run_program", lambda name, arguments: pytest.fail("it is trained"))
    monkeypatch.chdir(tmp_path)
    for name in ("c.src", "c.tgt"):
        Path(name).write_text("a b\n")
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 2 and message in result.stderr


def test_missing_packages_are_named_with_the_install_line(make_request, monkeypatch):
    monkeypatch.setattr(module, "_NEEDED", ("json", "not_installed_here"))
    with pytest.raises(MxError, match=r'needs not_installed_here.*"mx-align\[train,export\]"'):
        find_trained_model(make_request(), lambda line: None)
