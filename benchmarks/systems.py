"""Plans how each of the compared aligners is run: its commands, and where the links are then.

Does not run, measure or score anything.
"""

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..engine.bundle.bundle import Bundle
from ..engine.errors import MxError
from ..engine.version import __version__

TRAIN, ALIGN, BOTH = "train", "align", "both"  # both: learns from the text while aligning it


@dataclass(frozen=True)
class Text:
    """A parallel text, lowercased, in plain files; its last pairs are those with gold links."""

    name: str
    src: Path
    tgt: Path
    joint: Path  # the same as `source ||| target`
    pairs: int
    gold_pairs: int
    gold: Path
    digest: str


@dataclass(frozen=True)
class Phase:
    """One command, and what it does: TRAIN, ALIGN or BOTH."""

    what: str
    command: tuple[str, ...]
    stdout: Path | None = None  # where to keep what the command prints


@dataclass(frozen=True)
class SystemPlan:
    """Commands, and the files of links they leave: one, or one for each direction."""

    phases: list[Phase]
    links: tuple[Path, ...]
    signature: str
    method: str = ""  # of joining the directions, if the system does it by itself
    aligned: int | None = None  # pairs, if not all of the text; the last ones
    trained: dict[str, float] = field(default_factory=dict)  # cost told by a model's bundle
    averaged: tuple[str, ...] = ()  # systems whose links are averaged in
    size_mb: float | None = None


@dataclass(frozen=True)
class Options:
    """What all systems may want to know."""

    python: str = sys.executable  # the interpreter that has the peers
    threads: int | None = None
    speed_pairs: int | None = None  # a model aligns no more than these for its speed


System = Callable[[Text, Path, Options], SystemPlan]


# ---- the peers ----


def plan_eflomal(text: Text, out: Path, options: Options) -> SystemPlan:
    """Plan eflomal; GPL, so only ever a program beside ours."""
    program = find_program(options.python, "eflomal-align", "pip install eflomal")
    fwd, bwd = out / "fwd", out / "bwd"
    command = (
        program, "--overwrite", "-s", str(text.src), "-t", str(text.tgt),
        "-f", str(fwd), "-r", str(bwd),
    )  # fmt: skip
    version = peer_version(options.python, "eflomal")
    return SystemPlan([Phase(BOTH, command)], (fwd, bwd), f"eflomal|v:{version}|model:3")


def plan_fast_align(text: Text, out: Path, options: Options) -> SystemPlan:
    """Plan the authors' program, if it is on PATH."""
    program = find_program(options.python, "fast_align", "build github.com/clab/fast_align")
    flags = (program, "-i", str(text.joint), "-d", "-o", "-v")
    fwd, bwd = out / "fwd", out / "bwd"
    phases = [
        Phase(BOTH, flags, stdout=fwd),
        Phase(BOTH, (*flags, "-r"), stdout=bwd),
    ]
    return SystemPlan(phases, (fwd, bwd), "fast_align|-d -o -v")


def plan_systran(text: Text, out: Path, options: Options) -> SystemPlan:
    """Plan fast_align through systran-align, which joins the directions itself."""
    version = peer_version(options.python, "systran-align")
    script = (options.python, str(Path(__file__).with_name("systran.py")))
    fwd, bwd, links = (str(out / name) for name in ("fwd.probs", "bwd.probs", "links"))
    phases = [
        Phase(TRAIN, (*script, "train", str(text.joint), fwd, bwd)),
        Phase(ALIGN, (*script, "align", fwd, bwd, str(text.src), str(text.tgt), links)),
    ]
    signature = f"systran-align|v:{version}|-d -o -v"
    return SystemPlan(phases, (out / "links",), signature, method="its own")


def peer_system(template: str) -> System:
    """Return any command with {src} {tgt} (or {joint}) and {out}, or {fwd} and {bwd}."""
    directed = "{fwd}" in template and "{bwd}" in template
    if not directed and "{out}" not in template:
        raise MxError(f"the peer's command must have {{out}}, or {{fwd}} and {{bwd}}: {template}")

    def plan(text: Text, out: Path, options: Options) -> SystemPlan:
        names = ("fwd", "bwd") if directed else ("out",)
        files = {name: out / name for name in names}
        given = {"src": text.src, "tgt": text.tgt, "joint": text.joint, **files}
        line = template.format(**{name: shlex.quote(str(path)) for name, path in given.items()})
        return SystemPlan(
            [Phase(BOTH, ("sh", "-c", line))], tuple(files.values()), f"peer|{template}"
        )

    return plan


def find_program(python: str, name: str, install: str) -> str:
    """Return the path of a program: beside the peers' interpreter, or on PATH."""
    near = Path(python).parent / name
    found = str(near) if near.exists() else shutil.which(name)
    if not found:
        raise MxError(f"{name} is neither beside {python} nor on PATH; {install}")
    return found


