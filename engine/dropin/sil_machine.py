"""Adapters for sil-machine (SIL's machine.py): a `WordAligner`, and what silnlp calls an aligner.

Needs the package `sil-machine`, which is imported when an adapter is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..aligner import Aligner
from ..errors import MxError
from ..links.heuristics import JOIN_METHODS
from ..statistical.aligner import StatisticalAligner
from ..text.files import open_output, read_lines
from .directions import align_directions


def make_word_aligner(aligner: Aligner | StatisticalAligner) -> Any:
    """Return a `machine.translation.WordAligner` that asks this aligner."""
    try:
        from machine.translation.word_aligner import WordAligner  # pyright: ignore[reportMissingImports]
        from machine.translation.word_alignment_matrix import WordAlignmentMatrix  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MxError("this needs sil-machine: pip install sil-machine") from None

    class MxWordAligner(WordAligner):  # type: ignore[misc,unused-ignore]
        """Links tokens as they are given, without normalizing them."""

        def align(self, source_segment: Sequence[str], target_segment: Sequence[str]) -> Any:
            return self.align_batch([(source_segment, target_segment)])[0]

        def align_batch(self, segments: Sequence[Sequence[Sequence[str]]]) -> list[Any]:
            src, tgt = ([segment[n] for segment in segments] for n in (0, 1))
            return [
                WordAlignmentMatrix.from_word_pairs(len(s), len(t), found.links)
                for s, t, found in zip(src, tgt, aligner.align_batch(src, tgt), strict=True)
            ]

    return MxWordAligner()


class MachineAligner:
    """Learns from files of tokens and writes symmetrized links, as silnlp's aligners do."""

    def __init__(self) -> None:
        self._files: tuple[Path, Path] | None = None
        self._aligner: StatisticalAligner | None = None

    def train(self, src_file_path: str | Path, trg_file_path: str | Path) -> None:
        """Learn from two files with a sentence a line."""
        self._files = Path(src_file_path), Path(trg_file_path)
        self._aligner = StatisticalAligner.learn_files(*self._files, lowercase=True)

    def align(self, out_file_path: str | Path, sym_heuristic: str = "grow-diag-final-and") -> None:
        """Write the links of the files that were learned from."""
        aligner, files = self._require_model()
        join = JOIN_METHODS[sym_heuristic]
        with open_output(out_file_path, whole=True) as out:
            for pair in align_directions(aligner, *map(read_lines, files)):
                links = sorted(join(set(pair.fwd), set(pair.bwd)))
                out.write((" ".join(f"{i}-{j}" for i, j in links) + "\n").encode())

    def get_direct_lexicon(self) -> dict[str, dict[str, float]]:
        """Return for each source word its translations with p(target | source), best first."""
        model = self._require_model()[0].model
        lexicon: dict[str, dict[str, float]] = {}
        rows = zip((model.keys >> 32).tolist(), (model.keys & 0xFFFFFFFF).tolist(),
                   model.fwd.tolist(), strict=True)  # fmt: skip
        for s, t, p in sorted(rows, key=lambda row: (row[0], -row[2])):
            lexicon.setdefault(model.src_words[s], {})[model.tgt_words[t]] = p
        return lexicon

    def _require_model(self) -> tuple[StatisticalAligner, tuple[Path, Path]]:
        if self._aligner is None or self._files is None:
            raise MxError("call train first")
        return self._aligner, self._files
