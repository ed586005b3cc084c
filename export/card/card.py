"""Write the model card, README.md of a bundle: what the model is, how good, how to use it.

Knows the manifest only.
"""

import numpy as np

from ...engine.bundle.manifest import Manifest


def render_card(manifest: Manifest, sizes: dict[str, int]) -> str:
    """Return the card as Markdown; `sizes` are bytes of the graphs by dtype."""
    src, tgt = (
        "an undetermined language"
        if code == "und"
        else code.replace("+", " or " if code.count("+") < 4 else ", ")
        for code in manifest.languages
    )
    return f"""\
# {manifest.name}

Word alignment model, {src} to {tgt}, for [mx-align](https://pypi.org/project/mx-align/).

```
mx-align --model {manifest.name}.mx corpus.src corpus.tgt > links
```

| | |
|---|---|
| network | {describe_network(manifest)} |
| variant | {describe_variant(manifest)} |
| vocabulary | {describe_vocabulary(manifest)} |
| longest sentence in training | {manifest.max_length} pieces |
| made by | {manifest.made_by} |

## Quality

{describe_quality(manifest)}

## Training

{describe_training(manifest)}

## Limits

{describe_limits(manifest)}

## Graphs

| dtype | size | measured |
|---|---|---|
{graph_rows(manifest, sizes)}

The default dtype is {manifest.default_dtype}.

## Thresholds

| optimized for | threshold | probability of a link there |
|---|---|---|
{threshold_rows(manifest)}

{describe_reading(manifest)}Thresholds: {manifest.thresholds.chosen}.
Probabilities: {manifest.calibration.chosen}.
"""


def describe_network(manifest: Manifest) -> str:
    model = manifest.model
    size = f"width {model['width']}, feed-forward {model['ff']}"
    if model.get("kind") == "student":  # older bundles do not say
        return f"symmetric student, {size}, {model['encoder_layers']} layers"
    layers = f"{model['encoder_layers']} + {model['decoder_layers']} layers"
    return f"Mask-Align, {size}, {model['heads']} heads, {layers}"


def describe_variant(manifest: Manifest) -> str:
    model = manifest.model
    if model.get("kind") == "student":
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


def graph_rows(manifest: Manifest, sizes: dict[str, int]) -> str:
    rows = []
    for dtype, size in sizes.items():
        measured = manifest.measured.get(dtype, {})
        notes = "; ".join(f"{key.replace('_', ' ')} {value}" for key, value in measured.items())
        rows.append(f"| {dtype} | {size / 1e6:.1f} MB | {notes} |")
    return "\n".join(rows)


def threshold_rows(manifest: Manifest) -> str:
    best, table = manifest.thresholds, manifest.calibration
    goals = {"lowest AER (default)": best.aer, "precision": best.precision, "recall": best.recall}
    return "\n".join(
        f"| {goal} | {value:.4g} | {np.interp(value, table.scores, table.probabilities):.2f} |"
        for goal, value in goals.items()
    )


# ---- in words ----


def describe_reading(manifest: Manifest) -> str:
    """Tell how the model is read, and what the other way is for; nothing if there is one only."""
    if not manifest.read:
        return ""
    ways = {
        "prior": "prior: the attention of a word before the model knows which word it is",
        "posterior": "posterior: the same attention, after the word is known (Bayes' rule)",
    }
    others = "".join(
        f"With `--read {name}` ({ways[name]}) the threshold is {other.thresholds.aer:.4g}.\n"
        for name, other in manifest.readings.items()
    )
    return f"Weights are read as {ways[manifest.read]}.\n{others}"


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
    return "With the default dtype and threshold:\n\n" + "\n".join(lines)


def describe_training(manifest: Manifest) -> str:
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
    lines.append(f"- Signature: `{told.get('signature', 'unknown')}`")
    return "\n".join(lines)


def describe_limits(manifest: Manifest) -> str:
    """List what it is not made for: what is so of every such model, and what was told of this."""
    case = "sees words in lower case only" if manifest.tokenizer.lowercase else "minds upper case"
    told = manifest.training.get("limits")
    return f"""\
- Sentences of more than {manifest.max_length} pieces are aligned in windows; links far from the \
diagonal may be missed there.
- It {case}; characters it has not met in training are spelt in bytes and align worse.
- Text unlike its data (another subject, time or tokenisation) gives more errors than stated \
above.""" + (f"\n- {told}" if told else "")
