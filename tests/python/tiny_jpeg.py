"""Writes gray images as baseline JPEG files, without loss but for rounding."""
import struct

import numpy as np

ORDER = sorted(((y, x) for y in range(8) for x in range(8)),
               key=lambda at: (sum(at), at[0] if sum(at) % 2 else at[1]))  # zigzag
COSINES = np.array([[(np.sqrt(1 / 8) if u == 0 else 0.5) * np.cos((2 * x + 1) * u * np.pi / 16) for x in range(8)]
                    for u in range(8)])
# Every code of a table is equally long, so that a code is its symbol's index.
DC = list(range(12))  # codes of 4 bits
AC = [run << 4 | size for run in range(16) for size in range(11)]  # codes of 8 bits


def _segment(marker, data):
    return struct.pack(">HH", marker, len(data) + 2) + data


def _table(kind, length, symbols):
    counts = [0] * 16
    counts[length - 1] = len(symbols)
    return _segment(0xFFC4, bytes([kind << 4, *counts, *symbols]))


def _bits_of(value):
    """Returns a coefficient's size and its bits as JPEG writes them."""
    size = int(abs(value)).bit_length()
    return size, format(value if value > 0 else value + (1 << size) - 1, f"0{size}b") if size else ""


def encode(levels):
    """Returns the file of an array of height x width levels, uint8."""
    height, width = levels.shape
    padded = np.pad(levels.astype(float), ((0, -height % 8), (0, -width % 8)), "edge") - 128
    bits, before = [], 0
    for top in range(0, padded.shape[0], 8):
        for left in range(0, padded.shape[1], 8):
            block = np.rint(COSINES @ padded[top:top + 8, left:left + 8] @ COSINES.T).astype(int)
            numbers = [int(block[at]) for at in ORDER]
            size, text = _bits_of(numbers[0] - before)
            before = numbers[0]
            bits.append(format(size, "04b") + text)
            run = 0
            last = max((i for i in range(1, 64) if numbers[i]), default=0)
            for number in numbers[1:last + 1]:
                if number == 0:
                    run += 1
                    continue
                while run > 15:
                    bits.append(format(AC.index(0xF0), "08b"))
                    run -= 16
                size, text = _bits_of(number)
                bits.append(format(AC.index(run << 4 | size), "08b") + text)
                run = 0
            if last < 63:
                bits.append(format(AC.index(0), "08b"))
    stream = "".join(bits)
    stream += "1" * (-len(stream) % 8)
    scan = int(stream, 2).to_bytes(len(stream) // 8, "big").replace(b"\xff", b"\xff\0")
    return (b"\xff\xd8" + _segment(0xFFDB, bytes([0] + [1] * 64)) +
            _segment(0xFFC0, struct.pack(">BHHB3B", 8, height, width, 1, 1, 0x11, 0)) + _table(0, 4, DC) + _table(1, 8, AC) +
            _segment(0xFFDA, bytes([1, 1, 0, 0, 63, 0])) + scan + b"\xff\xd9")
