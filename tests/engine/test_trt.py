"""The TensorRT backend on fakes of the driver and of TensorRT's calls: what is allocated, copied,
started and freed, in which order; and that its links are those of the CPU."""

import random
from dataclasses import replace

import numpy as np
import pytest
from bundles import write_toy
from fakes import SYMMETRIZE, FakeApi, FakeDriver, archive

from mx.engine.aligner import Aligner
from mx.engine.backends.gpu import GpuOptions, Gpus
from mx.engine.backends.trt import Cache, classes, open_trt, profile, tokens_for
from mx.engine.bundle import write_bundle
from mx.engine.decode import Rule
from mx.engine.errors import BackendError

LINE = "the cat sat on the mat die Katze saß auf der Matte hello , . internationalisation"
WORDS = LINE.split(" ")


def corpus(n: int, longest: int = 25, seed: int = 1) -> tuple[list[str], list[str]]:
    rng = random.Random(seed)
    sides = [[rng.choices(WORDS, k=rng.randint(0, longest)) for _ in range(n)] for _ in range(2)]
    return [" ".join(line) for line in sides[0]], [" ".join(line) for line in sides[1]]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trt")
    toy = write_toy(folder / "plain.mx")
    files = {name: toy.read(name) for name in toy.manifest.files}
    return write_bundle(
        folder / "toy.mx", toy.manifest, {**files, "kernels.sm_80.zip": archive(SYMMETRIZE)}
    )


class Setup:
    def __init__(self, bundle, tmp_path, *, devices=1, room=1 << 30, memory=1 << 20, **options):
        self.driver = FakeDriver(devices, room)
        self.api = FakeApi(self.driver, memory=memory)
        self.cache = Cache(tmp_path / "cache")
        self.bundle = bundle
        self.options = GpuOptions(**options)

    def open(self):
        return open_trt(
            self.bundle, None, 1, self.options, api=self.api, driver=self.driver, cache=self.cache
        )

    def builds(self):
        return [call for call in self.api.log if call[0] == "build"]


@pytest.fixture
def setup(bundle, tmp_path):
    return lambda **options: Setup(bundle, tmp_path, **options)


def aligned(backend, bundle, src, tgt, **rule):
    found = Aligner(bundle, backend, "", replace(Rule(threshold=0.15), **rule))
    return [(a.links, a.scores, a.src_null) for a in found.align(src, tgt, chunk=100)]


def on_cpu(bundle, src, tgt, **rule):
    backend = Aligner.load(bundle.path, backend="cpu").backend
    backend.grain = Gpus.grain  # sums over more padding are rounded differently
    return aligned(backend, bundle, src, tgt, **rule)


# ---- links ----


@pytest.mark.parametrize("rule", [{}, {"nulls": True}, {"mode": "forward", "threshold": None}])
def test_the_links_are_those_of_the_cpu(setup, bundle, rule):
    src, tgt = corpus(250)
    src[3:5], tgt[5:7] = ["", " ".join(WORDS * 9)], ["", " ".join(WORDS[::-1] * 12)]
    it = setup()
    found = aligned(it.open(), bundle, src, tgt, **rule)
    assert found == on_cpu(bundle, src, tgt, **rule)
    assert bool(it.driver.calls("launch")) == (not rule)


def test_without_kernels_links_are_found_on_the_cpu(bundle, tmp_path):
    toy = write_toy(tmp_path / "bare.mx")
    it = Setup(toy, tmp_path)
    backend = it.open()
    assert "links on the CPU: the bundle has no kernels for sm_86" in backend.describe()
    src, tgt = corpus(30)
    assert aligned(backend, toy, src, tgt) == on_cpu(toy, src, tgt)
    assert not it.driver.calls("launch")


def test_only_links_cross_the_bus(setup, bundle):
    src, tgt = corpus(100)
    it = setup()
    aligned(it.open(), bundle, src, tgt, threshold=0.5)
    out = sum(size for _, size, _ in it.driver.calls("copy_out"))
    other = setup()
    aligned(other.open(), bundle, src, tgt, threshold=0.5, nulls=True)
    assert out < sum(size for _, size, _ in other.driver.calls("copy_out"))


# ---- order, sizes, frees ----


def test_what_happens_to_a_batch_in_which_order(setup, bundle):
    it = setup()
    aligned(it.open(), bundle, ["the cat"], ["die Katze"])
    order = [call[0] for call in it.driver.log if call[0] not in ("allocate", "open", "load")]
    assert order[:5] == ["copy_in", "execute", "copy_in", "zero", "launch"]
    assert order[5:] == ["copy_out"] * 3 + ["wait"]
    streams = {call[-1] for call in it.driver.log if call[0] in order}
    assert len(streams) == 1


