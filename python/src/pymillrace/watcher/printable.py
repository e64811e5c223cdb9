"""Text of records and names of files, made harmless for a terminal."""
from __future__ import annotations

import re

# Characters that a terminal acts on, as in base/text.cpp, and surrogates, which stand for bytes that are not UTF-8.
_OBEYED = re.compile("[\0-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NAMED = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}


def printable(text: str) -> str:
    """Returns a text on one line without characters that a terminal acts on."""
    return _OBEYED.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xdc80 <= code <= 0xdcff:  # a byte of a file's name that is no UTF-8
        return f"\\x{code - 0xdc00:02x}"
    return _NAMED.get(found[0], f"\\u{code:04x}")
