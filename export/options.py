"""What a user may ask of an export: each option once, with its flag.

Does not import torch or onnx, so that mx-export can show its flags at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..engine.commands.flags import CommonFlags, argument, flag
from ..engine.errors import MxError

GoldFiles = tuple[str, str, str]  # source, target, links


@dataclass(frozen=True)
class ExportOptions(CommonFlags):
    """The options of an export, which are the flags of mx-export."""

    run: str = argument(required=True)
    output: str | None = flag(
        None, "The folder to write, or a single file if the name ends in .zip.",
        group="Bundle", short="-o", metavar="BUNDLE",
    )  # fmt: skip
    langs: str | None = flag(
        None, "Language codes, such as de-en, or de+fr-en for a model of several; kept in the "
        "bundle.", group="Bundle", metavar="SRC-TGT",
    )  # fmt: skip
    read: Literal["prior", "posterior"] | None = flag(
        None, "Which of Mask-Align's weights are the alignment if nobody says otherwise; a bundle "
        "has both [default: the run's].", group="Bundle",
    )  # fmt: skip
    name: str = flag("", "Name of the model [default: that of the bundle].", group="Bundle")
    dtype: tuple[Literal["fp32", "fp16", "int8"], ...] = flag(
        (), "Graphs to write; may be given again [default: fp32, fp16, and int8 if its links are "
        "nearly those of fp32].", group="Bundle",
    )  # fmt: skip
    zipped: bool = flag(
        False, "Write one zip file: adds .zip to the name.", group="Bundle", name="--zip"
    )
    force: bool = flag(False, "Replace a bundle that is there already.", group="Bundle")
    probe: tuple[str, str] | None = flag(
        None, "Text to measure on, two parallel files [default: the run's validation text].",
        group="Measuring", metavar="SRC TGT",
    )  # fmt: skip
    gold: str | None = flag(
        None, "Gold links, to choose thresholds and calibrate by.", group="Measuring",
        metavar="FILE",
    )  # fmt: skip
    gold_src: str | None = flag(None, "Their source sentences.", group="Measuring", metavar="FILE")
    gold_tgt: str | None = flag(None, "Their target sentences.", group="Measuring", metavar="FILE")
    test: tuple[GoldFiles, ...] = flag(
        (), "Gold pairs to measure the AER on that the model card tells; may be given again "
        "[default: those of --gold].", group="Measuring", metavar="SRC TGT LINKS",
    )  # fmt: skip
    data: str | None = flag(None, "What it was trained on.", group="Card", metavar="TEXT")
    licence: str | None = flag(None, "Licence of the data.", group="Card", metavar="TEXT")
    hardware: str | None = flag(None, "The machine that trained it.", group="Card", metavar="TEXT")
    limits: str | None = flag(None, "What it is not good at.", group="Card", metavar="TEXT")
    text: str | None = flag(
        None, "For `mx-align --train-on-input`: which text.", group="Card", metavar="DIGEST"
    )

    def __post_init__(self) -> None:
        gold = (self.gold_src, self.gold_tgt, self.gold)
        if not self.output:
            raise MxError("give the bundle to write with -o BUNDLE")
        if any(gold) and not all(gold):
            raise MxError("--gold, --gold-src and --gold-tgt belong together; give all three")

    @property
    def bundle_path(self) -> Path:
        """The folder or zip file to write."""
        path = Path(self.output or "")
        return path.with_name(path.name + ".zip") if self.zipped and path.suffix != ".zip" else path

    @property
    def gold_files(self) -> GoldFiles | None:
        if not (self.gold_src and self.gold_tgt and self.gold):
            return None
        return self.gold_src, self.gold_tgt, self.gold

    @property
    def card_notes(self) -> dict[str, str]:
        """What the card tells of the model because the user said so."""
        told = ("data", "licence", "hardware", "limits", "text")
        return {name: said for name in told if (said := getattr(self, name))}
