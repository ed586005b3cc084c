"""The TensorRT backend on fakes of the driver and of TensorRT's calls: what is allocated, copied,
started and freed, in which order; and that its links are those of the CPU."""

import random
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from .....engine.align.decoding import LinkRule
from .....engine.align.long_pairs import SEVERAL
from .....engine.aligner import Aligner
from .....engine.errors import BackendError
from .....engine.runtime.backends import GpuOptions
from .....engine.runtime.gpu import tensorrt as trt
from .....engine.runtime.gpu.lanes import GRAIN
from .....engine.runtime.gpu.tensorrt import choose_tokens, open_tensorrt
from .....engine.runtime.gpu.tensorrt_plans import PlanCache, split_into_classes
from ....support.bundles import write_toy
from ....support.fake_gpu import FakeDriver
from ....support.fake_tensorrt import FakeTensorrt

LINE = "the cat sat on the mat die Katze saß auf der Matte hello , . internationalisation"
WORDS = LINE.split(" ")


def corpus(n: int, longest: int = 25, seed: int = 1) -> tuple[list[str], list[str]]:
    rng = random.Random(seed)
    sides = [[rng.choices(WORDS, k=rng.randint(0, longest)) for _ in range(n)] for _ in range(2)]
    return [" ".join(line) for line in sides[0]], [" ".join(line) for line in sides[1]]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trt")
    return write_toy(folder / "toy.mx")


class Setup:
    def __init__(self, bundle, tmp_path, *, devices=1, room=1 << 30, memory=1 << 20, **options):
        self.driver = FakeDriver(devices, room)
        self.api = FakeTensorrt(self.driver, memory=memory)
        self.cache = PlanCache(tmp_path / "cache")
        self.bundle = bundle
        self.options = GpuOptions(**options)

    def open(self):
        return open_tensorrt(
            self.bundle, None, self.options, api=self.api, driver=self.driver, cache=self.cache
        )

    def builds(self):
        return [call for call in self.api.log if call[0] == "build"]


@pytest.fixture
def setup(bundle, tmp_path):
    return lambda **options: Setup(bundle, tmp_path, **options)


def align_all(backend, bundle, src, tgt, **rule):
    found = Aligner(bundle, backend, "", replace(LinkRule(threshold=0.15), **rule))
    return [(a.links, a.scores, a.src_null) for a in found.align(src, tgt, chunk=100)]


def align_on_cpu(bundle, src, tgt, **rule):
    backend = Aligner.load(bundle.path, backend="cpu").backend
    backend.grain = GRAIN  # sums over more padding are rounded differently
    return align_all(backend, bundle, src, tgt, **rule)


# ---- links ----


@pytest.mark.slow
@pytest.mark.parametrize("rule", [{}, {"nulls": True}, {"mode": "forward", "threshold": None}])
def test_the_links_are_those_of_the_cpu(setup, bundle, rule):
    src, tgt = corpus(250, longest=SEVERAL)
    src[3:5], tgt[5:7] = ["", " ".join(WORDS * 9)], ["", " ".join(WORDS[::-1] * 12)]
    it = setup()
    found = align_all(it.open(), bundle, src, tgt, **rule)
    assert found == align_on_cpu(bundle, src, tgt, **rule)
    looks = 4  # two at each very long pair and none at the others: links suffice there
    assert (len(it.driver.calls("launch")) > looks) == (not rule)


def test_without_kernels_links_are_found_on_the_cpu(bundle, tmp_path):
    toy = write_toy(tmp_path / "bare.mx")
    it = Setup(toy, tmp_path)
    it.driver.compute = 7, 0
    backend = it.open()
    assert "links on the CPU: there are no kernels for sm_70" in backend.describe()
    src, tgt = corpus(30)
    assert align_all(backend, toy, src, tgt) == align_on_cpu(toy, src, tgt)
    assert not it.driver.calls("launch")


def test_only_links_cross_the_bus(setup, bundle):
    src, tgt = corpus(100)
    it = setup()
    align_all(it.open(), bundle, src, tgt, threshold=0.5)
    out = sum(size for _, size, _ in it.driver.calls("copy_out"))
    other = setup()
    align_all(other.open(), bundle, src, tgt, threshold=0.5, nulls=True)
    assert out < sum(size for _, size, _ in other.driver.calls("copy_out"))