def test_everything_is_freed(setup, bundle):
    it = setup(devices=2)
    backend = it.open()
    aligned(backend, bundle, *corpus(120))
    assert it.driver.memory_of and it.driver.host_of
    backend.close()
    assert not it.driver.memory_of and not it.driver.host_of and not it.driver.streams


@pytest.mark.parametrize("where", ["run", "launch"])
def test_an_error_is_told_and_frees_all_the_same(setup, bundle, where):
    it = setup()
    backend = it.open()
    it.api.fail_run, it.driver.fail_launch = where == "run", where == "launch"
    with pytest.raises(BackendError, match="refused the run" if where == "run" else "LAUNCH"):
        aligned(backend, bundle, *corpus(20))
    backend.close()
    assert not it.driver.memory_of and not it.driver.host_of and not it.driver.streams


def test_streams_overlap(setup, bundle):
    it = setup()
    backend = it.open()
    assert backend.workers == 2
    aligned(backend, bundle, *corpus(400))
    assert len({call[-1] for call in it.driver.calls("execute")}) == 2


# ---- memory ----


def test_a_batch_that_does_not_fit_is_halved(setup, bundle):
    src, tgt = corpus(200)
    roomy = setup()
    wanted = aligned(roomy.open(), bundle, src, tgt)
    it = setup(room=2_300_000)  # two engines of 1 MB and hardly more, though all is allowed
    it.options = GpuOptions(memory=1 << 30)
    backend = it.open()
    assert aligned(backend, bundle, src, tgt) == wanted == on_cpu(bundle, src, tgt)
    assert len(it.driver.calls("execute")) > len(roomy.driver.calls("execute"))
    assert it.driver.most[0] <= 2_300_000


def test_the_limit_is_kept(setup, bundle):
    src, tgt = corpus(200)
    limit = 2_600_000
    it = setup(memory=1 << 20)
    it.options = GpuOptions(memory=limit)
    assert aligned(it.open(), bundle, src, tgt) == on_cpu(bundle, src, tgt)
    assert it.driver.most[0] <= limit


def test_a_pair_that_never_fits(setup, bundle):
    it = setup()
    backend = it.open()
    it.driver.room = (1 << 20) + 4096
    with pytest.raises(BackendError, match=r"does not fit on the GPU .* --gpu-memory"):
        aligned(backend, bundle, [" ".join(WORDS * 3)], [" ".join(WORDS * 3)])


def test_an_engine_that_never_fits(setup):
    with pytest.raises(BackendError, match="the engine needs"):
        setup(room=1 << 20, memory=1 << 21).open()


def test_batches_follow_the_memory(bundle):
    sizes = [tokens_for(bundle, limit) for limit in (1 << 20, 1 << 28, 1 << 34)]
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
    assert aligned(it.open(), bundle, src, tgt) == on_cpu(bundle, src, tgt)
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
    gpu.driver.name = lambda device: "Other GPU"
    gpu.open()
    assert len(gpu.builds()) == 1
    model = Setup(write_toy(tmp_path / "other.mx", seed=2), tmp_path)
    model.open()
    assert len(model.builds()) == 1


def test_a_folder_that_cannot_be_written(setup, bundle, tmp_path, capsys):
    it = setup()
    (tmp_path / "file").write_bytes(b"")
    it.cache = Cache(tmp_path / "file")
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


# ---- several GPUs ----


def test_all_gpus_work_and_the_order_is_kept(setup, bundle):
    src, tgt = corpus(500)
    it = setup(devices=3)
    backend = it.open()
    assert backend.workers == 6 and "3 x Fake GPU" in backend.describe()
    assert aligned(backend, bundle, src, tgt) == on_cpu(bundle, src, tgt)
    assert all(it.driver.most)
    assert len(it.builds()) == 1  # GPUs of one kind share the engine


def test_chosen_gpus(setup, bundle):
    it = setup(devices=3)
    it.options = GpuOptions(devices=(2,))
    aligned(it.open(), bundle, *corpus(50))
    assert not it.driver.most[0] and it.driver.most[2]
    it.options = GpuOptions(devices=(3,))
    with pytest.raises(BackendError, match="there is no GPU 3; they are numbered 0 to 2"):
        it.open()


# ---- profiles ----


@pytest.mark.parametrize(("length", "tokens"), [(64, 16384), (256, 1024), (300, 4096), (5, 1024)])
def test_every_batch_has_a_profile(length, tokens):
    found = classes(length, tokens)
    assert found[-1].length >= length and found[-1].length % 16 == 0
    for size in range(16, found[-1].length + 1, 16):
        one = next(one for one in found if size <= one.length)
        assert one.rows >= tokens // size
        assert one.rows * one.length <= max(4 * tokens, one.length)
    for one in found:
        for low, usual, high in profile(one).shapes.values():
            assert np.all(np.array(low) <= usual) and np.all(np.array(usual) <= high)
