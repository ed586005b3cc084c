"""Languages by any name that people use: `en`, `eng`, `EN`, `pt_BR`, `english`; and in file names.

A small table of ISO 639-1 with the three-letter codes and English names. Knows nothing of models.
"""

from __future__ import annotations

import difflib
import os
import re
from functools import cache

from ..errors import MxError

# ISO 639-1 code, ISO 639-3 code, English name.
_TABLE = """
aa aar Afar, ab abk Abkhazian, ae ave Avestan, af afr Afrikaans, ak aka Akan, am amh Amharic,
an arg Aragonese, ar ara Arabic, as asm Assamese, av ava Avaric, ay aym Aymara,
az aze Azerbaijani, ba bak Bashkir, be bel Belarusian, bg bul Bulgarian, bi bis Bislama,
bm bam Bambara, bn ben Bengali, bo bod Tibetan, br bre Breton, bs bos Bosnian, ca cat Catalan,
ce che Chechen, ch cha Chamorro, co cos Corsican, cr cre Cree, cs ces Czech,
cu chu Church Slavic, cv chv Chuvash, cy cym Welsh, da dan Danish, de deu German,
dv div Dhivehi, dz dzo Dzongkha, ee ewe Ewe, el ell Greek, en eng English, eo epo Esperanto,
es spa Spanish, et est Estonian, eu eus Basque, fa fas Persian, ff ful Fulah, fi fin Finnish,
fj fij Fijian, fo fao Faroese, fr fra French, fy fry Frisian, ga gle Irish,
gd gla Scottish Gaelic, gl glg Galician, gn grn Guarani, gu guj Gujarati, gv glv Manx,
ha hau Hausa, he heb Hebrew, hi hin Hindi, ho hmo Hiri Motu, hr hrv Croatian,
ht hat Haitian Creole, hu hun Hungarian, hy hye Armenian, hz her Herero, ia ina Interlingua,
id ind Indonesian, ie ile Interlingue, ig ibo Igbo, ii iii Sichuan Yi, ik ipk Inupiaq,
io ido Ido, is isl Icelandic, it ita Italian, iu iku Inuktitut, ja jpn Japanese,
jv jav Javanese, ka kat Georgian, kg kon Kongo, ki kik Kikuyu, kj kua Kuanyama, kk kaz Kazakh,
kl kal Greenlandic, km khm Khmer, kn kan Kannada, ko kor Korean, kr kau Kanuri,
ks kas Kashmiri, ku kur Kurdish, kv kom Komi, kw cor Cornish, ky kir Kyrgyz, la lat Latin,
lb ltz Luxembourgish, lg lug Ganda, li lim Limburgan, ln lin Lingala, lo lao Lao,
lt lit Lithuanian, lu lub Luba-Katanga, lv lav Latvian, mg mlg Malagasy, mh mah Marshallese,
mi mri Maori, mk mkd Macedonian, ml mal Malayalam, mn mon Mongolian, mr mar Marathi,
ms msa Malay, mt mlt Maltese, my mya Burmese, na nau Nauru, nb nob Norwegian Bokmål,
nd nde North Ndebele, ne nep Nepali, ng ndo Ndonga, nl nld Dutch, nn nno Norwegian Nynorsk,
no nor Norwegian, nr nbl South Ndebele, nv nav Navajo, ny nya Chichewa, oc oci Occitan,
oj oji Ojibwa, om orm Oromo, or ori Odia, os oss Ossetian, pa pan Punjabi, pi pli Pali,
pl pol Polish, ps pus Pashto, pt por Portuguese, qu que Quechua, rm roh Romansh, rn run Rundi,
ro ron Romanian, ru rus Russian, rw kin Kinyarwanda, sa san Sanskrit, sc srd Sardinian,
sd snd Sindhi, se sme Northern Sami, sg sag Sango, sh hbs Serbo-Croatian, si sin Sinhala,
sk slk Slovak, sl slv Slovenian, sm smo Samoan, sn sna Shona, so som Somali, sq sqi Albanian,
sr srp Serbian, ss ssw Swati, st sot Southern Sotho, su sun Sundanese, sv swe Swedish,
sw swa Swahili, ta tam Tamil, te tel Telugu, tg tgk Tajik, th tha Thai, ti tir Tigrinya,
tk tuk Turkmen, tl tgl Tagalog, tn tsn Tswana, to ton Tongan, tr tur Turkish, ts tso Tsonga,
tt tat Tatar, tw twi Twi, ty tah Tahitian, ug uig Uyghur, uk ukr Ukrainian, ur urd Urdu,
uz uzb Uzbek, ve ven Venda, vi vie Vietnamese, vo vol Volapük, wa wln Walloon, wo wol Wolof,
xh xho Xhosa, yi yid Yiddish, yo yor Yoruba, za zha Zhuang, zh zho Chinese, zu zul Zulu
"""
# Other three-letter codes (bibliographic ones, single languages of a macrolanguage) and names.
_ALIASES = """
alb sq, arm hy, baq eu, bur my, chi zh, cze cs, dut nl, fre fr, geo ka, ger de, gre el, ice is,
mac mk, mao mi, may ms, per fa, rum ro, slo sk, tib bo, wel cy, arb ar, azj az, cmn zh, ekk et,
als sq, fil tl, gug gn, kmr ku, khk mn, lvs lv, npi ne, nob nb, no nb, nor nb, ory or, pbt ps,
pes fa, plt mg, quy qu, swh sw, uzn uz, ydd yi, zsm ms, zhs zh, zht zh, iw he, in id, ji yi,
mo ro, bangla bn, bokmal nb, castilian es, farsi fa, filipino tl, flemish nl, mandarin zh,
moldavian ro, norwegian nb, nynorsk nn, slovene sl, valencian ca
"""
# Endings of file names that are no languages, though codes of that spelling exist.
_PACKED = {"gz", "zst", "txt", "tok"}
# Words inside a name that are codes, too, but mean something else there far more often.
_COMMON_WORDS = {"to", "in", "is", "no", "or", "as", "my", "so", "an", "he", "el", "la", "sh", "se"}
_TAG = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")
# pt_BR, zh-Hans, zh_Hant_TW
_REGIONAL = re.compile(r"[a-z]{2,3}(?:[-_][A-Z][a-z]{3}(?:[-_][A-Z]{2})?|[-_][A-Z]{2})")