# ---- order, sizes, frees ----


def test_what_happens_to_a_batch_in_which_order(setup, bundle):
    it = setup()
    align_all(it.open(), bundle, ["the cat"], ["die Katze"])
    order = [call[0] for call in it.driver.log if call[0] not in ("allocate", "open", "load")]
    assert order[:5] == ["copy_in", "execute", "copy_in", "zero", "launch"]
    assert order[5:] == ["copy_out"] * 3 + ["wait"]
    streams = {call[-1] for call in it.driver.log if call[0] in order}
    assert len(streams) == 1


def test_everything_is_freed(setup, bundle):
    it = setup(devices=2)
    backend = it.open()
    align_all(backend, bundle, *corpus(120))
    assert it.driver.memory_of and it.driver.host_of
    assert "4 x streams" in it.driver.list_leaks() and "2 x contexts" in it.driver.list_leaks()
    backend.close()
    assert not it.driver.list_leaks()
    with pytest.raises(BackendError, match="the backend is closed"):
        align_all(backend, bundle, *corpus(3))


@pytest.mark.parametrize("where", ["run", "launch"])
def test_an_error_is_told_and_frees_all_the_same(setup, bundle, where):
    it = setup()
    backend = it.open()
    it.api.fail_run, it.driver.fail_launch = where == "run", where == "launch"
    with pytest.raises(BackendError, match="refused the run" if where == "run" else "LAUNCH"):
        align_all(backend, bundle, *corpus(20))
    backend.close()
    assert not it.driver.list_leaks()


@pytest.mark.parametrize("where", ["device", "build", "second context", "second device"])
def test_what_fails_at_the_start_leaves_nothing_behind(setup, where):
    it = setup(devices=2)
    if where == "device":
        it.driver.fail_open = 1
    elif where == "build":
        it.api.fail_build = BackendError("TensorRT: cannot build the engine: broken")
    else:  # each of two devices has two lanes, each lane a context
        it.api.contexts = {"second context": 2, "second device": 4}[where]
    with pytest.raises(BackendError, match=r"broken|UNKNOWN"):
        it.open()
    assert it.driver.calls("open") and not it.driver.list_leaks()


def test_streams_overlap(setup, bundle):
    it = setup()
    backend = it.open()
    assert backend.workers == 2
    align_all(backend, bundle, *corpus(400))
    assert len({call[-1] for call in it.driver.calls("execute")}) == 2


# ---- memory ----


def test_a_batch_that_does_not_fit_is_halved(setup, bundle):
    src, tgt = corpus(200)
    roomy = setup()
    wanted = align_all(roomy.open(), bundle, src, tgt)
    it = setup(room=2_300_000)  # two engines of 1 MB and hardly more, though all is allowed
    it.options = GpuOptions(memory=1 << 30)
    backend = it.open()
    assert align_all(backend, bundle, src, tgt) == wanted == align_on_cpu(bundle, src, tgt)
    assert len(it.driver.calls("execute")) > len(roomy.driver.calls("execute"))
    assert it.driver.most[0] <= 2_300_000


def test_the_limit_is_kept(setup, bundle):
    src, tgt = corpus(200)
    limit = 2_600_000
    it = setup(memory=1 << 20)
    it.options = GpuOptions(memory=limit)
    assert align_all(it.open(), bundle, src, tgt) == align_on_cpu(bundle, src, tgt)
    assert it.driver.most[0] <= limit


def test_a_pair_that_never_fits(setup, bundle):
    it = setup()
    backend = it.open()
    it.driver.room = (1 << 20) + 4096
    with pytest.raises(BackendError, match=r"does not fit on the GPU .* --gpu-memory"):
        align_all(backend, bundle, [" ".join(WORDS * 3)], [" ".join(WORDS * 3)])


def test_an_engine_that_never_fits(setup):
    it = setup(room=1 << 20, memory=1 << 21)
    with pytest.raises(BackendError, match=r"the engine needs 2 MB, of 0 MB left; .*--gpu-memory"):
        it.open()
    assert not it.driver.list_leaks()


