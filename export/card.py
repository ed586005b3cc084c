"""The model card, README.md of a bundle: what the model is, how good, how to use it.

Knows the manifest only."""

from mx.engine.bundle import Manifest


def card(manifest: Manifest, sizes: dict[str, int]) -> str:
    """Markdown."""
    src, tgt = manifest.languages
    model, thresholds = manifest.model, manifest.thresholds
    lines = [
        f"# {manifest.name}",
        "",
        f"Word alignment model, {language(src)} to {language(tgt)}, for "
        "[mx-align](https://pypi.org/project/mx-align/).",
        "",
        "```",
        f"mx-align --model {manifest.name}.mx corpus.src corpus.tgt > links",
        "```",
        "",
        "| | |",
        "|---|---|",
        f"| network | width {model['width']}, feed-forward {model['ff']}, {model['heads']} heads, "
        f"{model['encoder_layers']} + {model['decoder_layers']} layers |",
        f"| variant | {variant(manifest)} |",
        f"| vocabulary | {vocabulary(manifest)} |",
        f"| longest sentence in training | {manifest.max_length} pieces |",
        f"| made by | {manifest.made_by} |",
        "",
        f"Trained by `{manifest.training.get('signature', 'unknown')}`.",
        "",
        "## Graphs",
        "",
        "| precision | size | measured |",
        "|---|---|---|",
        *(graph_row(manifest, precision, sizes) for precision in manifest.graphs),
        "",
        f"The default precision is {manifest.default_precision}.",
        "",
        "## Thresholds",
        "",
        "| wish | threshold | probability of a link there |",
        "|---|---|---|",
        f"| lowest AER (default) | {thresholds.aer:.4g} "
        f"| {probability(manifest, thresholds.aer)} |",
        f"| precision | {thresholds.precision:.4g} "
        f"| {probability(manifest, thresholds.precision)} |",
        f"| recall | {thresholds.recall:.4g} | {probability(manifest, thresholds.recall)} |",
        "",
        f"Thresholds: {thresholds.chosen}.",
        f"Probabilities: {manifest.calibration.chosen}.",
        "",
    ]
    return "\n".join(lines)


def language(code: str) -> str:
    return "an undetermined language" if code == "und" else code


def variant(manifest: Manifest) -> str:
    model = manifest.model
    parts = [
        "static-KV masked decoder" if model["masked"] else "autoregressive decoder",
        "leaky attention" if model["leaky"] else "no NULL",
        f"cross-attention in {'the last layer' if model['cross'] == 'last' else 'all layers'}",
        f"{model['norm']}-norm",
        "directions share weights" if model["tied"] else "separate directions",
    ]
    return ", ".join(parts)


def vocabulary(manifest: Manifest) -> str:
    model = manifest.model
    case = ", lowercased" if manifest.tokenizer.lowercase else ""
    case += ", without accents" if manifest.tokenizer.fold_accents else ""
    if model["joint_vocab"]:
        return f"{model['src_vocab']:,} pieces of both languages together{case}"
    return f"{model['src_vocab']:,} and {model['tgt_vocab']:,} pieces{case}"


def graph_row(manifest: Manifest, precision: str, sizes: dict[str, int]) -> str:
    measured = manifest.measured.get(precision, {})
    notes = "; ".join(f"{key.replace('_', ' ')} {value}" for key, value in measured.items())
    return f"| {precision} | {sizes[precision] / 1e6:.1f} MB | {notes} |"


def probability(manifest: Manifest, threshold: float) -> str:
    import numpy as np

    table = manifest.calibration
    return f"{float(np.interp(threshold, table.scores, table.probabilities)):.2f}"
