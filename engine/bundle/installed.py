"""Finds the bundle that is meant: a given path, or one that came with the package, by languages."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import BundleError, NoModelError
from .bundle import MODELS, Bundle
from .languages import parse_language_pair

# How else to get a model than by its languages.
_WAYS = "give the path of one, which mx-train and mx-export make"


def installed_models() -> dict[str, Path]:
    """Return the bundles that came with the package: name -> path."""
    return {path.stem: path for path in sorted(MODELS.glob("*.mx"))} if MODELS.is_dir() else {}


def find_bundle(
    model: str | Path | None, langs: str | None, *, flag: str = "langs", ways: str = _WAYS
) -> Bundle:
    """Open the given bundle, or the installed one for these languages.

    Errors name the user's `flag` for the languages, and what other `ways` to a model there are.
    """
    if model is None:
        return Bundle.load(find_installed(langs, flag=flag, ways=ways))
    models = installed_models()
    served = (
        name == str(model) or Bundle.load(m).language_order(str(model))
        for name, m in models.items()
    )
    if not os.path.exists(model) and any(served):
        raise BundleError(
            f"there is no model bundle {model}; check the path, or give {flag} {model} to use an "
            "installed one"
        )
    bundle = Bundle.load(model)
    if langs is not None and langs not in models and not bundle.language_order(langs):
        parse_language_pair(langs)  # other languages are no mistake, if they are any
    return bundle


def find_installed(langs: str | None = None, *, flag: str = "langs", ways: str = _WAYS) -> Path:
    """Return the path of the installed bundle for these languages, in either order.

    Without languages, of the only one there is. Errors are worded as in `find_bundle`.
    """
    bundles = {name: Bundle.load(path) for name, path in installed_models().items()}
    if not bundles:
        raise NoModelError(f"no model was given and none is installed; {ways}")
    # A model for one pair is called by its name, one for several by each of them.
    served = [
        pair
        for name, bundle in bundles.items()
        for pair in (bundle.told_pairs if "+" in "".join(bundle.languages) else [name])
    ]
    several = len(bundles) > 1 or "+" in "".join(next(iter(bundles.values())).languages)
    names = f"{', '.join(served)} (either way round)"
    if langs is None:
        if several:
            raise NoModelError(f"which model? installed: {names}; choose with {flag}, or {ways}")
        return next(iter(bundles.values())).path
    # A model of this very name first, then one for these languages, then one turned round.
    if langs in bundles:
        return bundles[langs].path
    for order in (1, -1):
        found = [
            bundle.path for bundle in bundles.values() if bundle.language_order(langs) == order
        ]
        if len(found) == 1:
            return found[0]
        if found:
            which = ", ".join(path.stem for path in found)
            raise BundleError(f"there are several models for {langs}: {which}; give one's name")
    parse_language_pair(langs)
    raise NoModelError(f"there is no model for {langs}; installed: {names}; {ways}")
