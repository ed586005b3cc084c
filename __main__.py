"""`python -m mx_align`: the list of commands."""

from importlib.metadata import entry_points

from .engine.version import __version__

SUMMARIES = {
    "mx-align": "parallel text to word links",
    "mx-seed": "links by statistics learned from the text itself, without a model",
    "mx-eval": "how good links are: AER, precision, recall, with intervals",
    "mx-view": "links and matrices as a page for the browser",
    "mx-serve": "models that stay in memory: HTTP, and a web app to correct links",
    "mx-tokenize": "raw text to words, with their places in the line",
    "mx-lex": "lexical tables, shortlists, dictionaries and terms from links",
    "mx-project": "labels and markup carried over to a translation",
    "mx-eflomal": "the flags of eflomal-align, our statistical aligner behind them",
    "mx-fastalign": "the flags of fast_align, our statistical aligner behind them",
    "mx-atools": "the flags of atools, and what it writes",
    "mx-extractlex": "the arguments of extract_lex, and its numbers",
    "mx-merge": "join the shards of a large job",
    "mx-doctor": "which backends run here, and what the others need",
    "mx-train": "learn a model from parallel text (needs torch)",
    "mx-export": "turn a trained run into a bundle for mx-align (needs torch, onnx)",
    "mx-analyze": "the paper's analyses of a model on gold pairs (needs torch)",
}


def list_commands() -> str:
    """Describe every installed command, one line each."""
    installed = {point.name for point in entry_points(group="console_scripts")}
    rows = [f"  {name:15}{text}" for name, text in SUMMARIES.items() if name in installed]
    return "\n".join([f"mx-align {__version__}: word alignment", "", *rows, "", "Each has --help."])


if __name__ == "__main__":
    print(list_commands())
