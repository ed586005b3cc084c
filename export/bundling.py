"""Turn a run folder into a verified bundle, step by step: `export_run` is the recipe.

Does not parse flags; each step that is more than a few lines is in a module of its own.
"""

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx

from ..engine.bundle.bundle import Bundle
from ..engine.bundle.manifest import DTYPES, Calibration, Manifest, Thresholds, VocabularyFiles
from ..engine.bundle.writing import check_writable, write_bundle
from ..engine.errors import InputError, MxError
from ..engine.runtime.model_graph import OUTPUTS
from ..engine.storage import file_sha256
from ..engine.text.pieces import PieceTokenizer
from ..engine.version import __version__
from ..trainer.config import RunConfig
from ..trainer.data.gold import read_gold_links, read_gold_pairs
from ..trainer.data.vocabulary import load_tokenizers
from ..trainer.networks.weights import MODEL, Network, load_network
from ..trainer.run.texts import is_read_once
from . import kernels
from .card.card import render_card
from .card.facts import measure_on_gold, read_cost, read_origins
from .check.calibration import agree_directions, calibrate_scores
from .check.conversion import DtypeConverter, GoldText, round_difference, round_measures
from .check.probe import Probe, compute_word_values, read_probe_files, read_validation_text
from .check.verification import check_onnx, verify_graph
from .graph.fusion import check_counts, fuse_attention
from .graph.plain import build_plain_graph, collect_weights

GRAPH_FILES = {"fp32": "model.onnx", "fp16": "model.fp16.onnx", "int8": "model.int8.onnx"}
PROBE_PAIRS = 500

Report = Callable[[str], None]


@dataclass(frozen=True)
class ExportOptions:
    """What the user asked for."""

    run: Path
    output: Path
    dtypes: tuple[str, ...] = ()  # empty: fp32, fp16, and int8 if it is good enough
    languages: tuple[str, str] = ("und", "und")
    name: str = ""
    probe: tuple[str, str] | None = None
    gold: tuple[str, str, str] | None = None  # source, target, links
    tests: tuple[tuple[str, str, str], ...] = ()  # the same, to measure AER only; else `gold`
    about: dict[str, str] = field(default_factory=dict)  # what the card tells: data, limits, ...
    force: bool = False
    kernels: tuple[str, ...] | None = None  # GPU architectures; None: all, if triton is there


@dataclass(frozen=True)
class TrainedRun:
    """A run folder, its network and its tokenizers."""

    folder: Path
    model: Network
    config: RunConfig
    tokenizers: tuple[PieceTokenizer, PieceTokenizer]

    @property
    def max_length(self) -> int:
        return self.config.train.max_length


