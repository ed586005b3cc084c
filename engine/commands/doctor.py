"""mx-doctor: which backends would run here, why not the others, and, where there is a GPU, whether
our kernels compute what they should and how fast.
Knows how to ask; what is computed is the matter of the backends and kernels."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..errors import BackendError, MxError
from ..version import __version__

if TYPE_CHECKING:
    from ..runtime.gpu.devices import Device
    from ..runtime.gpu.kernels.launch import Archive, Entry

PACKAGES = ("numpy", "onnxruntime", "onnxruntime-gpu", "cuda-bindings", "tensorrt", "tensorrt-rtx")
SHAPES = ((1, 1), (3, 19), (512, 32), (64, 256))  # pairs, pieces of a side
# Largest difference from the NumPy twin that is rounding and no mistake. Only static_attention
# gives back the type it takes.
TOLERANCE = {
    "symmetrize": 5e-7, "leaky_attention": 2e-4, "static_attention.fp32": 1e-4,
    "static_attention.fp16": 2e-3, "static_attention.bf16": 2e-2,
}  # fmt: skip
LEAST_F1 = 0.98  # of links in half precision against those in single
DRIVER = "install NVIDIA's driver, R580 or later: https://www.nvidia.com/drivers"


@click.command(context_settings={"max_content_width": 96})
@click.option("-m", "--model", metavar="BUNDLE", help="Check its kernels and backends too.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="mx-doctor")
def main(model: str | None, debug: bool) -> None:
    """Say which backends of mx-align would run here and, for those that would not, why and what
    to install. On a machine with a GPU, run the kernels against their references.

    \b
    Example:
      mx-doctor -m de-en.mx
    """
    try:
        sys.exit(0 if examine(model, click.echo) else 1)
    except MxError as error:
        if debug:
            traceback.print_exc()
        click.echo(f"mx-doctor: {error}", err=True)
        sys.exit(2)


def examine(model: str | None, say: Callable[[str], None]) -> bool:
    """Say everything; False if something that runs here computes what it should not."""
    for line in versions():
        say(line)
    for finding in backends():
        say(str(finding))
    if model is None:
        say("kernels: give a bundle with -m to run them")
        return True
    from ..bundle.bundle import Bundle

    bundle = Bundle.load(model)
    kernels = check_kernels(bundle, say)
    return check_backends(bundle, say) and kernels


def versions() -> Iterator[str]:
    """This machine and the packages that matter."""
    yield f"mx-align {__version__}, Python {platform.python_version()}, {platform.platform()}"
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    yield "packages: " + ", ".join(found)


# ---- backends ----


@dataclass(frozen=True)
class Finding:
    """Whether a backend would run here; if not, why, and what to type."""

    backend: str
    runs: bool
    about: str
    install: str = ""

    def __str__(self) -> str:
        line = f"{self.backend:8} {'yes' if self.runs else 'no '}  {self.about}"
        return f"{line}\n{'':14}{self.install}" if self.install else line


def backends() -> list[Finding]:
    """All backends, the fastest first."""
    return [_tensorrt("trt", "tensorrt"), _tensorrt("trt-rtx", "tensorrt_rtx"), _cuda(), _cpu()]


def _gpus() -> tuple[str, list[tuple[int, int]]]:
    """The GPUs of this machine in a few words, and their compute capabilities; BackendError if
    there is none to use."""
    from ..runtime.gpu.cuda_driver import Driver

    driver = Driver()
    if not driver.count():
        raise BackendError("there is no NVIDIA GPU here")
    kinds = [driver.capability(i) for i in range(driver.count())]
    names = ["{} (sm_{}{})".format(driver.name(i), *kind) for i, kind in enumerate(kinds)]
    return f"{', '.join(names)}; driver for CUDA {'.'.join(map(str, driver.version()))}", kinds


def _tensorrt(name: str, package: str) -> Finding:
    from ..runtime.gpu.tensorrt_api import INSTALL, TITLES, Api

    try:
        api = Api(package)
    except BackendError as error:
        return Finding(name, False, str(error).split(";")[0], INSTALL[package])
    found, kinds = _with_gpu(name, f"{package} {api.version}")
    strange = ["sm_{}{}".format(*kind) for kind in kinds if not api.builds_for(kind)]
    if strange:
        reason = f"{TITLES[package]} has no engines for {', '.join(strange)}"
        return Finding(name, False, f"{package} {api.version} is installed, but {reason}")
    return found


def _cuda() -> Finding:
    from ..runtime.onnx_cpu import CUDA_LIBRARIES, VERSION, need_cuda, try_cuda

    try:
        need_cuda()
    except BackendError:
        install = 'pip uninstall -y onnxruntime && pip install "mx-align[gpu]"'
        return Finding("cuda", False, f"onnxruntime {VERSION} is the one without CUDA", install)
    found, kinds = _with_gpu("cuda", f"onnxruntime {VERSION}")
    try:
        if kinds:
            try_cuda(0)
    except BackendError as error:
        about = f"onnxruntime {VERSION} is installed, but {str(error).removeprefix('CUDA: ')}"
        return Finding("cuda", False, about, CUDA_LIBRARIES)
    return found


def _with_gpu(name: str, about: str) -> tuple[Finding, list[tuple[int, int]]]:
    """What is installed on a machine with or without GPUs, and what these are."""
    from ..runtime.gpu.cuda_driver import INSTALL, NO_DRIVER

    try:
        gpus, kinds = _gpus()
        return Finding(name, True, f"{about}, {gpus}"), kinds
    except BackendError as error:
        reason, _, missing = str(error).partition("; pip")
        install = INSTALL if missing else DRIVER if reason == NO_DRIVER else ""
        return Finding(name, False, f"{about} is installed, but {reason}", install), []


def _cpu() -> Finding:
    from ..runtime.onnx_cpu import VERSION

    return Finding("cpu", True, f"onnxruntime {VERSION}")


# ---- kernels ----


@dataclass(frozen=True)
class Check:
    """A kernel against its twin on one device."""

    kernel: str
    shape: str
    difference: float
    seconds: float
    work: float  # floating-point operations, or bytes read where there are none
    error: str = ""  # why it did not run

    @property
    def good(self) -> bool:
        name, dtype, *_ = self.kernel.split(".")
        most = TOLERANCE.get(name) or TOLERANCE[f"{name}.{dtype}"]
        return not self.error and self.difference <= most


def check_kernels(bundle: Any, say: Callable[[str], None]) -> bool:
    """Run the bundle's kernels on every GPU against their references; False if one is wrong."""
    from ..runtime.gpu.devices import GpuOptions, open_devices
    from ..runtime.gpu.kernels.launch import find_archive

    try:
        devices = open_devices(GpuOptions())
    except BackendError as error:
        say(f"kernels: not run, {error}")
        return True
    good = True
    for device in devices:
        archive = find_archive(bundle, device.capability)
        say(f"kernels on GPU {device.number}, {device.name}:")
        if archive is None:
            say("  the bundle has none for it; mx-export --kernels makes them")
            continue
        say(f"  {'kernel':28} {'shape':22} {'difference':>11} {'time':>10} {'rate':>13}")
        for check in run_checks(device, archive):
            good = good and check.good
            if check.error:
                say(f"  {check.kernel:28} {check.shape:22} FAILED: {check.error}")
                continue
            rate = f"{check.work / check.seconds / 1e9:,.1f} G/s"
            mark = "" if check.good else "  WRONG"
            say(
                f"  {check.kernel:28} {check.shape:22} {check.difference:11.2e} "
                f"{1e6 * check.seconds:7,.0f} us {rate:>13}{mark}"
            )
    return good


