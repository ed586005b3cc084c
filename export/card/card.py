"""Write the model card, README.md of a bundle: what the model is, how good, how to use it.

Knows the manifest only.
"""

import numpy as np

from ...engine.bundle.manifest import Manifest


def render_card(manifest: Manifest, sizes: dict[str, int]) -> str:
    """Return the card as Markdown; `sizes` are bytes of the graphs by dtype."""
    src, tgt = (side.replace("+", " or ") for side in manifest.languages)
    thresholds = manifest.thresholds
    lines = [
        f"# {manifest.name}",
        "",
        f"Word alignment model, {name_language(src)} to {name_language(tgt)}, for "
        "[mx-align](https://pypi.org/project/mx-align/).",
        "",
        "```",
        f"mx-align --model {manifest.name}.mx corpus.src corpus.tgt > links",
        "```",
        "",
        "| | |",
        "|---|---|",
        f"| network | {describe_network(manifest)} |",
        f"| variant | {describe_variant(manifest)} |",
        f"| vocabulary | {describe_vocabulary(manifest)} |",
        f"| longest sentence in training | {manifest.max_length} pieces |",
        f"| made by | {manifest.made_by} |",
        "",
        "## Quality",
        "",
        describe_quality(manifest),
        "",
        "## Training",
        "",
        *list_training(manifest),
        "",
        "## Limits",
        "",
        *list_limits(manifest),
        "",
        "## Graphs",
        "",
        "| precision | size | measured |",
        "|---|---|---|",
        *(graph_row(manifest, dtype, size) for dtype, size in sizes.items()),
        "",
        f"The default precision is {manifest.default_dtype}.",
        "",
        "## Thresholds",
        "",
        "| wish | threshold | probability of a link there |",
        "|---|---|---|",
        f"| lowest AER (default) | {thresholds.aer:.4g} "
        f"| {link_probability(manifest, thresholds.aer)} |",
        f"| precision | {thresholds.precision:.4g} "
        f"| {link_probability(manifest, thresholds.precision)} |",
        f"| recall | {thresholds.recall:.4g} | {link_probability(manifest, thresholds.recall)} |",
        "",
        f"Thresholds: {thresholds.chosen}.",
        f"Probabilities: {manifest.calibration.chosen}.",
        "",
    ]
    return "\n".join(lines)


def name_language(code: str) -> str:
    return "an undetermined language" if code == "und" else code


def is_student(manifest: Manifest) -> bool:
    return manifest.model.get("kind") == "student"  # older bundles do not say


def describe_network(manifest: Manifest) -> str:
    model = manifest.model
    size = f"width {model['width']}, feed-forward {model['ff']}"
    if is_student(manifest):
        return f"symmetric student, {size}, {model['encoder_layers']} layers"
    layers = f"{model['encoder_layers']} + {model['decoder_layers']} layers"
    return f"Mask-Align, {size}, {model['heads']} heads, {layers}"


def describe_variant(manifest: Manifest) -> str:
    model = manifest.model
    if is_student(manifest):
        channels = model["refine"]
        refined = f"scores corrected by {channels} channels" if channels else "no correction"
        return refined if model.get("diagonal", True) else f"{refined}, no diagonal"
    parts = [
        "static-KV masked decoder" if model["masked"] else "autoregressive decoder",
        "leaky attention" if model["leaky"] else "no NULL",
        f"cross-attention in {'the last layer' if model['cross'] == 'last' else 'all layers'}",
        f"{model['norm']}-norm",
        "directions share weights" if model["tied"] else "separate directions",
    ]
    return ", ".join(parts)


def describe_vocabulary(manifest: Manifest) -> str:
    model = manifest.model
    case = ", lowercased" if manifest.tokenizer.lowercase else ""
    case += ", without accents" if manifest.tokenizer.fold_accents else ""
    if model["joint_vocab"]:
        return f"{model['src_vocab']:,} pieces of all languages together{case}"
    return f"{model['src_vocab']:,} and {model['tgt_vocab']:,} pieces{case}"


def graph_row(manifest: Manifest, dtype: str, size: int) -> str:
    measured = manifest.measured.get(dtype, {})
    notes = "; ".join(f"{key.replace('_', ' ')} {value}" for key, value in measured.items())
    return f"| {dtype} | {size / 1e6:.1f} MB | {notes} |"


def link_probability(manifest: Manifest, threshold: float) -> str:
    table = manifest.calibration
    return f"{float(np.interp(threshold, table.scores, table.probabilities)):.2f}"


# ---- in words ----


def describe_quality(manifest: Manifest) -> str:
    """Tell AER with its interval, and what it was measured on."""
    tests = manifest.training.get("tests", [])
    if not tests:
        return "Not measured: there were no gold links (`mx-export --test`)."
    lines = []
    for test in tests:
        aer, low, high = test["aer"]
        seen = ", on which the threshold was chosen, too" if test["seen"] else ""
        lines.append(
            f"- AER {aer:.2f} % (95 %: {low:.2f} to {high:.2f}), precision "
            f"{test['precision'][0]:.2f}, recall {test['recall'][0]:.2f} on the {test['pairs']:,} "
            f"pairs with gold links of {test['links']}{seen}"
        )
    return "With the default precision and threshold:\n\n" + "\n".join(lines)


def list_training(manifest: Manifest) -> list[str]:
    """List data, licence and cost."""
    told, spent = manifest.training, manifest.training.get("cost", {})
    lines = [
        f"- Data: {told.get('data', 'not told')}",
        f"- Licence of the data: {told.get('licence', 'not told')}",
    ]
    if "start" in told:
        lines.append(f"- Started from: {told['start']}, and what that was trained on")
    if "teachers" in told:
        lines.append(f"- Taught by: {', '.join(told['teachers'])}")
    if "seconds" in spent:
        where = f" on {told['hardware']}" if "hardware" in told else ""
        lines.append(
            f"- Cost: {spent['seconds'] / 60:,.1f} minutes{where}, {spent['step']:,.0f} steps, "
            f"{spent.get('pieces', 0) / 1e6:,.1f}M pieces of both sides; vocabulary, tokens and "
            "the links of a teacher come on top"
        )
    return [*lines, f"- Signature: `{told.get('signature', 'unknown')}`"]


def list_limits(manifest: Manifest) -> list[str]:
    """List what it is not made for: what is so of every such model, and what was told of this."""
    case = "sees words in lower case only" if manifest.tokenizer.lowercase else "minds upper case"
    lines = [
        f"- Sentences of more than {manifest.max_length} pieces are aligned in windows; links far "
        "from the diagonal may be missed there.",
        f"- It {case}; characters it has not met in training are spelt in bytes and align worse.",
        "- Text unlike its data (another subject, time or tokenisation) gives more errors than "
        "stated above.",
    ]
    return lines + [f"- {told}" for told in [manifest.training.get("limits")] if told]
