"""From a run folder to a verified bundle, step by step; `cli` has the flags.

Knows the order of things and when to stop; every step itself is in a module of its own.
"""

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx

from ..engine.bundle.bundle import Bundle
from ..engine.bundle.manifest import Calibration, Manifest, Thresholds, VocabularyFiles
from ..engine.bundle.writing import check_writable, write_bundle
from ..engine.errors import InputError, MxError
from ..engine.links.link_lines import Gold
from ..engine.links.scoring import score_links
from ..engine.storage import file_sha256
from ..engine.text.pieces import PieceTokenizer
from ..engine.version import __version__
from ..trainer.config import RunConfig
from ..trainer.data.gold import read_gold_links, read_gold_pairs
from ..trainer.data.vocabulary import load_tokenizers
from ..trainer.networks.weights import MODEL, Network, load_network
from ..trainer.run.texts import is_read_once
from . import kernels
from .card.card import card
from .card.story import cost, origins, tested
from .check import probe as text
from .check.calibrate import agreement, calibrate
from .check.probe import Probe
from .check.verify import verify
from .graph.dtypes import find_ranges, half, int8
from .graph.fuse import check_counts, fuse
from .graph.mask_align import OUTPUTS, plain_graph, weights_of

FILES = {"fp32": "model.onnx", "fp16": "model.fp16.onnx", "int8": "model.int8.onnx"}
PROBE_PAIRS = 500
LEAST_PAIRS = 50  # fewer say too little about links
LEAST_F1 = 0.985  # of int8 links against fp32 ones
MOST_AER = 0.003  # by which int8 may be worse

Report = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """What the user asked for."""

    run: Path
    output: Path
    precisions: tuple[str, ...] = ()  # empty: fp32, fp16, and int8 if it is good enough
    languages: tuple[str, str] = ("und", "und")
    name: str = ""
    probe: tuple[str, str] | None = None
    gold: tuple[str, str, str] | None = None  # source, target, links
    tests: tuple[tuple[str, str, str], ...] = ()  # the same, to measure AER only; else `gold`
    about: dict[str, str] = field(default_factory=dict)  # what the card tells: data, limits, ...
    force: bool = False
    kernels: tuple[str, ...] | None = None  # GPU architectures; None: all, if triton is there


@dataclass(frozen=True)
class Run:
    """A training run, opened."""

    folder: Path
    model: Network
    config: RunConfig
    tokenizers: tuple[PieceTokenizer, PieceTokenizer]


@dataclass(frozen=True)
class Judged:
    """Text with gold links, real ones or those of the directions, and how good fp32 is on it."""

    probe: Probe
    gold: list[Gold]
    real: bool
    how: str


def export(options: Options, report: Report) -> Bundle:
    """Make, verify and write the bundle; nothing is left behind when a step fails."""
    check_writable(options.output, options.force)
    check_gold(options)
    run = open_run(options.run)
    graph = make_graph(run, report)
    probe = read_probe(options, run)
    worst = verify(run.model, graph, "fp32", run.config.train.max_length, probe)
    report(f"fp32: largest difference from PyTorch {worst.value:.1e} ({worst.output})")
    judged = judge(options, run, graph, probe)
    thresholds, calibration = meaning(graph, judged, run)
    report(
        f"thresholds: {thresholds.aer:.3g} (AER), {thresholds.precision:.3g} (precision), "
        f"{thresholds.recall:.3g} (recall); {thresholds.chosen}"
    )
    graphs, measured = {"fp32": graph}, {"fp32": {"largest_difference": rounded(worst.value)}}
    maker = Precisions(options, run, graph, probe, judged, thresholds.aer, report)
    for precision in ("fp16", "int8"):
        made = maker.make(precision) if wanted(options, precision) else None
        if made:
            graphs[precision], measured[precision] = made
    measured["fp32"].update(rounded4(maker.baseline))
    manifest = Manifest(
        name=options.name or options.output.name.split(".")[0],
        languages=options.languages,
        max_length=run.config.train.max_length,
        graphs={},
        default_dtype="",
        tokenizer=vocabulary(run.config),
        thresholds=thresholds,
        calibration=calibration,
        model=asdict(run.config.model),
        training={**training(run), **options.about},
        measured=measured,
        made_by=f"mx-export {__version__}, onnx {onnx.__version__}",
        files={},
    )
    return write(options, run, manifest, graphs, maker.default(), report)