def export_run(options: ExportOptions, report: Report) -> Bundle:
    """Make, verify and write the bundle; nothing is left behind when a step fails."""
    check_writable(options.output, options.force)
    check_gold_files(options)
    run = open_run(options.run)

    # The fp32 graph, which must be PyTorch's model but for rounding.
    graph = make_graph(run, report)
    probe = read_probe(options, run)
    worst = verify_graph(run.model, graph, "fp32", run.max_length, probe)
    report(f"fp32: largest difference from PyTorch {worst.value:.1e} ({worst.output})")

    # What its scores mean.
    gold = find_gold(options, run, graph, probe)
    thresholds, calibration = choose_meaning(graph, gold, run)
    report(
        f"thresholds: {thresholds.aer:.3g} (AER), {thresholds.precision:.3g} (precision), "
        f"{thresholds.recall:.3g} (recall); {thresholds.chosen}"
    )

    # Other dtypes, where they are good enough.
    wanted = options.dtypes or DTYPES
    converter = DtypeConverter(
        run.model, graph, run.max_length, probe, gold, thresholds.aer, options.dtypes, report
    )
    graphs = {"fp32": graph} if "fp32" in wanted else {}
    measured = {"fp32": {"largest_difference": round_difference(worst.value)}}
    for dtype in ("fp16", "int8"):
        if dtype in wanted and (made := converter.convert(dtype)):
            graphs[dtype], measured[dtype] = made
    measured["fp32"].update(round_measures(converter.baseline))
    best = "int8" if converter.int8_is_good else "fp32"

    # The bundle: graphs, vocabulary, manifest, card, kernels.
    manifest = Manifest(
        name=options.name or options.output.name.split(".")[0],
        languages=options.languages,
        max_length=run.max_length,
        graphs={dtype: GRAPH_FILES[dtype] for dtype in graphs},
        default_dtype=best if best in graphs else next(iter(graphs)),
        tokenizer=list_vocabulary_files(run.config),
        thresholds=thresholds,
        calibration=calibration,
        model=asdict(run.config.model),
        training={**describe_training(run), **options.about},
        measured=measured,
        made_by=f"mx-export {__version__}, onnx {onnx.__version__}",
        files={},
    )
    files = {
        GRAPH_FILES[dtype]: graph.SerializeToString(deterministic=True)
        for dtype, graph in graphs.items()
    }
    sizes = {dtype: len(files[GRAPH_FILES[dtype]]) for dtype in graphs}
    files["src.spm"] = run.tokenizers[0].proto
    if not run.config.model.joint_vocab:
        files["tgt.spm"] = run.tokenizers[1].proto
    manifest = add_tests(options, manifest, files, report)
    files["README.md"] = render_card(manifest, sizes).encode()
    files |= compile_bundle_kernels(options, run.config, report)
    bundle = write_bundle(options.output, manifest, files, force=options.force)
    shown = ", ".join(f"{name} {len(content) / 1e6:.1f} MB" for name, content in files.items())
    report(f"{options.output}: {shown}; default dtype {manifest.default_dtype}")
    return bundle


def check_gold_files(options: ExportOptions) -> None:
    """Raise MxError for gold files that are of no use, before all the work."""
    for files in (*options.tests, *([options.gold] if options.gold else [])):
        for path in filter(is_read_once, files):
            raise MxError(
                f"{path} is a pipe, but gold files are read twice; give the name of a file"
            )
        if not read_gold_pairs(*files).gold:
            raise MxError(f"{files[0]} has no sentences with gold links")


# ---- the run ----


def open_run(folder: Path) -> TrainedRun:
    """Load the best weights of a run and the vocabularies that belong to them."""
    if not folder.is_dir():
        raise MxError(f"there is no run folder {folder}; `mx-train -o {folder}` makes one")
    model, config = load_network(folder)
    tokenizers = load_tokenizers(folder, config)
    sizes = (config.model.src_vocab, config.model.tgt_vocab)
    for side, tokenizer, size in zip(("source", "target"), tokenizers, sizes, strict=True):
        if tokenizer.vocab_size != size and not (side == "target" and config.model.joint_vocab):
            raise MxError(
                f"{folder}: the {side} vocabulary has {tokenizer.vocab_size} pieces, but the "
                f"model was trained with {size}; restore the .spm file of this run"
            )
    return TrainedRun(folder, model, config, tokenizers)