def test_an_engine_that_does_not_fit_is_built_for_half_the_batch(
    setup, bundle, monkeypatch, capsys
):
    monkeypatch.setattr(trt, "choose_tokens", lambda bundle, limit: 2048)
    it = setup(room=1 << 27, memory=1 << 20)
    it.api.per_row = 1 << 20  # 128 rows of the shortest class are too many, 64 are not
    backend = it.open()
    assert backend.batch_tokens == 1024 and len(it.builds()) == 2
    assert "trying with half the batch" in capsys.readouterr().err
    src, tgt = corpus(40)
    assert align_all(backend, bundle, src, tgt) == align_on_cpu(bundle, src, tgt)
    backend.close()
    assert not it.driver.list_leaks()


def test_an_engine_is_kept_though_a_little_more_or_less_is_free(setup):
    setup(room=5 << 30).open()
    again = setup(room=(5 << 30) - (1 << 24))
    again.open()
    assert not again.builds()
    little = setup()
    little.options = GpuOptions(memory=1 << 28)  # a smaller workspace: another engine
    little.open()
    assert len(little.builds()) == 1 and little.builds()[0][2] == 1 << 27


def test_batches_follow_the_memory(bundle):
    sizes = [choose_tokens(bundle, limit) for limit in (1 << 20, 1 << 28, 1 << 34)]
    assert sizes == sorted(sizes) and sizes[0] == 1024 and sizes[-1] == 16384


# ---- the cache ----