def run_checks(
    device: Device,
    archive: Archive,
    shapes: Sequence[tuple[int, int]] = SHAPES,
    repeats: int = 20,
) -> Iterator[Check]:
    """Every kernel of the archive on small, ragged and large batches."""
    makers = {"symmetrize": _check_links, "static_attention": _check_static,
              "leaky_attention": _check_leaky}  # fmt: skip
    device.use()
    for entry in archive.entries.values():
        for batch, size in shapes:
            try:
                bench = _Bench(device, archive, entry, repeats)
                yield makers[entry.kernel](bench, batch, size)
            except Exception as error:  # the others are still worth a try
                reason = f"{type(error).__name__}: {error}"
                yield Check(entry.name, f"{batch} pairs of {size}", float("inf"), 0.0, 0.0, reason)


class _Bench:
    """One kernel with memory and a stream for it, freed at the end."""

    def __init__(self, device: Device, archive: Archive, entry: Entry, repeats: int) -> None:
        from ..runtime.gpu.devices import Buffers
        from ..runtime.gpu.kernels.launch import Kernel

        self.device, self.entry, self.repeats = device, entry, repeats
        self.kernel = Kernel(device.driver, archive, entry)
        self.buffers = Buffers(device)
        self.stream = device.driver.new_stream()

    @contextmanager
    def ready(self) -> Iterator[_Bench]:
        try:
            yield self
        finally:
            self.device.driver.wait(self.stream)
            self.buffers.close()
            self.kernel.close()
            self.device.driver.free_stream(self.stream)

    def time(self, start: Callable[[], Any]) -> float:
        """Seconds of one call, the median of five rounds, after a warm-up."""
        start()
        self.device.driver.wait(self.stream)
        found = []
        for _ in range(5):
            began = time.perf_counter()
            for _ in range(self.repeats):
                start()
            self.device.driver.wait(self.stream)
            found.append((time.perf_counter() - began) / self.repeats)
        return sorted(found)[2]