def make_graph(run: TrainedRun, report: Report) -> onnx.ModelProto:
    """Build the fused fp32 graph and check it."""
    plain = build_plain_graph(run.config.model, collect_weights(run.model))
    graph, counts = fuse_attention(plain, run.config.model)
    report("fused: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    check_counts(counts, run.config.model)
    check_onnx(graph, "fp32")
    return graph


def describe_training(run: TrainedRun) -> dict[str, Any]:
    """Tell where the weights come from, without names of files or machines."""
    weights = file_sha256(run.folder / MODEL)
    vocab = hashlib.sha256(run.tokenizers[0].proto).hexdigest()
    train = run.config.train
    cost = read_cost(run.folder)
    steps = cost.get("step", train.steps)  # a run may end before its last one
    return {
        "signature": f"mx-train|v:{__version__}|weights:{weights[:12]}|vocab:{vocab[:12]}"
        f"|steps:{steps:.0f}|batch:{train.batch_tokens}|seed:{train.seed}",
        "weights_sha256": weights,
        "settings": asdict(train),
        "cost": cost,
        **read_origins(run.folder),
    }


def list_vocabulary_files(config: RunConfig) -> VocabularyFiles:
    tgt = "src.spm" if config.model.joint_vocab else "tgt.spm"
    return VocabularyFiles("src.spm", tgt, config.train.lowercase, config.train.fold_accents)


# ---- text to measure on ----


def read_probe(options: ExportOptions, run: TrainedRun) -> Probe | None:
    """Read `--probe`, else the run's validation text, else the gold text, else nothing."""
    found: Probe | None
    if options.probe:
        found = read_probe_files(*options.probe, run.tokenizers, PROBE_PAIRS, "")
        found = replace(found, name=f"{len(found)} pairs of the probe text")
    else:
        found = read_validation_text(run.folder, PROBE_PAIRS)
    if found is None and options.gold:
        found = read_probe_files(*options.gold[:2], run.tokenizers, None, "the gold text")
    if found is None:
        return None
    kept = found.keep_alignable(run.max_length)
    if not len(kept):
        raise InputError(f"no pair of {found.name} can be aligned: all are empty or too long")
    return kept


def find_gold(
    options: ExportOptions, run: TrainedRun, graph: onnx.ModelProto, probe: Probe | None
) -> GoldText | None:
    """Return links to compare with: the user's gold, or what both directions agree on."""
    if options.gold:
        src, tgt, path = options.gold
        pairs = read_probe_files(src, tgt, run.tokenizers, None, "gold")
        sizes = [(s.n_words, t.n_words) for s, t in zip(pairs.src, pairs.tgt, strict=True)]
        gold = read_gold_links(path, sizes, src)
        return GoldText(pairs, gold, True, f"{len(pairs)} pairs with gold links")
    if probe is None:
        return None
    gold = [agree_directions(*each) for each in compute_word_values(graph, probe, OUTPUTS[1:])]
    return GoldText(probe, gold, False, f"the agreement of the directions on {probe.name}")


def choose_meaning(
    graph: onnx.ModelProto, gold: GoldText | None, run: TrainedRun
) -> tuple[Thresholds, Calibration]:
    """Choose thresholds and probabilities; the settings' own where there is no text."""
    if gold is None:
        value = run.config.train.threshold
        how = "the threshold of the training settings: there was no text to choose one on"
        identity = "the score itself: there was no text to calibrate it on"
        return (
            Thresholds(value, max(value, 0.5), min(value, 0.1), how),
            Calibration((0.0, 1.0), (0.0, 1.0), identity),
        )
    scores = [one for (one,) in compute_word_values(graph, gold.probe)]
    return calibrate_scores(scores, gold.gold, gold.how)


# ---- what the bundle has besides graphs ----


def add_tests(
    options: ExportOptions, manifest: Manifest, files: dict[str, bytes], report: Report
) -> Manifest:
    """Measure the AER of the bundle itself on `--test`, else on `--gold`, and note it."""
    pairs = options.tests or ((options.gold,) if options.gold else ())
    if not pairs:
        return manifest
    with tempfile.TemporaryDirectory() as folder:
        bundle = write_bundle(Path(folder) / "tested.mx", manifest, files)
        found = [measure_on_gold(bundle.path, one) for one in pairs]
    for one in found:
        one["seen"] = not options.tests  # by the choice of the threshold
        report("{}: AER {:.2f} (95 %: {:.2f} to {:.2f})".format(one["links"], *one["aer"]))
    return replace(manifest, training={**manifest.training, "tests": found})


def compile_bundle_kernels(
    options: ExportOptions, config: RunConfig, report: Report
) -> dict[str, bytes]:
    """Compile the GPU kernels for the architectures that were asked for."""
    if options.kernels is None and not kernels.has_triton():
        report("kernels left out: triton is not installed (pip install triton)")
        return {}
    wanted = kernels.ARCHITECTURES if options.kernels is None else options.kernels
    model = config.model
    shape = model.heads, model.width // model.heads
    return kernels.compile_kernels(*shape, wanted, report, attention=model.kind != "student")
