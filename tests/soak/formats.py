"""Small valid files of every format that the program reads, for the campaign to damage."""
import io
import random
import struct
import tarfile
import zlib


def pixels(draw, count):
    """Returns noise over a few levels, so that coders have something to do."""
    return bytes(draw.choice((0, 31, 77, 128, 200, 255)) for _ in range(count))


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(draw, width=32, height=32, colour=2, depth=8, exif=False):
    """`colour`: 0 gray, 2 RGB, 3 palette, 4 gray and alpha, 6 RGBA; rows take all five filters."""
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    row = (width * channels * depth + 7) // 8
    rows = b"".join(bytes([y % 5]) + pixels(draw, row) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = [(b"IHDR", header)]
    if exif:
        chunks.append((b"eXIf", tiff_directory([(274, 3, 6)])))
    if colour == 3:
        chunks.append((b"PLTE", pixels(draw, 3 * (1 << depth))))
    chunks += [(b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*chunk) for chunk in chunks)


def bmp(draw, width=32, height=32, bits=24, top_down=False):
    palette = pixels(draw, 4 << bits) if bits <= 8 else b""
    row = (width * bits + 31) // 32 * 4
    body = pixels(draw, row * height)
    offset = 54 + len(palette)
    return struct.pack("<2sIHHIIiiHHIIiiII", b"BM", offset + len(body), 0, 0, offset, 40, width,
                       -height if top_down else height, 1, bits, 0, len(body), 2835, 2835,
                       0, 0) + palette + body


def tiff_directory(entries, order="<", at=8, behind=b""):
    """Returns a TIFF with one directory of (tag, type, value): 3 is a 16-bit number, 4 a 32-bit one."""
    mark = b"II" if order == "<" else b"MM"
    text = mark + struct.pack(order + "HI", 42, at) + behind
    text += bytes(at - len(text)) + struct.pack(order + "H", len(entries))
    for tag, kind, value in sorted(entries):
        packed = struct.pack(order + "H2x" if kind == 3 else order + "I", value)
        text += struct.pack(order + "HHI", tag, kind, 1) + packed
    return text + bytes(4)


def tiff(draw, width=32, height=32, channels=3, order="<", packing=1, orientation=1):
    """`packing`: 1 none, 8 deflate."""
    body = pixels(draw, width * height * channels)
    if packing == 8:
        body = zlib.compress(body)
    entries = [(256, 4, width), (257, 4, height), (258, 3, 8), (259, 3, packing),
               (262, 3, 2 if channels == 3 else 1), (273, 4, 8), (274, 3, orientation),
               (277, 3, channels), (278, 4, height), (279, 4, len(body)), (284, 3, 1)]
    return tiff_directory(entries, order, (8 + len(body) + 1) // 2 * 2, body)


class Bits:
    """Packs bits from the lowest on, as WebP's lossless form does."""

    def __init__(self):
        self.value = self.count = 0

    def put(self, value, count):
        self.value |= value << self.count
        self.count += count

    def code(self, symbol):
        """Returns a symbol of 8 bits in a prefix code whose symbols all have 8."""
        self.put(int(f"{symbol:08b}"[::-1], 2), 8)

    def bytes(self):
        return self.value.to_bytes((self.count + 7) // 8, "little")


def webp_chunk(kind, data):
    return kind + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def webp_lossless(draw, width, height):
    """Returns a VP8L chunk: literal pixels, 8 bits for each of green, red and blue, alpha 255."""
    bits = Bits()
    bits.put(0x2f, 8)
    bits.put(width - 1, 14)
    bits.put(height - 1, 14)
    bits.put(0, 1 + 3 + 1 + 1 + 1)  # no alpha, version 0; no transform, colour cache, meta codes
    for symbols in (280, 256, 256):
        bits.put(0, 1)               # coded lengths of codes follow:
        bits.put(12 - 4, 4)          # twelve lengths, in the order 17 18 0 1 2 3 4 5 16 6 7 8
        for symbol in (17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8):
            bits.put(symbol in (0, 8), 3)
        bits.put(0, 1)               # for all symbols: 8 for the first 256, 0 for the rest
        bits.put((1 << 256) - 1, symbols)
    bits.put(0b1, 1)                 # alpha: a simple code of one symbol of 8 bits
    bits.put(0b10, 2)
    bits.put(255, 8)
    bits.put(0b0001, 4)              # distances: one symbol of 1 bit
    for byte in pixels(draw, 3 * width * height):
        bits.code(byte)
    return webp_chunk(b"VP8L", bits.bytes())


def webp(draw, width=32, height=32, extended=False):
    body = webp_lossless(draw, width, height)
    if extended:
        size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
        body = webp_chunk(b"VP8X", b"\x08\0\0\0" + size) + body
        body += webp_chunk(b"EXIF", tiff_directory([(274, 3, 5)]))
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


# One pixel, lossy.
WEBP_LOSSY = bytes.fromhex("52494646220000005745425056503820160000003001009d012a0100010"
                           "00ec0fe25a400037000000000")


def idx_images(draw, count=5, side=8):
    return struct.pack(">IIII", 0x803, count, side, side) + pixels(draw, count * side * side)


def idx_labels(count=5):
    return struct.pack(">II", 0x801, count) + bytes(i % 5 for i in range(count))


def cifar(draw, count=3):
    return b"".join(bytes([draw.randrange(10)]) + pixels(draw, 3072) for _ in range(count))


def tar(members, form=tarfile.PAX_FORMAT):
    """Returns an archive of (name, bytes) pairs."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def write_idx_set(folder, train=200, test=60, classes=10, side=28):
    """Writes a small set that a model can learn: each class has a pattern of bright blocks."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", train), ("t10k", test)):
        draw = random.Random(count)
        images = bytearray()
        for i in range(count):
            bright = random.Random(100 + i % classes).getrandbits(16)
            for y in range(side):
                for x in range(side):
                    block = y * 4 // side * 4 + x * 4 // side
                    images.append((160 if bright >> block & 1 else 0) + draw.randrange(96))
        labels = bytes(i % classes for i in range(count))
        (folder / f"{name}-images-idx3-ubyte").write_bytes(
            struct.pack(">IIII", 0x803, count, side, side) + images)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(
            struct.pack(">II", 0x801, count) + labels)
    return folder


def write_image_set(folder, classes=3, train=40, test=12, damaged=5):
    """Writes BMPs of 32x32 in class folders, some of the training ones truncated."""
    draw = random.Random(7)
    for split, count in (("train", train), ("test", test)):
        for label in range(classes):
            target = folder / split / f"class-{label}"
            target.mkdir(parents=True, exist_ok=True)
            for i in range(count):
                (target / f"{i:03}.bmp").write_bytes(bmp(draw))
    for label in range(classes):
        for i in range(0, train, train // damaged):
            file = folder / "train" / f"class-{label}" / f"{i:03}.bmp"
            file.write_bytes(file.read_bytes()[:200])
    return folder


IMAGES = {
    "png": lambda draw: [
        png(draw), png(draw, 31, 9, 0), png(draw, 16, 16, 3), png(draw, 17, 5, 3, 2),
        png(draw, 8, 8, 4), png(draw, 9, 11, 6), png(draw, 7, 7, 2, 16), png(draw, 20, 10, 0, 1),
        png(draw, 12, 20, exif=True)],
    "bmp": lambda draw: [
        bmp(draw), bmp(draw, 17, 9, 8), bmp(draw, 9, 5, 4), bmp(draw, 20, 3, 1),
        bmp(draw, 16, 16, 32), bmp(draw, 13, 8, 16), bmp(draw, 10, 10, 24, True)],
    "tiff": lambda draw: [
        tiff(draw), tiff(draw, 9, 7, 1), tiff(draw, 16, 8, 3, ">"), tiff(draw, 10, 12, 3, "<", 8),
        tiff(draw, 8, 20, 1, ">", 8), tiff(draw, 12, 6, 3, "<", 1, 6)],
    "webp": lambda draw: [
        webp(draw), webp(draw, 7, 5), webp(draw, 16, 24, True), WEBP_LOSSY],
}

# Words that occur in these formats.
TOKENS = {
    "jpeg": [bytes([0xff, marker]) for marker in
             (0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc9, 0xca, 0xcc, 0xd0, 0xd8, 0xd9, 0xda, 0xdb, 0xdc,
              0xdd, 0xe0, 0xe1, 0xee, 0xfe)] + [b"Adobe", b"JFIF", b"Exif\0\0"],
    "png": [b"IHDR", b"PLTE", b"IDAT", b"IEND", b"eXIf", b"tRNS", b"iCCP", b"acTL"],
    "bmp": [b"BM", struct.pack("<I", 124), struct.pack("<I", 12), struct.pack("<I", 3)],
    "tiff": [b"II*\0", b"MM\0*", struct.pack("<H", 256), struct.pack("<H", 322),
             struct.pack("<H", 5), struct.pack("<H", 6), struct.pack("<H", 7)],
    "webp": [b"VP8 ", b"VP8L", b"VP8X", b"EXIF", b"ANIM", b"ANMF", b"ALPH", b"RIFF", b"WEBP"],
}
