"""mx-train --start: a run that begins with the weights of another one."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from ....engine.bundle.bundle import Bundle
from ....engine.bundle.installed import find_installed, installed_models
from ....engine.bundle.writing import write_bundle
from ....engine.errors import MxError
from ....export.bundling import export_run
from ....export.options import ExportOptions
from ....trainer.commands.train import main
from ....trainer.config import read_config
from ....trainer.data.teacher_links import TeacherLinks
from ....trainer.loop.devices import World
from ....trainer.loop.progress import Monitor
from ....trainer.loop.state import TrainingState
from ....trainer.loop.train import train_network
from ....trainer.networks import weights
from ....trainer.networks.word_scores import word_scores
from ....trainer.run import checkpoint
from ....trainer.run import folder as run
from ....trainer.run.folder import RunCommand, prepare_run
from ....trainer.run.initial_weights import load_start
from ....trainer.run.texts import Texts
from ....trainer.run.training_data import load_data

SMALL = {"batch_tokens": 160, "steps": 6, "eval_every": 6, "save_every": 2, "log_every": 1}
STUDENT = {"width": 16, "ff": 16, "encoder_layers": 1, "vocab_size": 330, "refine": 3}
SEPARATE = {"tied": False, "joint_vocab": False, "vocab_size": 640, "dropout": 0.0, "steps": 6}
PAIRS = [["w1", "w2", "w29"], ["w7"]], [["Größe2", "größe1"], ["Größe7", "x"]]


@pytest.fixture(scope="module")
def text(corpus, tmp_path_factory):
    """Another text than that of the models to start from: its last 90 pairs, in capitals."""
    folder = tmp_path_factory.mktemp("text")
    for file in corpus:
        lines = file.read_text("utf-8").upper().splitlines(keepends=True)
        (folder / file.name).write_text("".join(lines[-90:]), "utf-8")
    return [folder / file.name for file in corpus]


def prepared(folder, texts, preset, *settings):
    """What `train` takes, of a run folder that is ready."""
    folder.mkdir(exist_ok=True)
    run.prepare_run(run.RunCommand(folder, texts, preset, settings), lambda note: None)
    config, found = run.load_run(folder)
    data = load_data(found, config, folder)
    return config, folder, data, World(torch.device("cpu")), Monitor(folder, quiet=True)


@pytest.fixture(scope="module")
def made(corpus, tmp_path_factory):
    """A run of a student, lowercased, and the bundle made of it."""
    place = tmp_path_factory.mktemp("made")
    folder, bundle = place / "student", place / "student.mx"
    texts = Texts(*map(str, corpus), valid_last=10)
    train_network(*prepared(folder, texts, "student", SMALL, STUDENT, {"lowercase": True}))
    options = ExportOptions(
        run=str(folder), output=str(bundle), dtype=("fp32", "fp16"), langs="xx-yy"
    )
    export_run(options, lambda note: None)
    return folder, bundle


@pytest.fixture
def student(made, tmp_path):
    """The same, to be changed at will."""
    return tuple(shutil.copytree(path, tmp_path / path.name) for path in made)


@pytest.fixture
def go_on(text, tmp_path):
    """Prepares a run that starts from a model; gives what `train` takes."""

    def prepare(name, model, preset=None, texts=None, **settings):
        files = Texts(*map(str, text), start=str(model), **(texts or {}))
        return prepared(tmp_path / name, files, preset, SMALL, settings)

    return prepare


def scores(model, tokenizers):
    found = word_scores(model.eval(), *PAIRS, tokenizers, torch.device("cpu"))
    return [torch.from_numpy(values.copy()) for _, values in sorted(found, key=lambda x: x[0])]


def same_links(trainer, folder, **tolerance):
    """Whether an untrained trainer aligns as the model of a run."""
    model, config = weights.load_network(folder)
    old = scores(model, run.load_tokenizers(folder, config))
    for one, two in zip(scores(trainer.model, trainer.tokenizers), old, strict=True):
        torch.testing.assert_close(one, two, **tolerance)
    assert any(values.any() for values in old)


@pytest.mark.slow
def test_at_step_0_it_aligns_as_the_model_does(student, go_on):
    folder, bundle = student
    for number, model in enumerate(student):
        trainer = TrainingState(*go_on(f"r{number}", model)[:4])
        same_links(trainer, folder, rtol=0, atol=0)
        for name, value in load_file(folder / weights.MODEL).items():
            assert torch.equal(dict(trainer.model.named_parameters())[name], value)
        assert trainer.averaged is not None  # the preset's
    old = Bundle.load(bundle)
    files = {name: old.read_file(name) for name in old.manifest.files if name != "model.onnx"}
    graphs = {"fp16": "model.fp16.onnx"}
    only = replace(old.manifest, graphs=graphs, default_dtype="fp16")
    narrow = write_bundle(bundle.with_name("narrow.zip"), only, files)
    same_links(TrainingState(*go_on("narrow", narrow.path)[:4]), folder, rtol=0, atol=0.01)


@pytest.mark.slow
def test_mask_align_starts_from_its_run(start, go_on, tmp_path):
    train_network(*start(tmp_path / "old", **SEPARATE))
    arguments = go_on("new", tmp_path / "old", "tiny", warm_start="statistical")
    assert arguments[0].model == read_config(tmp_path / "old" / "config.json").model
    same_links(TrainingState(*arguments[:4]), tmp_path / "old", rtol=0, atol=0)
    assert train_network(*arguments) == 0


def test_settings_come_from_the_model_and_the_preset_of_its_kind(student, go_on):
    config, folder, *_ = go_on("r", student[1])
    assert config.model == read_config(student[0] / "config.json").model
    assert config.train.lowercase and config.train.vocab_size == 330
    assert (folder / "src.spm").read_bytes() == (student[0] / "src.spm").read_bytes()
    train_settings = config.train
    assert (train_settings.joins, train_settings.threshold) == (0.25, 0.5)  # the preset's
    assert (train_settings.lr, train_settings.matrix_lr) == (0.001, 0.005)  # a quarter of them
    given = go_on("given", student[1], lr=0.004, dropout=0.5)[0]
    assert (given.train.lr, given.train.matrix_lr) == (0.004, 0.005)
    assert given.model.dropout == 0.5


def test_the_new_text_teaches(student, go_on):
    _, folder, data, *_ = go_on("r", student[1], texts={"valid_last": 0})
    assert isinstance(data.links, TeacherLinks) and len(data.train) == 90 and len(data.links.links)
    assert json.loads((folder / "cache/links/key.json").read_text())["teachers"] == [
        ["statistical"]
    ]


# ---- resuming ----


@pytest.mark.slow
def test_the_card_tells_what_it_started_from(student, go_on, tmp_path):
    train_network(*go_on("new", student[1]))
    new = tmp_path / "new"
    options = ExportOptions(
        run=str(new),
        output=str(tmp_path / "new.mx"),
        dtype=("fp32",),
        langs="xx-yy",
    )
    bundle = export_run(options, lambda note: None)
    assert bundle.manifest.training["start"] == "student"
    text = bundle.read_file("README.md").decode()
    assert "Started from: student" in text
    assert "Taught by: the statistical aligner\n" in text
    assert "start" not in Bundle.load(student[1]).manifest.training


@pytest.mark.slow
def test_a_resumed_run_is_the_same_bit_for_bit(student, go_on, train_until, read_log):
    """Also if the model it started from is gone by then."""
    assert train_network(*go_on("whole", student[1])) == 0
    arguments = go_on("broken", student[1])
    train_until(3, *arguments)
    shutil.rmtree(student[1])
    assert train_network(*go_on("broken", student[1])) == 0
    whole, broken = (arguments[1].with_name(name) for name in ("whole", "broken"))
    assert read_log(whole)[-4:] == read_log(broken)[-4:]
    for file in ("model.safetensors", "checkpoints/step-00000006/optimizer.safetensors"):
        assert (whole / file).read_bytes() == (broken / file).read_bytes()


@pytest.mark.slow
def test_a_trained_run_keeps_its_start(student, start, go_on, tmp_path):
    folder, bundle = student
    train_network(*go_on("r", bundle))
    with pytest.raises(MxError, match=rf"was started with start {bundle} \(now {folder}\)"):
        go_on("r", folder)
    own = {"kind": "student", "refine": 3, "warm_start": "statistical"}
    train_network(*start(tmp_path / "other", **own))
    with pytest.raises(MxError, match=rf"with start None \(now {bundle}\)"):
        start(tmp_path / "other", {"start": str(bundle)}, **own)
    with pytest.raises(MxError, match=rf"start {bundle} \(now None\)"):
        start(tmp_path / "r", **own)


def test_a_bad_start_does_not_cost_the_run_that_was_to_be_restarted(start, text, tmp_path):
    train_network(*start(tmp_path / "run", **SEPARATE))
    texts = Texts(*map(str, text), start=str(tmp_path / "typo"))
    command = RunCommand(tmp_path / "run", texts, None, (SMALL,), restart=True)
    with pytest.raises(MxError, match="no such run folder or bundle"):
        prepare_run(command, lambda line: None)
    assert (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.slow
def test_before_training_the_start_may_change(student, start, go_on):
    arguments = go_on("r", student[1])
    folder = arguments[1]
    TrainingState(*arguments[:4])
    own = {"kind": "student", "refine": 2}
    again = start(folder, **own)
    assert not (folder / checkpoint.START).exists()
    assert again[0].model.refine == 2
    assert (folder / "src.spm").read_bytes() != (student[0] / "src.spm").read_bytes()
    go_on("r", student[0])
    assert (folder / "src.spm").read_bytes() == (student[0] / "src.spm").read_bytes()


# ---- mistakes ----


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 32}, r"has width 16 \(not 32\); leave these settings to it$"),
        ({"lowercase": False, "vocab_size": 500, "refine": 0},
         r"lowercase True \(not False\), refine 3 \(not 0\), vocab_size 330 \(not 500\); leave"),
        ({"kind": "mask-align"}, r"has kind student \(not mask-align\)"),
        ({"preset": "tiny"}, "is a student model, but --preset tiny is for mask-align"),
    ],
)  # fmt: skip
def test_settings_that_contradict_the_model(student, go_on, settings, message):
    for model in student:
        with pytest.raises(MxError, match=message):
            go_on("r", model, **settings)


@pytest.mark.slow
def test_models_that_cannot_be_started_from(start, student, go_on, tmp_path):
    mask_align, bundle = tmp_path / "old", tmp_path / "old.mx"
    train_network(*start(mask_align, steps=2))
    options = ExportOptions(run=str(mask_align), output=str(bundle), dtype=("fp32",))
    export_run(options, lambda note: None)
    with pytest.raises(MxError, match=r"bundle of Mask-Align.*; give the run folder"):
        go_on("r", bundle)
    with pytest.raises(MxError, match="there is no such run folder or bundle"):
        go_on("r", tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MxError, match="is not a model bundle"):
        go_on("r", tmp_path / "empty")
    old = Bundle.load(student[1])
    files = {name: old.read_file(name) for name in old.manifest.files}
    coarse = replace(old.manifest, graphs={"int8": "model.onnx"}, default_dtype="int8")
    write_bundle(tmp_path / "coarse.mx", coarse, files)
    with pytest.raises(MxError, match="int8 graph only, which is too coarse"):
        go_on("r", tmp_path / "coarse.mx")
    (student[1] / "model.onnx").write_bytes(b"x" * (student[1] / "model.onnx").stat().st_size)
    with pytest.raises(MxError, match="SHA-256"):
        go_on("r", student[1])


def test_a_vocabulary_of_another_size_is_refused(student):
    shutil.copy(find_installed("de-en") / "src.spm", student[0] / "src.spm")
    with pytest.raises(MxError, match="its weights are for vocabularies of another size"):
        load_start(str(student[0]))


def test_flags(student, text, tmp_path):
    """The command itself, and what excludes --start."""

    def invoke(*extra):
        line = [*text, "-o", tmp_path / "r", "--start", student[1], "--device", "cpu", *extra]
        return CliRunner().invoke(main, [*map(str, line), "--quiet"], prog_name="mx-train")

    result = invoke("--vocab", student[0] / "src.spm")
    assert result.exit_code == 2 and "--start and --vocab exclude each other" in result.stderr
    result = invoke("--width", "8")
    assert result.exit_code == 2 and len(result.stderr.strip().split("\n")) == 1
    result = invoke("--steps", "2", "--threads", "1")
    assert result.exit_code == 0, result.stderr
    assert read_config(tmp_path / "r" / "config.json").train.lr == 0.001
    result = CliRunner().invoke(main, ["--resume", "r", "--start", "x"])
    assert result.exit_code == 2 and "to name --start" in result.stderr
    inside = ["--restart", "--start", str(tmp_path / "r")]
    result = CliRunner().invoke(main, [*map(str, text), "-o", str(tmp_path / "r"), *inside])
    assert result.exit_code == 2 and "--restart would delete " in result.stderr
    assert (tmp_path / "r" / weights.MODEL).exists()


@pytest.mark.parametrize("name", installed_models())
def test_the_installed_models_can_be_started_from(name):
    start = load_start(str(installed_models()[name]))
    assert start.config.model.kind == "student" and start.config.train.lowercase
    starts = start.vocabularies[0].word_starts()
    assert torch.equal(start.model.starting_pieces(0).detach(), torch.from_numpy(starts))


def test_a_model_with_the_languages_the_other_way_round_is_refused():
    path = find_installed("fr-en")
    assert load_start(str(path), "fr-en").model is not None
    with pytest.raises(MxError, match=r"is a model for .* fr .*, not for en-fr: change SRC"):
        load_start(str(path), "en-fr")
