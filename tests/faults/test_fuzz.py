"""Damaged files of every kind are read or refused, never with another error or a crash."""

import random

from ..support.fuzz import fuzz_reader, make_readers


def test_damaged_files_are_read_or_refused(tmp_path):
    for reader in make_readers(tmp_path):
        counts = fuzz_reader(reader, tmp_path, 40, random.Random(reader.name))
        assert sum(counts.values()) == 40 and counts["refused"]
