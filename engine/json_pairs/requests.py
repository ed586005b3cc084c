"""Read what is asked: a sentence pair as a JSON object, with an id of the asker's.

Does not align.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, NoReturn

from ..errors import InputError
from ..types import Words

EXAMPLE = '{"id": 1, "src": "das Haus", "tgt": "the house"}'
# Characters of a sentence. What is longer is no sentence: a page of a book has 2,000 to 3,000.
MAX_CHARS = 100_000
Sentence = str | Words  # a line, or its words


@dataclass(frozen=True)
class PairRequest:
    """A pair to align; `id` is any JSON value, `has_id` whether there was one."""

    src: Sentence
    tgt: Sentence
    id: Any = None
    has_id: bool = False

    @property
    def kinds(self) -> tuple[bool, bool]:
        """Whether each side is a line, not words."""
        return isinstance(self.src, str), isinstance(self.tgt, str)


def parse_json(text: bytes | str) -> Any:
    """Return the value of JSON text; InputError says what is wrong and where."""
    try:
        line = text if isinstance(text, str) else text.decode("utf-8")
        return json.loads(line, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 at byte {error.start + 1}; send JSON as UTF-8") from None
    except RecursionError:
        raise InputError("not JSON: nested too deeply") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, character {error.colno}"
        raise InputError(f"not JSON at {place}: {error.msg}") from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"not JSON: {error}") from None


def parse_pair(value: Any) -> PairRequest:
    """Return the pair of an object; keys that are not ours are left alone."""
    if not isinstance(value, dict):
        raise InputError(f"a pair must be an object like {EXAMPLE}, not {_show(value)}")
    sides = [_parse_sentence(value, name) for name in ("src", "tgt")]
    return PairRequest(sides[0], sides[1], value.get("id"), "id" in value)


def _parse_sentence(value: dict[str, Any], name: str) -> Sentence:
    """Return a side: a line, or a list of words that have characters."""
    if name not in value:
        raise InputError(f'a pair must have "{name}", as in {EXAMPLE}; found {_show(list(value))}')
    side: Any = value[name]
    if isinstance(side, str):
        length = len(side)
    elif isinstance(side, list) and all(isinstance(word, str) and word for word in side):
        length = sum(map(len, side))
    else:
        raise InputError(f'"{name}" must be a string or a list of words, not {_show(side)}')
    try:
        "".join(side).encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(
            f'"{name}" has half of a surrogate pair, which is no character; send both or none'
        ) from None
    if length > MAX_CHARS:
        raise InputError(
            f'"{name}" has {length:,} characters, more than {MAX_CHARS:,}: split it into sentences'
        )
    sentence: Sentence = side
    return sentence


def _show(value: Any) -> str:
    """Return the start of a value as JSON."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def parse_number(value: Any, name: str, low: float, high: float) -> float:
    """Return a number above `low` and up to `high`."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not low < value <= high:
        raise InputError(
            f'"{name}" must be a number above {low:g} and up to {high:g}, not {value!r}'
        )
    return float(value)
