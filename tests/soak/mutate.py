"""Damages an input deterministically: the same generator gives the same bytes."""
import struct
import zlib

EDGES = (0, 1, 2, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0x8000, 0xffff, 0x10000, 0x7fffffff, 0x80000000,
         0xffffffff, 0x100000000, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 1)


def mutated(data, draw, tokens=(), others=(), most=1 << 20):
    """Returns `data` with one to eight changes: flipped bits, bytes, numbers, pieces removed, inserted or repeated,
    words of the format (`tokens`), pieces of `others`, truncation."""
    data = bytearray(data)
    for _ in range(1 << draw.randrange(4)):
        change(data, draw, tokens, others)
    return bytes(data[:most])


def place(size, draw):
    """Returns a position in `size` bytes; half of them within headers."""
    return draw.randrange(min(size, 64) if draw.random() < 0.5 else size)


def change(data, draw, tokens, others):
    if not data:
        data.append(draw.randrange(256))
    at = place(len(data), draw)
    length = 1 + draw.randrange(32 if draw.random() < 0.8 else 4096)
    kind = draw.randrange(10)
    if kind == 0:
        data[at] ^= 1 << draw.randrange(8)
    elif kind == 1:
        data[at] = draw.randrange(256)
    elif kind == 2:
        data[at] = (data[at] + draw.choice((-1, 1))) % 256
    elif kind == 3:
        width = 1 << draw.randrange(4)
        number = draw.choice(EDGES) % (1 << 8 * width)
        data[at:at + width] = number.to_bytes(width, draw.choice(("little", "big")))
    elif kind == 4:
        del data[at:]
    elif kind == 5:
        del data[at:at + length]
    elif kind == 6:
        data[at:at] = data[at:at + length] * (1 << draw.randrange(4))
    elif kind == 7 and others:
        other = draw.choice(others)
        start = place(len(other), draw) if other else 0
        put(data, at, other[start:start + length], draw)
    elif kind == 8 and tokens:
        put(data, at, draw.choice(tokens), draw)
    else:
        data[len(data):] = bytes([draw.randrange(256)]) * (1 + draw.randrange(40))


def put(data, at, piece, draw):
    data[at:at if draw.random() < 0.5 else at + len(piece)] = piece


def with_png_sums(data):
    """Returns a PNG with its chunks' checksums corrected, so that damage gets past them."""
    data = bytearray(data)
    at = 8
    while at + 12 <= len(data):
        size = struct.unpack_from(">I", data, at)[0]
        if at + 12 + size > len(data):
            break
        struct.pack_into(">I", data, at + 8 + size, zlib.crc32(data[at + 4:at + 8 + size]))
        at += 12 + size
    return bytes(data)


def with_tar_sums(data):
    """Returns an archive with the checksums of blocks that look like headers corrected."""
    data = bytearray(data)
    for at in range(0, len(data) - 511, 512):
        if data[at + 257:at + 262] == b"ustar":
            data[at + 148:at + 156] = b" " * 8
            data[at + 148:at + 156] = b"%06o\0 " % (sum(data[at:at + 512]) % (1 << 18))
    return bytes(data)


def with_safetensors_length(data):
    """Returns a safetensors file with its header's length corrected."""
    end = data.rfind(b"}", 0, 1 << 16) + 1
    return struct.pack("<Q", max(end - 8, 0)) + data[8:]
