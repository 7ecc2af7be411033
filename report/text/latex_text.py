r"""Text in LaTeX: every character as itself, in any engine, whatever a name holds."""

import re
import unicodedata

from .console import printable

_ESCAPED = {character: f"\\{character}" for character in "&%$#_{}"}
_ESCAPED |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}"}
_ESCAPED |= {"<": r"\textless{}", ">": r"\textgreater{}"}
_ESCAPED |= {'"': r"\char34{}"}  # bare it is a command in some languages of babel
# What pdfLaTeX sets without a package, in the fonts that it begins with; tried, each of them.
_LATIN = {chr(code) for code in range(0xA1, 0x17F)} - set("\xad«»ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲų")
_PLAIN = _LATIN | {chr(code) for code in (0x2013, 0x2014, 0x2018, 0x2019, 0x201C, 0x201D, 0x2026)}
# Two characters that fonts make one of: a dash, a quotation mark, a question mark upside down.
_LIGATURES = re.compile(r"([-'`,])(?=\1)|[?!](?=`)")
# All others: pdfLaTeX stops at them, so it gets their number. A paper that can set them may define the command first.
CHARACTER = r"\providecommand{\davylampchar}[2]{\ifdefined\Umathcode #1\else{\scriptsize U+#2}\fi}"
NEEDS_FONT = (
    r"pdfLaTeX shows characters as U+...: LuaLaTeX or XeLaTeX with a font that has them shows them, or define "
    r"\davylampchar, which takes a character and its number"
)


class Tex(str):
    """A text that is LaTeX already."""

    __slots__ = ()


def escape(text: str) -> str:
    """The text so that TeX prints it, in one line."""
    if isinstance(text, Tex):
        return str(text)
    plain = unicodedata.normalize("NFC", printable(" ".join(text.split())))
    return "".join(_set(character) for character in _LIGATURES.sub("\\g<0>\0", plain))


def has_characters(text: str) -> bool:
    """Whether a LaTeX text needs `CHARACTER`."""
    return r"\davylampchar{" in text


def _set(character: str) -> str:
    if character == "\0":
        return "{}"
    if character.isascii() or character in _PLAIN:
        return _ESCAPED.get(character, character)
    return rf"\davylampchar{{{character}}}{{{ord(character):04X}}}"