def _lengths(rng: Any, batch: int, size: int) -> Any:
    lengths = rng.integers(1, size + 1, batch)
    lengths[0] = size
    return lengths


def _narrow(array: Any, dtype: str) -> tuple[Any, Any]:
    """A float32 array as the kernel takes it, and the values that are left of it."""
    import numpy as np

    if dtype != "bf16":
        kept = array.astype({"fp32": np.float32, "fp16": np.float16}[dtype])
        return kept, kept.astype(np.float32)
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    kept = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return kept, _wide(kept)


def _wide(array: Any) -> Any:
    """What a kernel gave back, in float32; bfloat16 comes as the upper halves of them."""
    import numpy as np

    if array.dtype != np.uint16:
        return array.astype(np.float32)
    return (array.astype(np.uint32) << 16).view(np.float32)


def _check_static(bench: _Bench, batch: int, size: int) -> Check:
    import numpy as np

    from ..runtime.gpu.devices import send, view
    from ..runtime.reference import static_attention

    constants, heads = bench.entry.constants, 4
    head, width = constants["HEAD"], 4 * constants["HEAD"]
    rng = np.random.default_rng(1)
    raw = [rng.normal(size=(batch, size, width)) for _ in range(3)]
    raw[0] /= head**0.5
    (q, k, v), plain = zip(*(_narrow(x, bench.entry.dtype) for x in raw), strict=True)
    lengths = _lengths(rng, batch, size).astype(np.int32)
    with bench.ready():
        arrays = {"q": q, "k": k, "v": v, "lengths": lengths}
        given = send(bench.buffers, "inputs", arrays, bench.stream)
        out = bench.buffers.on_device("out", k.nbytes)
        strides = (size * width, width, head)
        pointers = (given["q"], given["k"], given["v"], given["lengths"], given["q"])
        arguments = (*pointers, batch, size, heads, *(4 * strides), out)
        grid = batch * heads, -(-size // constants["ROWS"])
        seconds = bench.time(lambda: bench.kernel.launch(grid, arguments, bench.stream))
        host = bench.buffers.on_host("out", k.nbytes)
        bench.device.driver.copy_out(host, out, k.nbytes, bench.stream)
        bench.device.driver.wait(bench.stream)
        found = _wide(view(host, k.shape, k.dtype))
    wanted = static_attention(plain[0], plain[1], plain[2], lengths, heads)
    work = 4.0 * width * float((lengths.astype(float) ** 2).sum())
    return _judged(bench, batch, size, found - wanted, seconds, work)


def _check_leaky(bench: _Bench, batch: int, size: int) -> Check:
    import numpy as np

    from ..runtime.gpu.devices import fetch, send
    from ..runtime.reference import leaky_attention

    constants = bench.entry.constants
    head, heads = constants["HEAD"], constants["HEADS"]
    width = heads * head
    rng = np.random.default_rng(1)
    q, k = (rng.normal(size=(batch, size, width)) for _ in range(2))
    there = np.arange(size) < _lengths(rng, batch, size)[:, None]
    mask = np.where(there, 0, -np.inf)
    raw = {"q": q / head**0.5, "k": k, "null": rng.normal(size=width), "mask": mask}
    narrow = {name: _narrow(x, bench.entry.dtype) for name, x in raw.items()}
    with bench.ready():
        arrays = {name: kept for name, (kept, _) in narrow.items()}
        given = send(bench.buffers, "inputs", arrays, bench.stream)
        weights = bench.buffers.on_device("weights", 4 * batch * size * size)
        nulls = bench.buffers.on_device("nulls", 4 * batch * size)
        strides = (size * width, width, head)
        arguments = (*given.values(), size, size, *strides, *strides, weights, nulls)
        grid = batch, -(-size // constants["ROWS"])
        seconds = bench.time(lambda: bench.kernel.launch(grid, arguments, bench.stream))
        places = {"weights": (weights, (batch, size, size)), "nulls": (nulls, (batch, size))}
        found = fetch(bench.buffers, places, bench.stream)
    plain = [values for _, values in narrow.values()]
    wanted = leaky_attention(plain[0], plain[1], plain[2], plain[3], heads)
    worst = np.append(found["weights"] - wanted[0], found["nulls"] - wanted[1])
    return _judged(bench, batch, size, worst, seconds, 4.0 * width * batch * size * size)


def _check_links(bench: _Bench, batch: int, size: int) -> Check:
    import numpy as np

    from ..runtime.gpu.devices import LinkFinder, send
    from ..runtime.reference import symmetrize_links
    from ..types import WordIds

    rng = np.random.default_rng(1)
    # Coarse weights: no score is so near the threshold that rounding would decide.
    fwd, bwd = (np.round(rng.random((batch, size, size), np.float32) ** 6 * 256) / 256
                for _ in range(2))  # fmt: skip
    words = np.repeat(np.arange(size, dtype=np.int32)[None] // 2, batch, axis=0)
    ids = WordIds(words, words, np.full((batch, 2), 2, np.int32))
    with bench.ready():
        given = send(bench.buffers, "weights", {"fwd": fwd, "bwd": bwd}, bench.stream)
        finder = LinkFinder(bench.device, bench.kernel)
        at = given["fwd"], given["bwd"]
        seconds = bench.time(lambda: finder.find(bench.buffers, at, ids, 0.2001, bench.stream))
        found = finder.find(bench.buffers, at, ids, 0.2001, bench.stream)
    wanted = symmetrize_links(fwd.astype(np.float32), bwd.astype(np.float32), words, words, 0.2001)
    work = 8.0 * fwd.size
    if found.counts.tolist() != wanted.counts.tolist():
        return _judged(bench, batch, size, np.array([np.inf]), seconds, work)
    before = np.cumsum(found.counts) - found.counts
    order = np.repeat(found.starts - before, found.counts) + np.arange(len(found.src))
    same = np.array_equal(found.src[order], wanted.src) & np.array_equal(
        found.tgt[order], wanted.tgt
    )
    worst = found.scores[order] - wanted.scores if same else np.array([np.inf])
    worst = np.append(worst, found.sentence - wanted.sentence)
    return _judged(bench, batch, size, worst, seconds, work)


def _judged(
    bench: _Bench, batch: int, size: int, differences: Any, seconds: float, work: float
) -> Check:
    import numpy as np

    worst = float(np.abs(differences).max(initial=0.0))
    worst = worst if np.isfinite(worst) else float("inf")
    return Check(bench.entry.name, f"{batch} pairs of {size}", worst, seconds, work)


# ---- whole backends ----


def check_backends(bundle: Any, say: Callable[[str], None]) -> bool:
    """Align some made-up pairs with every backend that runs; False if one fails after all, or if
    a GPU's links are others than those of the CPU in single precision."""
    from ..aligner import Aligner

    src, tgt = _pairs(bundle)
    links = {}
    good = True
    for finding in reversed([one for one in backends() if one.runs]):  # the CPU first
        exact = finding.backend == "cpu" and "fp32" in bundle.precisions
        try:
            dtype = "fp32" if exact else None
            aligner = Aligner.load(bundle.path, backend=finding.backend, dtype=dtype)
            began = time.perf_counter()
            found = list(aligner.align(src, tgt))
            seconds = time.perf_counter() - began
        except Exception as error:  # the others are still worth a try
            say(f"{finding.backend}: FAILED: {type(error).__name__}: {error}")
            good = False
            continue
        links[finding.backend] = [set(one.links) for one in found]
        say(f"{finding.backend}: {len(src) / seconds:,.0f} pairs/s; {aligner.describe()}")
        if finding.backend != "cpu" and "cpu" in links:
            f1 = _f1(links[finding.backend], links["cpu"])
            say(f"{finding.backend}: F1 of its links against the CPU's {f1:.4f}")
            good = good and f1 > LEAST_F1
    return good


def _f1(found: Sequence[set[Any]], wanted: Sequence[set[Any]]) -> float:
    both = sum(len(a & b) for a, b in zip(found, wanted, strict=True))
    total = sum(len(a) + len(b) for a, b in zip(found, wanted, strict=True))
    return 2 * both / total if total else 1.0


def _pairs(bundle: Any) -> tuple[list[str], list[str]]:
    """Sentences made of the model's own pieces: no text is needed, and every length occurs."""
    import random

    rng = random.Random(1)
    sides = []
    for tokenizer in bundle.tokenizers():
        pieces = [tokenizer._model.id_to_piece(i) for i in range(tokenizer.vocab_size)]
        words = [piece.replace("\u2581", "") for piece in pieces if piece.startswith("\u2581")]
        words = [word for word in words if word.isalpha()] or ["a"]
        sides.append([" ".join(rng.choices(words, k=rng.randint(1, 40))) for _ in range(2000)])
    return sides[0], sides[1]


if __name__ == "__main__":
    main(prog_name="mx-doctor")