def peer_version(python: str, package: str) -> str:
    """Return the version of a package in the interpreter of the peers."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if done.returncode:
        raise MxError(
            f"{python} has no {package}; pip install {package} there, or name another "
            "interpreter with --peer-python"
        )
    return done.stdout.strip()


# ---- ours ----


def plan_statistical(text: Text, out: Path, options: Options) -> SystemPlan:
    """Plan our statistical aligner, mx-seed."""
    links, scores = out / "links", out / "scored.links"
    files = text.src, text.tgt, "-o", links, "--scores", scores
    command = module_command("mx_align.engine.commands.seed", *files, "--lowercase")
    return SystemPlan(
        [Phase(BOTH, command)], (links,), f"mx-seed|v:{__version__}", method="its own"
    )


def plan_mx_align(text: Text, out: Path, options: Options) -> SystemPlan:
    """Plan mx-align as people use it: it chooses model, statistics of the text, or both."""
    links = out / "links"
    name = "mx_align.engine.commands.align"
    files = text.src, text.tgt, "-o", links, "--langs", text.name, "--restart", "--quiet"
    threads = ("--threads", str(options.threads), "--workers", "1") if options.threads else ()
    command = module_command(name, *files, *threads)
    return SystemPlan([Phase(BOTH, command)], (links,), f"mx-align|v:{__version__}|auto", "soft")


def bundle_system(path: Path, averaged: tuple[Path, ...] = ()) -> System:
    """Return a model that was trained before, or its average with files of scored links."""

    def plan(text: Text, out: Path, options: Options) -> SystemPlan:
        src, tgt, aligned = take_tail(text, out, options.speed_pairs)
        model, links = Bundle.load(path), out / "links"
        command = align_command(src, tgt, path, links)
        command += ("--langs", text.name) if model.language_order(text.name) else ()
        command += tuple(
            word
            for n, other in enumerate(averaged)
            for word in ("--average", str(last_lines_file(other, out / f"others.{n}", aligned)))
        )
        command += ("--threads", str(options.threads)) if options.threads else ()
        default = model.manifest.default_dtype
        graph = model.manifest.files[model.manifest.graphs[default]].size
        cost = model.manifest.training.get("cost", {})
        return SystemPlan(
            [Phase(ALIGN, command)],
            (links,),
            f"mx-align|v:{__version__}|model:{model.name}#{model.digest[:8]}|prec:{default}"
            + (f"|avg:{len(averaged)}" if averaged else ""),
            method="soft",
            aligned=aligned,
            trained={"wall": cost["seconds"]} if "seconds" in cost and not averaged else {},
            size_mb=round(graph / 1e6, 2),
            averaged=tuple(other.resolve().parent.name for other in averaged),
        )

    return plan


def training_system(flags: str) -> System:
    """Return a model that is trained now, with these flags of mx-train; resumes after a kill."""

    def plan(text: Text, out: Path, options: Options) -> SystemPlan:
        run, model = out / "run", out / "model.mx"
        threads = ("--threads", str(options.threads)) if options.threads else ()
        learn = module_command(
            "mx_align.trainer", text.src, text.tgt, "-o", run, "--lowercase", *threads
        )
        src, tgt, aligned = take_tail(text, out, options.speed_pairs)
        links = out / "links"
        return SystemPlan(
            [
                Phase(TRAIN, (*learn, *shlex.split(flags))),
                Phase(TRAIN, export_command(run, model)),
                Phase(ALIGN, align_command(src, tgt, model, links, *threads)),
            ],
            (links,),
            f"mx-train|v:{__version__}|{flags}",
            method="soft",
            aligned=aligned,
            trained=earlier_cost(run),
        )

    return plan


def earlier_cost(run: Path) -> dict[str, float]:
    """Return the seconds a run to be resumed was trained before; CPU time is not known."""
    try:
        lines = (run / "log.jsonl").read_text("utf-8").split("\n")
        return {"wall": max(json.loads(x).get("seconds", 0.0) for x in lines if x.endswith("}"))}
    except (OSError, ValueError):
        return {}


def module_command(name: str, *arguments: object) -> tuple[str, ...]:
    """Return the command that runs a module of ours with this interpreter."""
    return (sys.executable, "-m", name, *map(str, arguments))


def export_command(run: Path, bundle: Path) -> tuple[str, ...]:
    """Return the command that exports a run, without kernels for GPUs."""
    flags = "-o", bundle, "--force"
    return module_command("mx_align.export.commands.export", run, *flags)


def align_command(
    src: object, tgt: object, model: object, links: object, *flags: object
) -> tuple[str, ...]:
    """Return the command that aligns two files with a model, from the beginning."""
    name = "mx_align.engine.commands.align"
    alone = "--method", "model", "--restart", "--quiet"
    return module_command(name, src, tgt, "-m", model, "-o", links, *alone, *flags)


def take_tail(text: Text, out: Path, pairs: int | None) -> tuple[Path, Path, int | None]:
    """Return the text, or files of its last pairs; never fewer than have gold links."""
    if pairs is None or pairs >= text.pairs:
        return text.src, text.tgt, None
    pairs = max(pairs, text.gold_pairs)
    src, tgt = (
        last_lines_file(path, out / f"end{path.suffix}", pairs) for path in (text.src, text.tgt)
    )
    return src, tgt, pairs


def last_lines_file(path: Path, end: Path, lines: int | None) -> Path:
    """Write the last lines of a file into another; without a number, return it as it is."""
    if lines is None:
        return path
    every = path.read_bytes().split(b"\n")[:-1]
    end.write_bytes(b"".join(line + b"\n" for line in every[-lines:]))
    return end


PEERS: dict[str, System] = {
    "eflomal": plan_eflomal,
    "fast_align": plan_fast_align,
    "systran-align": plan_systran,
}
OURS: dict[str, System] = {"mx-align": plan_mx_align, "mx-seed": plan_statistical}
