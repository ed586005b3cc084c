"""From text files to caches: nothing is misaligned, nothing is done twice, errors say where."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from ....engine.errors import MxError
from ....engine.text.words import split_words
from ....trainer.data.vocabulary import load_tokenizers
from ....trainer.run.texts import Texts
from ....trainer.run.training_data import hold_out, load_data, prepare_data, read_gold, select_lines


def write(folder, name, text):
    (folder / name).write_text(text, "utf-8")
    return str(folder / name)


@pytest.fixture
def odd_texts(tmp_path):
    """Pairs that cannot be learned from between pairs that can."""
    src, tgt = [], []
    for k in range(40):
        src.append(f"haus nummer {k} steht hier")
        tgt.append(f"house number {k} stands here")
    bad = {3: ("", "lost"), 9: ("leer", ""), 17: ("x " * 90, "y " * 90), 25: ("a b", "c " * 40)}
    for line, (one, other) in bad.items():
        src[line], tgt[line] = one, other
    files = [write(tmp_path, "s", "\n".join(src) + "\n"), write(tmp_path, "t", "\n".join(tgt))]
    return Texts(*files, valid_last=0), src, tgt, set(bad)


def test_pairs_left_out_shift_no_other(odd_texts, tmp_path, small_config):
    texts, src, tgt, bad = odd_texts
    notes: list[str] = []
    config = small_config(max_length=60, vocab_size=340)
    prepare_data(texts, config, tmp_path, notes.append)
    cache = load_data(texts, config, tmp_path).train
    assert cache.lines.tolist() == [k for k in range(40) if k not in bad]
    tokenizer = load_tokenizers(tmp_path, config)[0]
    for i, line in enumerate(cache.lines.tolist()):
        assert cache.src.pieces(i).tolist() == tokenizer.encode(split_words(src[line]))[0]
        assert cache.tgt.pieces(i).tolist() == tokenizer.encode(split_words(tgt[line]))[0]
    assert any("36 of 40 pairs" in note and "2 empty" in note for note in notes)


def test_links_belong_to_the_kept_pairs(odd_texts, tmp_path, small_config):
    texts, src, _, _ = odd_texts
    config = small_config(max_length=60, vocab_size=340, warm_start="statistical")
    prepare_data(texts, config, tmp_path, lambda note: None)
    data = load_data(texts, config, tmp_path)
    offsets = data.links.offsets
    assert len(offsets) == len(data.train) + 1
    for i, line in enumerate(data.train.lines.tolist()):
        found = data.links.links[offsets[i] : offsets[i + 1]]
        assert found[:, :2].max(initial=0) < len(split_words(src[line]))
    cells = data.links.cells(data.train, np.arange(len(data.train)))
    assert cells.any()


def test_what_is_there_is_not_made_again(odd_texts, tmp_path, small_config):
    texts, *_ = odd_texts
    config = small_config(vocab_size=340, warm_start="statistical")
    prepare_data(texts, config, tmp_path, lambda note: None)
    notes: list[str] = []
    prepare_data(texts, config, tmp_path, notes.append)
    assert notes == []
    shutil.rmtree(tmp_path / "cache" / "valid")  # as if killed before it was written
    prepare_data(texts, config, tmp_path, notes.append)
    assert (tmp_path / "cache" / "valid" / "meta.json").exists()
    notes.clear()
    os.utime(texts.src, ns=(1, 1))  # the same text
    prepare_data(texts, config, tmp_path, notes.append)
    assert notes == []
    Path(texts.tgt).write_bytes(Path(texts.tgt).read_bytes().replace(b"house", b"mouse"))
    prepare_data(texts, config, tmp_path, notes.append)
    assert any("tokenising" in note for note in notes)


def test_separate_vocabularies(odd_texts, tmp_path, small_config):
    texts, *_ = odd_texts
    config = small_config(joint_vocab=False, vocab_size=680)
    prepare_data(texts, config, tmp_path, lambda note: None)
    src, tgt = load_tokenizers(tmp_path, config)
    assert src.proto != tgt.proto


def test_a_given_vocabulary_is_taken(odd_texts, tmp_path, small_config):
    texts, *_ = odd_texts
    first, second = tmp_path / "one", tmp_path / "two"
    first.mkdir()
    second.mkdir()
    prepare_data(texts, small_config(vocab_size=340), first, lambda note: None)
    given = Texts(texts.src, texts.tgt, valid_last=0, vocab=str(first / "src.spm"))
    prepare_data(given, small_config(vocab_size=999), second, lambda note: None)
    assert (first / "src.spm").read_bytes() == (second / "src.spm").read_bytes()


@pytest.mark.parametrize(
    ("n", "last", "held"), [(100, 5, 5), (100, 50, 10), (9, 500, 0), (100, 10, 10)]
)
def test_hold_out_takes_the_end_but_no_more_than_a_tenth(n, last, held):
    pairs = [(str(k), str(k)) for k in range(n)]
    kept: list = []
    assert list(hold_out(iter(pairs), last, kept)) == pairs[: n - held]
    assert kept == pairs[n - held :]


def test_items_are_selected_by_line_number():
    assert list(select_lines("abcdef", [1, 4])) == ["b", "e"]
    assert list(select_lines("abc", [])) == []


@pytest.mark.parametrize(
    ("src", "tgt", "message"),
    [
        ("a b\nc d\n", "a b\n", r"t ends after 1 lines but .*s goes on \(2 lines\)"),
        ("", "", "text is empty"),
        ("\n\n", "\n\n", "text is empty"),
        ("a\nb\n", "x\ny\n", "can be learned from"),
    ],
)
def test_texts_that_cannot_be_learned_from(tmp_path, small_config, src, tgt, message):
    texts = Texts(write(tmp_path, "s", src), write(tmp_path, "t", tgt))
    for _ in range(2):  # what the first try left behind does not hide the mistake
        with pytest.raises(MxError, match=message):
            prepare_data(texts, small_config(), tmp_path, lambda note: None)


def test_wrong_encoding_and_missing_files(tmp_path, small_config):
    (tmp_path / "latin").write_bytes("gr\xf6\xdfe zwei\n".encode("latin-1"))
    good = write(tmp_path, "s", "a b\n")
    with pytest.raises(MxError, match="latin, line 1, byte 2: not valid UTF-8"):
        prepare_data(Texts(good, f"{tmp_path}/latin"), small_config(), tmp_path, lambda note: None)
    with pytest.raises(MxError, match=r"none does not exist"):
        prepare_data(Texts(good, f"{tmp_path}/none"), small_config(), tmp_path, lambda note: None)


def test_gold_pairs(tmp_path):
    files = [write(tmp_path, n, t) for n, t in (("a", "x y\nz\n"), ("b", "u\nv w\n"))]
    texts = Texts("s", "t", gold_src=files[0], gold_tgt=files[1])
    assert read_gold(texts) is None
    gold = read_gold(Texts(**{**vars(texts), "gold": write(tmp_path, "g", "0-0 1p0\n0-1\n")}))
    assert gold.gold[0].sure == {(0, 0)} and gold.gold[0].possible == {(0, 0), (1, 0)}
    for text, message in (
        ("0-0\n1-1\n", r"g sentence 2: link 1-1 is outside its sentences of 1 and 2 words"),
        ("0-0\n", "has 1 lines, but .*a has 2 sentences"),
    ):
        with pytest.raises(MxError, match=message):
            read_gold(Texts(**{**vars(texts), "gold": write(tmp_path, "g", text)}))
