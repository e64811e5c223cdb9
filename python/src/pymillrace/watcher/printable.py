"""Text of records and names of files, made harmless for a terminal."""
from __future__ import annotations


def printable(text: str) -> str:
    """Returns the text with escapes such as \\u001b in place of characters that a terminal acts on or cannot show."""
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)