def check_gold(options: Options) -> None:
    """An error for gold files that are of no use, before all the work."""
    for files in (*options.tests, *([options.gold] if options.gold else [])):
        for path in filter(is_read_once, files):
            raise MxError(
                f"{path} is a pipe, but gold files are read twice; give the name of a file"
            )
        if not read_gold_pairs(*files).gold:
            raise MxError(f"{files[0]} has no sentences with gold links")


def rounded(value: float) -> float:
    return float(f"{value:.3g}")


def wanted(options: Options, precision: str) -> bool:
    return precision in (options.precisions or FILES)


# ---- the run ----


def open_run(folder: Path) -> Run:
    if not folder.is_dir():
        raise MxError(f"there is no run folder {folder}; `mx-train -o {folder}` makes one")
    model, config = load_network(folder)
    pair = load_tokenizers(folder, config)
    sizes = (config.model.src_vocab, config.model.tgt_vocab)
    for side, tokenizer, size in zip(("source", "target"), pair, sizes, strict=True):
        if tokenizer.vocab_size != size and not (side == "target" and config.model.joint_vocab):
            raise MxError(
                f"{folder}: the {side} vocabulary has {tokenizer.vocab_size} pieces, but the "
                f"model was trained with {size}; restore the .spm file of this run"
            )
    return Run(folder, model, config, pair)