@cache
def _known_names() -> dict[str, str]:
    """Return the code of every name, all in lower case."""
    names: dict[str, str] = {}
    for row in _TABLE.replace("\n", " ").split(", "):
        code, long_code, name = row.strip().split(" ", 2)
        names |= {code: code, long_code: code, name.lower(): code}
    for row in _ALIASES.replace("\n", " ").split(", "):
        name, code = row.split()
        names[name] = code
    return names


def parse_language(text: str) -> str:
    """Return the code of a language: ISO 639-1 if it has one, else three letters.

    A region or script is left out: `pt_BR` is `pt`. Raises MxError with the nearest names if there
    is no such language.
    """
    names = _known_names()
    asked = text.strip().lower()
    if asked in names:
        return names[asked]
    if _TAG.fullmatch(asked):
        first = re.split("[-_]", asked)[0]
        if first in names:
            return names[first]
        if len(first) == 3:  # there are over 7,000: any may be meant
            return first
    near = difflib.get_close_matches(asked, names, n=3, cutoff=0.6)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise MxError(f"there is no language {text!r}{hint}; give codes such as en, deu or pt_BR")


def parse_language_pair(text: str) -> tuple[str, str]:
    """Return the two codes of `de-en`, `EN_FR`, `deu-eng`, `pt_BR-en`, `english-french`.

    Between them may stand any of `- _ , > / :` or a blank.
    """
    asked = text.strip()
    found: list[tuple[int, tuple[str, str]]] = []
    error = None
    for place in re.finditer(r"\s*(?:->|[-_,>/:\s])\s*", asked):
        sides = asked[: place.start()], asked[place.end() :]
        try:
            pair = parse_language(sides[0]), parse_language(sides[1])
        except MxError as problem:
            error = error or problem
        else:
            # pt-BR-en may be parted in two places; a region is written in capitals.
            found.append((sum(bool(_REGIONAL.fullmatch(side)) for side in sides), pair))
    if not found:
        raise error or MxError(
            f"the languages must be two, such as de-en or german-english, not {text!r}"
        )
    best = max(n_regions for n_regions, _ in found)
    pairs = list(dict.fromkeys(pair for n_regions, pair in found if n_regions == best))
    if len(pairs) > 1:
        raise MxError(
            f"the languages {text!r} may be {' or '.join(map('-'.join, pairs))}; write it so"
        )
    return pairs[0]


def guess_language(path: str) -> str | None:
    """Return the language that a file's name ends with, or begins with: corpus.en.gz, en.txt.

    Only what is written like a code or a name of the table counts; else None.
    """
    parts = os.path.basename(path).split(".")
    while len(parts) > 1 and parts[-1].lower() in _PACKED:
        parts.pop()
    if _REGIONAL.fullmatch(parts[-1]):
        return _known_names().get(re.split("[-_]", parts[-1])[0].lower())
    words = [word for part in parts for word in re.split("[-_]", part.lower()) if word]
    names = _known_names()
    # The ending is a language if anything is: `no` and `he` are in news.no and bible.he.
    if parts[-1].lower() in names:
        return names[parts[-1].lower()]
    found = [word for word in words if word in names and len(word) <= 3]
    codes = {names[word] for word in found if word not in _COMMON_WORDS}
    return codes.pop() if len(codes) == 1 else None


def guess_pair(src: str, tgt: str | None) -> tuple[str, str] | None:
    """Return the languages that two file names tell, None unless both do and they differ."""
    if tgt is None:
        return None
    pair = guess_language(src), guess_language(tgt)
    return (pair[0], pair[1]) if pair[0] and pair[1] and pair[0] != pair[1] else None
