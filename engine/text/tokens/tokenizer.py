"""Split raw text into words and marks, each with its place in the line.

Letters, numbers and marks hold together, everything else stands alone; then there are things that
hold together though they do not look like words, such as addresses and emoji, and words that are
two, such as `l'eau` and `don't`. No character is lost but blanks of every kind, controls and
byte-order marks. Does not split words into pieces (`pieces`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache

from ...types import Span
from . import dictionary_words

# Scripts written without spaces. Han and Hiragana are split at each character, Katakana is kept in
# runs because it spells foreign words; South-East Asian scripts are split by a dictionary.
_SINGLE = (
    "\u3041-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u3005-\u3007\u3021-\u3029\u3105-\u312f\u31a0-\u31bf"
)
_KATAKANA = "\u30a1-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_SYLLABLES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f"
UNSPACED = _SINGLE + _KATAKANA + _SYLLABLES
_BLANKS = r"\s\x00-\x1f\x7f-\x9f\ufeff"

# ---- what holds together ----

_EMOJI = "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u2bff\u3030\u303d\u3297\u3299"
_EMOJI += "\U0001f000-\U0001faff]"
_SKIN = "[\U0001f3fb-\U0001f3ff]"
_FACE = f"{_EMOJI}\ufe0f?{_SKIN}?"
_DOMAINS = "com|org|net|edu|gov|int|info|io|eu|uk|de|fr|nl|pl|ru|jp|cn|br|ch|se|cz|hu|ca|au"
_FILES = "txt|pdf|html?|xml|json|csv|py|js|css|exe|zip|gz|png|jpe?g|gif|mp[34]|docx?|xlsx?"
_UNIT = "[kcmdµ]?(?:m|g|l|W|Wh|B|b|bit)[²³23]?|h|s|min|kg|d"
_SPECIAL = "|".join(
    (
        # Addresses, without the marks of the sentence that ends there.
        r"(?:https?|ftp)://[^\s<>\"]*[^\s<>\"'.,;:!?)\]}»”’…]",
        r"(?<!\w)www\.[\w-]+\.[^\s<>\"]*[^\s<>\"'.,;:!?)\]}»”’…]",
        r"(?<![\w.])[\w.+-]*\w@[\w-]+(?:\.[\w-]+)*\.\w{2,}",
        rf"(?<![\w.])[\w-]+(?:\.[\w-]+)*\.(?:{_DOMAINS}|{_FILES})(?:/[\w/#?=&%.~-]*[\w/])?(?![\w.@])",
        # Hashtags and mentions; `# 5` and `#5` have no letter.
        r"(?<![\w&])[#@](?=\d*[^\W\d])\w+",
        # Tags, and the parts of those that have blanks in them: words never have.
        r"</?[A-Za-z][\w:.-]*/?>",
        r"<[A-Za-z][\w:.-]*(?=\s[^<>]*>)",
        r"(?<=\s)[\w:.-]+=(?:\"[^\"\s<>]*\"|'[^'\s<>]*')(?:/?>|(?=\s[^<>]*>))",
        r"&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z]+\d*);",
        # What programs fill in: {0}, {{name}}, %(name)s, %1$s.
        r"\{\{?[\w.]*\}?\}|%\(\w+\)[sd]|%(?:\d+\$)?[sd](?!\w)",
        # Emoji: flags, keycaps, families joined by ZWJ, skin tones, tag sequences.
        "[\U0001f1e6-\U0001f1ff]{2}|[0-9#*]\ufe0f?\u20e3",
        f"{_FACE}(?:\u200d{_FACE})*[\U000e0020-\U000e007f]*",
        # e.g. U.S. z.B. f.eks. Ph.D.; degrees, and speeds.
        r"(?<![\w.@-])[^\W\d_]{1,2}(?:\.[^\W\d_]{1,3})+\.(?![\w@])",
        r"°[CF](?!\w)",
        rf"(?<![^\W\d])(?:{_UNIT})/(?:{_UNIT})(?!\w)",
        "``|''",
    )
)
# A line without any of these has none of them: it is the first look that must be fast.
_TRIGGERS = re.compile(
    "[@#<&{%°/]|\\.\\w|``|''|[\u203c-\u2049\u2122-\u2bff\u3030-\u303d\u3297-\u3299\u20e3"
    "\U0001f000-\U0001faff\u00a9\u00ae]"
)


def find_word_spans(line: str, language: str | None = None) -> list[Span]:
    """Return where the words of a line of raw text stand, as `tokenize_line` splits it."""
    words = _word_pattern()
    if _TRIGGERS.search(line) is None:
        spans = [found.span() for found in words.finditer(line)]
    else:
        spans, place = [], 0
        for special in _special_pattern().finditer(line):
            start, end = special.span()
            spans += [found.span() for found in words.finditer(line, place, start)]
            spans.append((start, end))
            place = end
        spans += [found.span() for found in words.finditer(line, place)]
    if "'" in line or "\u2019" in line:
        spans = list(_split_clitics(line, spans, _base_language(language)))
    # A dot at the very end closes the sentence, whatever it follows.
    if ". " in line or ".," in line or ".)" in line:
        spans = list(_join_abbreviations(line, spans, _base_language(language)))
    if not line.isascii() and _syllable_pattern().search(line):
        spans = list(_split_syllables(line, spans))
    return spans


def tokenize_line(line: str, language: str | None = None) -> list[str]:
    """Return the words and punctuation marks of a line of raw text.

    Words never contain blanks, so the tokenised line, joined by spaces, says the same to every
    other tool. With a language, such as "fr", what languages do differently is done its way.
    """
    return [line[start:end] for start, end in find_word_spans(line, language)]


@cache
def _special_pattern() -> re.Pattern[str]:
    return re.compile(_SPECIAL)


@cache
def _syllable_pattern() -> re.Pattern[str]:
    return re.compile(f"[{_SYLLABLES}][{_find_marks()}\u200c\u200d]*")


@cache
def _word_pattern() -> re.Pattern[str]:
    """Build the pattern when first used: finding the combining marks takes some milliseconds."""
    inner = f"[{_find_marks()}\u200c\u200d]*"  # marks and the two joiners stay with their letter
    letter = rf"(?:[^\W_{UNSPACED}]{inner})"
    # Don't, well-known; 1,000.50 and 12:30.
    joint = r"(?:['\u2019\u2010\u00b7-]|(?<=\d)[.,:/](?=\d)|(?<=\w)\u2013(?=\w))"
    return re.compile(
        f"{letter}+(?:{joint}{letter}+)*"
        f"|[{_SINGLE}]{inner}"
        f"|(?:[{_KATAKANA}]{inner})+"
        f"|(?:[{_SYLLABLES}]{inner})+"
        rf"|\.\.+|--+|[^{_BLANKS}]{inner}"
    )


@cache
def _find_marks() -> str:
    """Return the combining marks as the inside of a character class; all lie in two ranges."""
    ranges: list[list[int]] = []
    for first, end in ((0x300, 0x1F000), (0xE0100, 0xE01F0)):
        category = unicodedata.category
        for code in range(first, end):
            if category(chr(code))[0] == "M":
                if ranges and ranges[-1][1] == code - 1:
                    ranges[-1][1] = code
                else:
                    ranges.append([code, code])
    return "".join(f"\\U{start:08x}-\\U{end:08x}" for start, end in ranges)


def _base_language(language: str | None) -> str | None:
    """Return the first part of a code: "pt" of "pt_BR"."""
    return None if language is None else re.split("[-_]", language.lower())[0]


def _list_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# ---- words that are two ----

# What loses its vowel before a word that begins with one: French, Italian, Catalan, Occitan.
_ELIDED = _list_words(
    "l d j m t s c n qu jusqu lorsqu puisqu quoiqu dell all nell sull dall coll un quest quell "
    "sant tutt mezz com dov cos v gl anch senz degl agl negl sugl dagl po"
)
_ELIDING = _list_words("fr it ca oc wa co sc vec lij fur scn pms frp rm lb en")
_ENGLISH = re.compile("(?i)(?<=[a-z])(?:n['\u2019]t|['\u2019](?:s|re|ve|ll|d|m))$")
_FREE_CLITIC = re.compile("(?i)['\u2019](?:s|re|ve|ll|d|m|t)$")


def _split_clitics(line: str, spans: Sequence[Span], language: str | None) -> Iterator[Span]:
    """Split l'eau into l' and eau, don't into do and n't, it's into it and 's.

    Where clitics stand alone already, as in tokenised text, their apostrophe joins them.
    """
    elides = language is None or language in _ELIDING
    english = language is None or language == "en"
    place, last = 0, len(spans)
    while place < last:
        start, end = spans[place]
        place += 1
        word = line[start:end]
        if word in ("'", "\u2019"):
            before = line[start - 1 : start]
            following = spans[place] if place < last else (0, 0)
            free = english and following[0] == end and before in ("", " ")
            if free and _FREE_CLITIC.match(line[start : following[1]]):
                end = following[1]
                place += 1
            yield start, end
            continue
        free = elides and line[end : end + 2] in ("' ", "\u2019 ") and word.lower() in _ELIDED
        if free and line[start - 1 : start] not in ("'", "\u2019"):
            yield start, end + 1
            place += 1
            continue
        if "'" not in word and "\u2019" not in word:
            yield start, end
            continue
        if english and (found := _ENGLISH.search(word)):
            yield start, start + found.start()
            yield start + found.start(), end
            continue
        head = re.match("[^'\u2019]+['\u2019]", word)
        while elides and head and head.group()[:-1].lower() in _ELIDED and head.end() < end - start:
            yield start, start + head.end()
            start += head.end()
            head = re.match("[^'\u2019]+['\u2019]", line[start:end])
        yield start, end


# ---- words with a dot ----

# Shortened words that keep their dot before any word.
_SHORTENED = _list_words(
    "mr mrs ms dr prof sr sra jr st gen col capt lt sgt rev hon gov sen rep pres messrs mt ft vs "
    "etc inc ltd corp co bros dept est approx jan feb apr jun jul aug sep sept oct nov dec mm mme "
    "mlle mgr av bd env cf ing arch avv dott sig gent str bzw ca usw evtl ggf inkl zzgl dña ud uds "
    "avda exmo gral bl bijv enz dhr mevr drs osv kl jf nr tzv tj např resp tzn mj napr npr oz itd "
    "itn św ul hab inż др проф акад им ул гр см стр св"
)
# These are words of their own unless a number follows.
_BEFORE_NUMBERS = _list_words(
    "no nos nr art abs p pp s vol fig figs sec ch cap pag pág págs núm n fol tab abb bd kap ст рис "
    "табл č čl str"
)
# Languages whose ordinals stand before capitals too: `17. Dezember`.
_CAPITAL_ORDINALS = frozenset(("de", "lb", "hsb", "dsb"))


def _join_abbreviations(line: str, spans: Sequence[Span], language: str | None) -> Iterator[Span]:
    """Give the dot to shortened words, initials and ordinals if the line goes on after it."""
    place, last = 0, len(spans)
    while place < last:
        start, end = spans[place]
        place += 1
        if place < last - 1 and spans[place] == (end, end + 1) and line[end] == ".":
            following = line[spans[place + 1][0] : spans[place + 1][1]]
            if _takes_dot(line[start:end], following, language) and not (
                start and line[start - 1] in "'\u2019-"
            ):
                end += 1
                place += 1
        yield start, end


def _takes_dot(word: str, following: str, language: str | None) -> bool:
    """Tell whether the dot after a word belongs to it, by the word that comes next."""
    first = following[0]
    if word.isdecimal():
        capital = language in _CAPITAL_ORDINALS and len(word) < 3 and first.isupper()
        return len(word) < 5 and (first.islower() or capital)
    if len(word) == 1 and word.isalpha() and word.isupper():
        # `I.` and `A.` may end a sentence; an initial goes before a name.
        return first.isupper() and word not in "I"
    lowered = word.lower()
    if lowered in _BEFORE_NUMBERS and first.isdecimal():
        return True
    if lowered in _SHORTENED:
        return first.isalnum() or first in "(,"
    # No sentence begins with a small letter: the word before a dot was cut short.
    return len(word) < 5 and word.isalpha() and first.islower()


# ---- scripts without spaces ----


def _split_syllables(line: str, spans: Sequence[Span]) -> Iterator[Span]:
    """Split runs of Thai, Lao, Khmer and Burmese by dictionary, or at each syllable's start."""
    for start, end in spans:
        if _syllable_pattern().match(line, start) is None:
            yield start, end
            continue
        found = dictionary_words.find_breaks(line[start:end])
        if found is None:
            yield from (part.span() for part in _syllable_pattern().finditer(line, start, end))
        else:
            yield from ((start + a, start + b) for a, b in found)
