"""Times as people write and read them: 30s, 5m; 1 min 25 s."""
from __future__ import annotations

import argparse
import re

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(text: str) -> float:
    """Returns the seconds of a time such as 30s, 5m or 1.5h, for argparse."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", text)
    time = float(found[1]) * UNITS[found[2]] if found else 0.0
    if time < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time of at least a second; write for example 30s or 5m")
    return time


def text_of(seconds: float) -> str:
    """Returns a time in its two largest units, such as 1 min 25 s."""
    whole = round(seconds)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes == 0:
        return f"{whole} s"
    if hours == 0:
        return f"{minutes} min {whole % 60} s"
    return f"{hours} h {minutes % 60} min" if days == 0 else f"{days} d {hours % 24} h"
