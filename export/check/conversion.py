"""Convert the fp32 graph to other dtypes, and measure what that changes.

Does not write anything. A graph that is not good enough is left out, with the reason reported,
unless the user asked for it by name.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property

import onnx

from ...engine.errors import MxError
from ...engine.links.link_files import Gold
from ...engine.links.scoring import link_f1, score_links
from ...engine.types import Link
from ...trainer.networks.weights import Network
from ..graph.dtypes import convert_to_fp16, convert_to_int8, find_ranges
from .probe import Probe, find_probe_links, make_feeds
from .readings import read_graph_as
from .verification import check_onnx, verify_graph

LEAST_PAIRS = 50  # fewer say too little about links
# What int8 must keep to be taken unasked (docs/decisions.md has what models lost).
LEAST_INT8_F1 = 0.985  # of its links against fp32 ones
MOST_INT8_AER = 0.003  # by which it may be worse
_RANGE_PAIRS = 200  # pairs that ranges are taken from at most

Measures = dict[str, float]


@dataclass(frozen=True)
class GoldText:
    """Text with gold links, real ones or those of the directions."""

    probe: Probe
    gold: list[Gold]
    is_real: bool
    how: str  # where the links come from, for people


@dataclass
class DtypeConverter:
    """Makes the fp16 and int8 graphs of a model."""

    model: Network
    graph: onnx.ModelProto  # fp32
    max_length: int
    probe: Probe | None
    gold: GoldText | None
    threshold: float
    named: Collection[str]  # dtypes that the user asked for
    report: Callable[[str], None]
    read: str = ""  # how the model is read
    int8_is_good: bool = False

    def convert(self, dtype: str) -> tuple[onnx.ModelProto, Measures] | None:
        """Return the graph and its measurements; None, with the reason reported, if it is not good
        enough or cannot be made, and nobody asked for it by name."""
        try:
            graph = convert_to_fp16(self.graph) if dtype == "fp16" else self._make_int8()
            check_onnx(graph, dtype)
            shown = read_graph_as(graph, self.read)
            worst = verify_graph(self.model, shown, dtype, self.max_length, self.probe)
        except MxError as error:
            if dtype in self.named:
                raise
            self.report(f"{dtype} left out: {error}")
            return None
        found = {"largest_difference": worst.value, **self._measure_links(shown)}
        measured = round_measures(found)
        numbers = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in measured.items())
        self.report(f"{dtype}: {numbers}")
        if dtype == "int8":
            # What is decided is decided on the values themselves, not on what people see.
            worse = found["aer"] - self.baseline["aer"] if self.baseline else 0.0
            self.int8_is_good = found["link_f1"] >= LEAST_INT8_F1 and worse <= MOST_INT8_AER
            if not self.int8_is_good and dtype not in self.named:
                self.report(f"int8 left out: it must keep a link F1 of {LEAST_INT8_F1} and the AER")
                return None
        return graph, measured

    def _make_int8(self) -> onnx.ModelProto:
        """Take ranges from the first half of the text; links are measured on the second."""
        if self.probe is None or len(self.probe) < LEAST_PAIRS:
            raise MxError(
                f"int8 needs {LEAST_PAIRS} pairs of text to be measured on; give --probe SRC TGT"
            )
        some = self.probe.pairs[: min(_RANGE_PAIRS, len(self.probe) // 2)]
        single = [make_feeds([s.ids], [t.ids]) for s, t in some]
        return convert_to_int8(self.graph, find_ranges(self.graph, single))

    def _measure_links(self, graph: onnx.ModelProto) -> Measures:
        """Return link F1 against fp32, and AER where there is real gold."""
        if self.probe is None:
            return {}
        links, exact = self._find_links(graph), self._exact_links
        return {"link_f1": link_f1(exact, links), **self._measure_aer(graph)}

    def _find_links(self, graph: onnx.ModelProto) -> list[set[Link]]:
        """Find the links of the text that int8 did not take its ranges from."""
        assert self.probe is not None
        rest = Probe(self.probe.pairs[len(self.probe) // 2 :], self.probe.name)
        return find_probe_links(graph, rest, self.threshold)

    @cached_property
    def _exact_links(self) -> list[set[Link]]:
        return self._find_links(read_graph_as(self.graph, self.read))

    def _measure_aer(self, graph: onnx.ModelProto) -> Measures:
        if self.gold is None or not self.gold.is_real:
            return {}
        links = find_probe_links(graph, self.gold.probe, self.threshold)
        return {"aer": score_links(links, self.gold.gold).aer}

    @cached_property
    def baseline(self) -> Measures:
        """AER of fp32, if there is real gold."""
        return self._measure_aer(read_graph_as(self.graph, self.read))


def round_measures(values: Measures) -> Measures:
    """Round for people: differences to three digits, the others to four places."""
    return {
        name: float(f"{value:.3g}") if name == "largest_difference" else round(value, 4)
        for name, value in values.items()
    }