def make_graph(run: Run, report: Report) -> onnx.ModelProto:
    """The fused fp32 graph, checked."""
    plain = plain_graph(run.config.model, weights_of(run.model))
    graph, counts = fuse(plain, run.config.model)
    report("fused: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    check_counts(counts, run.config.model)
    check_onnx(graph, "fp32")
    return graph


def check_onnx(graph: onnx.ModelProto, precision: str) -> None:
    """The ONNX checker and strict shape inference."""
    try:
        onnx.checker.check_model(graph, full_check=True)
        onnx.shape_inference.infer_shapes(graph, strict_mode=True, data_prop=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise MxError(f"the {precision} graph is not valid ONNX ({error}); not exported") from error


def training(run: Run) -> dict[str, Any]:
    """Where the weights come from, without names of files or machines."""
    weights = file_sha256(run.folder / MODEL)
    vocab = hashlib.sha256(run.tokenizers[0].proto).hexdigest()
    train = run.config.train
    spent = cost(run.folder)
    steps = spent.get("step", train.steps)  # a run may end before its last one
    return {
        "signature": f"mx-train|v:{__version__}|weights:{weights[:12]}|vocab:{vocab[:12]}"
        f"|steps:{steps:.0f}|batch:{train.batch_tokens}|seed:{train.seed}",
        "weights_sha256": weights,
        "settings": asdict(train),
        "cost": spent,
        **origins(run.folder),
    }


def vocabulary(config: RunConfig) -> VocabularyFiles:
    tgt = "src.spm" if config.model.joint_vocab else "tgt.spm"
    train = config.train
    return VocabularyFiles("src.spm", tgt, train.lowercase, train.fold_accents)


# ---- text to measure on ----


def read_probe(options: Options, run: Run) -> Probe | None:
    """`--probe`, else the run's validation text, else the gold text, else nothing."""
    longest = run.config.train.max_length
    found: Probe | None
    if options.probe:
        found = text.from_files(*options.probe, run.tokenizers, PROBE_PAIRS, "the probe text")
        found = Probe(found.src, found.tgt, f"{len(found)} pairs of the probe text")
    else:
        found = text.from_run(run.folder, PROBE_PAIRS)
    if found is None and options.gold:
        found = text.from_files(*options.gold[:2], run.tokenizers, None, "the gold text")
    if found is None:
        return None
    keep = [
        i
        for i, (s, t) in enumerate(zip(found.src, found.tgt, strict=True))
        if 0 < len(s.ids) <= longest and 0 < len(t.ids) <= longest
    ]
    if not keep:
        raise InputError(f"no pair of {found.name} can be aligned: all are empty or too long")
    return Probe([found.src[i] for i in keep], [found.tgt[i] for i in keep], found.name)


def judge(options: Options, run: Run, graph: onnx.ModelProto, probe: Probe | None) -> Judged | None:
    """Links to compare with: the user's gold, or what both directions agree on."""
    if options.gold:
        src, tgt, path = options.gold
        pairs = text.from_files(src, tgt, run.tokenizers, None, "gold")
        sizes = [(s.n_words, t.n_words) for s, t in zip(pairs.src, pairs.tgt, strict=True)]
        gold = read_gold_links(path, sizes, src)
        return Judged(pairs, gold, True, f"{len(pairs)} pairs with gold links")
    if probe is None:
        return None
    values = text.word_values(text.open_session(graph), probe, OUTPUTS[1:])
    links = [agreement(*each) for each in values]
    return Judged(probe, links, False, f"the agreement of the directions on {probe.name}")


def meaning(
    graph: onnx.ModelProto, judged: Judged | None, run: Run
) -> tuple[Thresholds, Calibration]:
    """Thresholds and probabilities; the settings' own where there is no text."""
    if judged is None:
        value = run.config.train.threshold
        how = "the threshold of the training settings: there was no text to choose one on"
        identity = "the score itself: there was no text to calibrate it on"
        return (
            Thresholds(value, max(value, 0.5), min(value, 0.1), how),
            Calibration((0.0, 1.0), (0.0, 1.0), identity),
        )
    scores = [one for (one,) in text.word_values(text.open_session(graph), judged.probe)]
    return calibrate(scores, judged.gold, judged.how)


# ---- other precisions ----


class Precisions:
    """Makes the fp16 and int8 graphs and measures what they change."""

    def __init__(
        self,
        options: Options,
        run: Run,
        graph: onnx.ModelProto,
        probe: Probe | None,
        judged: Judged | None,
        threshold: float,
        report: Report,
    ) -> None:
        self.options, self.run, self.graph, self.probe = options, run, graph, probe
        self.judged, self.threshold, self.report = judged, threshold, report
        self.good = False  # int8 passed

    def make(self, precision: str) -> tuple[onnx.ModelProto, dict[str, float]] | None:
        """The graph and its measurements; None, with the reason reported, if it is not good enough
        or cannot be made, and nobody asked for it by name."""
        named = precision in self.options.precisions
        if precision == "int8" and (self.probe is None or len(self.probe) < LEAST_PAIRS):
            why = f"int8 needs {LEAST_PAIRS} pairs of text to be measured on; give --probe SRC TGT"
            if named:
                raise MxError(why)
            self.report(f"int8 left out: {why}")
            return None
        graph = half(self.graph) if precision == "fp16" else self.int8_graph()
        check_onnx(graph, precision)
        length = self.run.config.train.max_length
        try:
            worst = verify(self.run.model, graph, precision, length, self.probe)
        except MxError as error:
            if named:
                raise
            self.report(f"{precision} left out: {error}")
            return None
        found = self.measure(graph)
        measured = {"largest_difference": rounded(worst.value), **rounded4(found)}
        numbers = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in measured.items())
        self.report(f"{precision}: {numbers}")
        if precision == "int8":
            self.good = self.is_good(found)
            if not self.good and not named:
                self.report(f"int8 left out: it must keep a link F1 of {LEAST_F1} and the AER")
                return None
        return graph, measured

    def int8_graph(self) -> onnx.ModelProto:
        """Ranges come from the first half of the text, measurements from the second."""
        assert self.probe is not None
        some = self.probe.part(slice(0, min(200, len(self.probe) // 2)))
        single = [text.feeds([s.ids], [t.ids]) for s, t in zip(some.src, some.tgt, strict=True)]
        return int8(self.graph, find_ranges(self.graph, single))

    def measure(self, graph: onnx.ModelProto) -> dict[str, float]:
        """Link F1 against fp32, and AER where there is real gold."""
        if self.probe is None:
            return {}
        agree = text.link_f1(self.exact, self.links(graph, self.rest))
        return {"link_f1": agree, **self.aer(graph)}

    @property
    def rest(self) -> Probe:
        """The text that int8 did not take its ranges from."""
        assert self.probe is not None
        return self.probe.part(slice(len(self.probe) // 2, None))

    @cached_property
    def exact(self) -> text.Links:
        return self.links(self.graph, self.rest)

    def links(self, graph: onnx.ModelProto, probe: Probe) -> text.Links:
        values = text.word_values(text.open_session(graph), probe)
        return text.links([one for (one,) in values], self.threshold)

    def aer(self, graph: onnx.ModelProto) -> dict[str, float]:
        if self.judged is None or not self.judged.real:
            return {}
        return {"aer": score_links(self.links(graph, self.judged.probe), self.judged.gold).aer}

    @cached_property
    def baseline(self) -> dict[str, float]:
        """AER of fp32."""
        return self.aer(self.graph)

    def is_good(self, measured: dict[str, float]) -> bool:
        base = self.baseline
        return measured["link_f1"] >= LEAST_F1 and (
            not base or measured["aer"] - base["aer"] <= MOST_AER
        )

    def default(self) -> str:
        return "int8" if self.good else "fp32"


def rounded4(values: dict[str, float]) -> dict[str, float]:
    """For people; what is decided is decided on the values themselves."""
    return {name: round(value, 4) for name, value in values.items()}


# ---- writing ----


def compiled(options: Options, config: RunConfig, report: Report) -> dict[str, bytes]:
    """The GPU kernels, for the architectures that were asked for."""
    wanted = kernels.ARCHITECTURES if options.kernels is None else options.kernels
    if options.kernels is None and not kernels.has_triton():
        report("kernels left out: triton is not installed (pip install triton)")
        return {}
    model = config.model
    shape = model.heads, model.width // model.heads
    return kernels.compile_kernels(*shape, wanted, report, attention=model.kind != "student")


def write(
    options: Options,
    run: Run,
    manifest: Manifest,
    graphs: dict[str, onnx.ModelProto],
    default: str,
    report: Report,
) -> Bundle:
    """Serialise what is wanted and put the bundle in its place."""
    kept = {p: g for p, g in graphs.items() if wanted(options, p)}
    default = default if default in kept else next(iter(kept))
    data = {FILES[p]: g.SerializeToString(deterministic=True) for p, g in kept.items()}
    manifest = replace(manifest, graphs={p: FILES[p] for p in kept}, default_dtype=default)
    files = {**data, "src.spm": run.tokenizers[0].proto}
    if not run.config.model.joint_vocab:
        files["tgt.spm"] = run.tokenizers[1].proto
    if pairs := options.tests or ((options.gold,) if options.gold else ()):
        with tempfile.TemporaryDirectory() as folder:
            plain = write_bundle(Path(folder) / "tested.mx", manifest, files)
            found = [tested(plain.path, one) for one in pairs]
        for one in found:
            one["seen"] = not options.tests  # by the choice of the threshold
            report("{}: AER {:.2f} (95 %: {:.2f} to {:.2f})".format(one["links"], *one["aer"]))
        manifest = replace(manifest, training={**manifest.training, "tests": found})
    sizes = {p: len(data[FILES[p]]) for p in kept}
    files["README.md"] = card(manifest, sizes).encode()
    files |= compiled(options, run.config, report)
    bundle = write_bundle(options.output, manifest, files, force=options.force)
    shown = ", ".join(f"{name} {len(content) / 1e6:.1f} MB" for name, content in files.items())
    report(f"{options.output}: {shown}; default precision {default}")
    return bundle