def test_an_engine_is_built_once(setup, bundle):
    first, second = setup(), setup()
    first.open()
    second.open()
    assert len(first.builds()) == 1 and not second.builds()


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "unloadable"])
def test_a_damaged_engine_is_built_again(setup, bundle, damage, capsys):
    setup().open()
    it = setup()
    (file,) = [f for f in it.cache.folder.iterdir() if len(f.read_bytes()) > 1000]
    data = bytearray(file.read_bytes())
    if damage == "unloadable":  # whole, but TensorRT does not like it
        it.cache.write(file, b"ENGINE" + bytes(data[60:]))
    else:
        data[len(data) // 2] ^= 1
        file.write_bytes({"cut": data[:-1], "flip": data, "empty": b""}[damage])
    src, tgt = corpus(20)
    assert align_all(it.open(), bundle, src, tgt) == align_on_cpu(bundle, src, tgt)
    assert len(it.builds()) == 1
    assert ("of no use" in capsys.readouterr().err) == (damage == "unloadable")
    again = setup()
    again.open()
    assert not again.builds()


def test_what_an_engine_is_kept_by(setup, bundle, tmp_path):
    setup().open()
    other = setup()
    other.api.version = "11.0"
    other.open()
    assert len(other.builds()) == 1
    gpu = setup()
    gpu.driver.device_name = lambda device: "Other GPU"
    gpu.open()
    assert len(gpu.builds()) == 1
    model = Setup(write_toy(tmp_path / "other.mx", seed=2), tmp_path)
    model.open()
    assert len(model.builds()) == 1


def test_a_folder_that_cannot_be_written(setup, bundle, tmp_path, capsys):
    it = setup()
    (tmp_path / "file").write_bytes(b"")
    it.cache = PlanCache(tmp_path / "file")
    it.open()
    assert "cannot be kept" in capsys.readouterr().err


def test_measured_speeds_are_kept_for_the_next_build(setup, tmp_path):
    setup().open()
    next_model = Setup(write_toy(tmp_path / "other.mx", seed=3), tmp_path)
    next_model.open()
    assert next_model.builds()[0][4] == b"timings"


def test_building_is_announced(setup, capsys):
    setup().open()
    said = capsys.readouterr().err
    assert "building the fp32 engine of toy for Fake GPU, once" in said
    assert len(said.strip().split("\n")) == 1


# ---- between processes ----

BUILD = """
import sys, time
from mx_align.engine.runtime.gpu.tensorrt_plans import PlanCache

cache = PlanCache(__import__("pathlib").Path(sys.argv[1]))
path = cache.key_path(of="tests")
with cache.lock(path):
    print("inside", flush=True)
    sys.stdin.readline()
    cache.write(path, b"built by the other")
"""


def test_a_process_waits_for_the_one_that_builds(tmp_path, capsys):
    cache = PlanCache(tmp_path)
    path = cache.key_path(of="tests")
    command = [sys.executable, "-c", BUILD, str(tmp_path)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout.readline() == "inside\n"
        timer = threading.Timer(0.3, lambda: (other.stdin.write("go\n"), other.stdin.flush()))
        timer.start()
        with cache.lock(path):
            assert cache.read(path) == b"built by the other"
    assert "another process builds this engine; waiting for it" in capsys.readouterr().err


def test_an_engine_that_another_process_built_meanwhile_is_taken(setup, monkeypatch):
    first, second = setup(), setup()

    @contextmanager
    def build_meanwhile(cache, path):
        monkeypatch.undo()
        first.open()
        yield

    monkeypatch.setattr(PlanCache, "lock", build_meanwhile)
    second.open()
    assert len(first.builds()) == 1 and not second.builds()


def test_nothing_is_built_unasked(setup, bundle):
    it = setup()
    open_it = partial(
        open_tensorrt, bundle, None, GpuOptions(), api=it.api, driver=it.driver, cache=it.cache
    )
    with pytest.raises(BackendError, match=r"is not built yet, .* --backend trt builds it"):
        open_it(may_build=False)
    assert not it.builds() and not it.driver.list_leaks()
    open_it().close()
    open_it(may_build=False).close()
    assert len(it.builds()) == 1


# ---- another kind of model ----


def test_a_model_with_other_scores_and_fewer_outputs(tmp_path):
    """Links are of its own scores, not of a harmonic mean that it does not use."""
    bundle = write_toy(tmp_path / "plain.mx", product=True, threshold=0.05)
    it = Setup(bundle, tmp_path)
    backend = it.open()
    src, tgt = corpus(30)
    found, wanted = (
        align_all(one, bundle, src, tgt, threshold=0.05)
        for one in (backend, Aligner.load(bundle.path, backend="cpu").backend)
    )
    assert it.driver.calls("launch")
    assert [links for links, *_ in found] == [links for links, *_ in wanted]
    for (_, scores, _), (_, exact, _) in zip(found, wanted, strict=True):
        np.testing.assert_allclose(scores, exact, rtol=3e-7)
    with pytest.raises(BackendError, match="does not give fwd_null, bwd_null"):
        align_all(backend, bundle, src, tgt, nulls=True)


# ---- several GPUs ----


def test_all_gpus_work_and_the_order_is_kept(setup, bundle):
    src, tgt = corpus(500)
    it = setup(devices=3)
    backend = it.open()
    assert backend.workers == 6 and "3 x Fake GPU" in backend.describe()
    assert align_all(backend, bundle, src, tgt) == align_on_cpu(bundle, src, tgt)
    assert all(it.driver.most)
    assert len(it.builds()) == 1  # GPUs of one kind share the engine


def test_chosen_gpus(setup, bundle):
    it = setup(devices=3)
    it.options = GpuOptions(devices=(2,))
    align_all(it.open(), bundle, *corpus(50))
    assert not it.driver.most[0] and it.driver.most[2]
    it.options = GpuOptions(devices=(3,))
    with pytest.raises(BackendError, match="there is no GPU 3; they are numbered 0 to 2"):
        it.open()


# ---- profiles ----


@pytest.mark.parametrize(("length", "tokens"), [(64, 16384), (256, 1024), (300, 4096), (5, 1024)])
def test_every_batch_has_a_profile(length, tokens):
    found = split_into_classes(length, tokens)
    assert found[-1].length >= length and found[-1].length % 16 == 0
    for size in range(16, found[-1].length + 1, 16):
        one = next(one for one in found if size <= one.length)
        assert one.rows >= tokens // size
        assert one.rows * one.length <= max(4 * tokens, one.length)
    for one in found:
        for low, usual, high in one.shape_profile().values():
            assert np.all(np.array(low) <= usual) and np.all(np.array(usual) <= high)
