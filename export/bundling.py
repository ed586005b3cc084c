"""Turn a run folder into a verified bundle, step by step: `export_run` is the recipe.

Does not parse flags; each step that is more than a few lines is in a module of its own.
"""

import hashlib
import tempfile
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from ..engine.bundle.bundle import Bundle
from ..engine.bundle.manifest import (
    DTYPES,
    Calibration,
    Manifest,
    Reading,
    Thresholds,
    VocabularyFiles,
    parse_languages,
)
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
from .card.card import render_card
from .card.facts import measure_on_gold, read_cost, read_origins
from .check.calibration import agree_directions, calibrate_scores
from .check.conversion import DtypeConverter, GoldText, round_measures
from .check.probe import Probe, compute_word_values, read_probe_files, read_validation_text
from .check.readings import (
    compare_with_exact,
    list_readings,
    read_graph_as,
    read_network,
)
from .check.verification import check_onnx, verify_graph
from .graph.fusion import check_counts, fuse_attention
from .graph.plain import build_plain_graph, collect_weights
from .options import ExportOptions

GRAPH_FILES = {"fp32": "model.onnx", "fp16": "model.fp16.onnx", "int8": "model.int8.onnx"}
PROBE_PAIRS = 500

Report = Callable[[str], None]


@dataclass(frozen=True)
class TrainedRun:
    """A run folder, its network and its tokenizers."""

    folder: Path
    model: Network
    config: RunConfig
    tokenizers: tuple[PieceTokenizer, PieceTokenizer]


def export_run(options: ExportOptions, report: Report) -> Bundle:
    """Make, verify and write the bundle; nothing is left behind when a step fails."""
    output = options.bundle_path
    languages = parse_languages(options.langs) if options.langs else ("und", "und")
    check_writable(output, options.force)
    check_gold_files(options)
    run = open_run(Path(options.run))
    max_length = run.config.train.max_length
    reads = list_readings(run.config.model, options.read)

    # The fp32 graph, which must be PyTorch's model but for rounding; and what its scores mean, in
    # each way to read them. The default way comes last: the network is left as it is read then.
    graph = make_graph(run, report)
    probe = read_probe(options, run)
    readings: dict[str, Reading] = {}
    for read in reversed(reads):
        shown, model = read_graph_as(graph, read), read_network(run.model, read)
        worst = verify_graph(model, shown, "fp32", max_length, probe)
        title = f"fp32 {read}".rstrip()
        report(f"{title}: largest difference from PyTorch {worst.value:.1e} ({worst.output})")
        gold = find_gold(options, run, shown, probe)
        readings[read] = Reading(*choose_meaning(shown, gold, run))
        thresholds = readings[read].thresholds
        report(
            f"thresholds: {thresholds.aer:.3g} (AER), {thresholds.precision:.3g} (precision), "
            f"{thresholds.recall:.3g} (recall); {thresholds.chosen}"
        )

    # Other dtypes, where they are good enough.
    wanted: Collection[str] = options.dtype or DTYPES
    converter = DtypeConverter(
        run.model, graph, max_length, probe, gold, thresholds.aer, options.dtype, report, read
    )
    graphs = {"fp32": graph} if "fp32" in wanted else {}
    exact = {"largest_difference": worst.value, **converter.baseline}
    if (f1 := compare_with_exact(run.model, probe, thresholds.aer)) is not None:
        exact["exact_posterior_link_f1"] = f1
        report(f"links of the posterior against those by the whole vocabulary: F1 {f1:.4f}")
    measured = {"fp32": round_measures(exact)}
    for dtype in ("fp16", "int8"):
        if dtype in wanted and (made := converter.convert(dtype)):
            graphs[dtype], measured[dtype] = made
    best = "int8" if converter.int8_is_good else "fp32"

    # The bundle: graphs, vocabulary, manifest, card.
    settings = run.config.train
    tgt_file = "src.spm" if run.config.model.joint_vocab else "tgt.spm"
    manifest = Manifest(
        name=options.name or output.name.split(".")[0],
        languages=languages,
        max_length=max_length,
        graphs={dtype: GRAPH_FILES[dtype] for dtype in graphs},
        default_dtype=best if best in graphs else next(iter(graphs)),
        tokenizer=VocabularyFiles("src.spm", tgt_file, settings.lowercase, settings.fold_accents),
        thresholds=thresholds,
        calibration=readings.pop(read).calibration,
        model=asdict(run.config.model),
        training={**describe_training(run), **options.card_notes},
        measured=measured,
        made_by=f"mx-export {__version__}, onnx {onnx.__version__}",
        files={},
        read=read,
        readings=readings,
    )
    files = {
        GRAPH_FILES[dtype]: proto.SerializeToString(deterministic=True)
        for dtype, proto in graphs.items()
    }
    sizes = {dtype: len(files[GRAPH_FILES[dtype]]) for dtype in graphs}
    for name, tokenizer in zip(("src.spm", tgt_file), run.tokenizers, strict=True):
        files.setdefault(name, tokenizer.proto)
    manifest = add_tests(options, manifest, files, report)
    files["README.md"] = render_card(manifest, sizes).encode()
    bundle = write_bundle(output, manifest, files, force=options.force)
    listed = ", ".join(f"{name} {len(content) / 1e6:.1f} MB" for name, content in files.items())
    report(f"{output}: {listed}; default dtype {manifest.default_dtype}")
    return bundle


def check_gold_files(options: ExportOptions) -> None:
    """Raise MxError for gold files that are of no use, before all the work."""
    gold = [options.gold_files] if options.gold_files else []
    for files in (*options.test, *gold):
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


# ---- text to measure on ----


def read_probe(options: ExportOptions, run: TrainedRun) -> Probe | None:
    """Read `--probe`, else the run's validation text, else the gold text, else nothing."""
    if options.probe:
        found: Probe | None = read_probe_files(
            options.probe, run.tokenizers, "the probe text", PROBE_PAIRS
        )
    else:
        found = read_validation_text(run.folder, PROBE_PAIRS)
    if found is None and options.gold_files:
        found = read_probe_files(options.gold_files[:2], run.tokenizers, "the gold text")
    if found is None:
        return None
    longest = run.config.train.max_length
    kept = [p for p in found.pairs if all(0 < len(side.ids) <= longest for side in p)]
    if not kept:
        raise InputError(f"none of the {found.name} can be aligned: all are empty or too long")
    return Probe(kept, found.name)


def find_gold(
    options: ExportOptions, run: TrainedRun, graph: onnx.ModelProto, probe: Probe | None
) -> GoldText | None:
    """Return links to compare with: the user's gold, or what both directions agree on."""
    if options.gold_files:
        src, tgt, path = options.gold_files
        text = read_probe_files((src, tgt), run.tokenizers, "the gold text")
        gold = read_gold_links(path, [(s.n_words, t.n_words) for s, t in text.pairs], src)
        return GoldText(text, gold, True, f"{len(text)} pairs with gold links")
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
    tests = options.test or ((options.gold_files,) if options.gold_files else ())
    if not tests:
        return manifest
    with tempfile.TemporaryDirectory() as folder:
        bundle = write_bundle(Path(folder) / "tested.mx", manifest, files)
        found = [measure_on_gold(bundle.path, one) for one in tests]
    for one in found:
        one["seen"] = not options.test  # by the choice of the threshold
        report("{}: AER {:.2f} (95 %: {:.2f} to {:.2f})".format(one["links"], *one["aer"]))
    return replace(manifest, training={**manifest.training, "tests": found})
