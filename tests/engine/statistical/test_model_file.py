"""The file of a statistical model: exact, compact, and safe to read whoever wrote it."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest

from ....engine.errors import InputError
from ....engine.statistical import model_file
from ....engine.statistical.aligner import StatisticalAligner
from ...support.made_up_language import make_corpus


@pytest.fixture(scope="module")
def corpus():
    return make_corpus(200, random_seed=7)


@pytest.fixture(scope="module")
def aligner(corpus) -> StatisticalAligner:
    return StatisticalAligner.learn(corpus[0], corpus[1], lowercase=True)


@pytest.fixture
def saved(aligner, tmp_path):
    aligner.save(tmp_path / "model.npz")
    return tmp_path / "model.npz"


def rewrite(path, change) -> None:
    """Change header and arrays of a file, and make the hash right again."""
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(arrays.pop("header").tobytes())
    change(header, arrays)
    if set(arrays) == set(model_file._TYPES):
        header["sha256"] = model_file._hash_arrays(arrays, model_file._TYPES)
    np.savez(path, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)


def test_saved_and_loaded_it_gives_the_same(corpus, aligner, saved):
    src, tgt, _ = corpus
    src, tgt = [*src, ["Zebra", "0w"]], [*tgt, ["q0x", "zebras"]]  # also for words never met
    loaded = StatisticalAligner.load(saved)
    assert list(loaded.align(src, tgt)) == list(aligner.align(src, tgt))
    assert loaded.signature() == aligner.signature()
    assert loaded.describe() == aligner.describe()


def test_saving_what_was_loaded_gives_the_same_file(saved, tmp_path):
    StatisticalAligner.load(saved).save(tmp_path / "again.npz")
    with np.load(saved) as first, np.load(tmp_path / "again.npz") as second:
        assert first.files == second.files == ["header", *model_file._TYPES]
        assert all((first[name] == second[name]).all() for name in first.files)


def test_the_threshold_is_chosen_anew(aligner, saved):
    assert StatisticalAligner.load(saved, threshold=0.7).threshold == 0.7


def test_words_may_hold_anything(tmp_path):
    words = ["a\nb", "", "\ud800", "日本", "e\u0301", "\0"]
    src, tgt = [words] * 3, [words[::-1]] * 3
    aligner = StatisticalAligner.learn(src, tgt)
    aligner.save(tmp_path / "model.npz")
    loaded = StatisticalAligner.load(tmp_path / "model.npz")
    assert list(loaded.align(src, tgt)) == list(aligner.align(src, tgt))


def test_other_files_are_refused(tmp_path):
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "old.npz", format=np.array([1]))  # version 1 had no header
    np.savez(tmp_path / "other.npz", weights=np.ones(3))
    (tmp_path / "folder.npz").mkdir()
    for name, message in (
        ("none.npz", "does not exist; write it with mx-seed --save"),
        ("text.npz", "not a statistical model"),
        ("old.npz", "another version; learn it again"),
        ("other.npz", "it has no header"),
        ("folder.npz", "not a statistical model"),
    ):
        with pytest.raises(InputError, match=message):
            StatisticalAligner.load(tmp_path / name)


def test_a_flipped_or_missing_byte_is_noticed(saved):
    data = saved.read_bytes()
    with zipfile.ZipFile(saved) as archive:
        starts = [info.header_offset + 80 for info in archive.infolist()]
    for place in starts:
        saved.write_bytes(data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :])
        with pytest.raises(InputError, match="not a statistical model"):
            StatisticalAligner.load(saved)
    for end in (0, 10, len(data) // 2, len(data) - 1):
        saved.write_bytes(data[:end])
        with pytest.raises(InputError, match="not a statistical model"):
            StatisticalAligner.load(saved)


def test_arrays_that_are_not_those_written_are_noticed(saved):
    with np.load(saved) as file:
        arrays = dict(file)
    arrays["pair_fwd"] = arrays["pair_fwd"] / 2
    np.savez(saved, **arrays)
    with pytest.raises(InputError, match="not those it was written with"):
        StatisticalAligner.load(saved)


def set_value(name, place, value):
    def change(header, arrays):
        arrays[name] = arrays[name].copy()
        arrays[name][place] = value

    return change


def repeat_a_pair(header, arrays):
    counts, tgt = arrays["pair_counts"].copy(), arrays["pair_tgt"].copy()
    counts[0], counts[1], tgt[:] = counts[0] + counts[1], 0, 0
    arrays.update(pair_counts=counts, pair_tgt=tgt)


CHANGES = {
    "another version": lambda header, arrays: header.update(version=3),
    "another's": lambda header, arrays: header.update(format="x"),
    "wrong arrays: extra": lambda header, arrays: arrays.update(extra=np.ones(2)),
    "wrong arrays: fwd_null": lambda header, arrays: arrays.pop("fwd_null"),
    "max_jump must be": lambda header, arrays: header["settings"].update(max_jump=1 << 40),
    "null_prob must be": lambda header, arrays: header["settings"].update(null_prob=float("nan")),
    "unexpected keyword": lambda header, arrays: header["settings"].update(surprise=1),
    "learned from no pairs": lambda header, arrays: header.update(pairs=-1),
    "wrong type or size": lambda header, arrays: arrays.update(
        pair_fwd=arrays["pair_fwd"].astype(np.float64)
    ),
    "words that are not there": set_value("pair_tgt", -1, 1 << 20),
    "are not in order": repeat_a_pair,
    "are miscounted": set_value("pair_counts", 0, 1 << 20),
    "are no probabilities": set_value("pair_fwd", 0, np.nan),
    "impossible length": set_value("src_lengths", 0, -1),
    "another length than they": set_value("src_lengths", 0, 1),
    "can't decode": set_value("src_words", 0, 255),
    "a word is there twice": set_value(
        "src_words", slice(0, 6), np.frombuffer(b"aaaaaa", np.uint8)
    ),
    "impossible values": set_value("src_totals", 0, -1),
    "fwd_null has": lambda header, arrays: arrays.update(fwd_null=arrays["fwd_null"][1:]),
    "a weight of fwd_jump is 0": set_value("fwd_jump", 0, 0),
    "a weight of bwd_start is 0": set_value("bwd_start", 0, 0),
}


@pytest.mark.parametrize("message", CHANGES)
def test_a_file_that_says_impossible_things_is_refused(saved, message):
    rewrite(saved, CHANGES[message])
    with pytest.raises(InputError, match=message):
        StatisticalAligner.load(saved)


def test_a_small_file_cannot_ask_for_much_memory(saved, monkeypatch):
    """Neither by an array that says it is large, nor by one that unpacks to much."""
    forged = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        forged, {"descr": "<f4", "fortran_order": False, "shape": (1 << 45,)}
    )
    with zipfile.ZipFile(saved) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(saved, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, forged.getvalue() if name == "pair_fwd.npy" else data)
    with pytest.raises(InputError, match=r"pair_fwd.npy has the wrong type or size"):
        StatisticalAligner.load(saved)
    monkeypatch.setattr(model_file, "_MAX_BYTES", 1000)
    with pytest.raises(InputError, match="would take more than"):
        StatisticalAligner.load(saved)
