"""Small random pictures, and the parts of files that Pillow does not write."""

import io
import struct
import zlib

from PIL import Image


def picture(choose, mode, side=40):
    """Smooth colours with some noise, so that every codec has something to do."""
    width, height = choose.randint(1, side), choose.randint(1, side)
    slopes = [(choose.uniform(-9, 9), choose.uniform(-9, 9), choose.randrange(256)) for _ in range(4)]
    places = ((x, y) for y in range(height) for x in range(width))
    values = bytes(int(a * x + b * y + c + choose.randrange(12)) & 255 for x, y in places for a, b, c in slopes)
    image = Image.frombytes("RGBA", (width, height), values)
    if mode == "I;16":
        return Image.frombytes("I;16", (width, height), values[: width * height * 2])
    if mode == "P":
        return image.convert("RGB").quantize(choose.choice([2, 5, 16, 200, 256]))
    return image if mode == "RGBA" else image.convert("RGB").convert(mode) if mode != "LA" else image.convert("LA")


def saved(image, format, **options):
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def webp_chunk(kind, payload):
    return kind + struct.pack("<I", len(payload)) + payload + b"\0" * (len(payload) % 2)


def jpeg_with(file, ids=None, coarser=1):
    """A JPEG whose components all have one id, or whose quantization tables are `coarser` than its data."""
    file, at = bytearray(file), 2
    while file[at + 1] != 0xDA:
        kind, length = file[at + 1], struct.unpack_from(">H", file, at + 2)[0]
        if kind == 0xDB:
            for entry in range(at + 5, at + 2 + length):
                if (entry - at - 5) % 65 < 64:
                    file[entry] = min(file[entry] * coarser, 255)
        if kind == 0xC0 and ids is not None:
            file[at + 10 : at + 2 + length : 3] = bytes([ids]) * file[at + 9]
        at += 2 + length
    if ids is not None:
        file[at + 5 : at + 5 + 2 * file[at + 4] : 2] = bytes([ids]) * file[at + 4]
    return bytes(file)


def jpeg_damaged(choose, file):
    """A JPEG with a bit flipped, or a few bytes lost, behind the header of its first scan."""
    scan = file.index(b"\xff\xda") + 2
    file, first = bytearray(file), scan + struct.unpack_from(">H", file, scan)[0]
    for _ in range(choose.choice([1, 1, 2, 5])):
        at = choose.randrange(first, max(len(file) - 2, first + 1))
        if choose.random() < 0.7:
            file[at] ^= 1 << choose.randrange(8)
        else:
            del file[at : min(at + choose.choice([1, 2, 20]), len(file) - 2)]
    return bytes(file)


def png_chunk(kind, payload):
    return struct.pack(">I", len(payload)) + kind + payload + struct.pack(">I", zlib.crc32(kind + payload))


def png(choose, before=b"", after=b""):
    """A PNG with chunks inserted behind its header, and before its end."""
    file = saved(picture(choose, choose.choice(["L", "RGB", "RGBA"])), "PNG")
    return file[:33] + before + file[33:-12] + after + file[-12:]


def png_interlaced(choose, image):
    """An interlaced PNG of 8-bit gray or RGB, unfiltered."""
    image = image.convert(choose.choice(["L", "RGB"]))
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    wide, bands, raw = image.width, len(image.getbands()), image.tobytes()
    rows = []
    for left, top, across, down in passes:
        for y in range(top, image.height, down) if left < wide else []:
            pixels = (raw[(y * wide + x) * bands :][:bands] for x in range(left, wide, across))
            rows.append(b"\0" + b"".join(pixels))
    header = struct.pack(">IIBBBBB", wide, image.height, 8, 0 if bands == 1 else 2, 0, 0, 1)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*chunk) for chunk in chunks)


def exif(choose, odd=False):
    """A TIFF structure with an orientation, of the usual type or (`odd`) of another."""
    order = choose.choice("<>")
    value = choose.randint(1, 8)
    entries = [(0x0110, 2, 4, b"cam\0"), entry(order, 3, value)]
    if odd:
        entries = choose.choice(ODD)(order, value, choose.randint(1, 8))
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8)
    place, data, table = 8 + 2 + 12 * len(entries) + 4, b"", b""
    for tag, kind, count, raw in entries:
        if len(raw) > 4:
            field, data = struct.pack(order + "I", place + len(data)), data + raw
        else:
            field = raw.ljust(4, b"\0")
        table += struct.pack(order + "HHI", tag, kind, count) + field
    return head + struct.pack(order + "H", len(entries)) + table + struct.pack(order + "I", 0) + data


# Type → struct code; 13 is IFD.
CODES = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 11: "f", 12: "d", 13: "I"}


def entry(order, kind, *values, tag=0x0112):
    return (tag, kind, len(values), struct.pack(order + CODES[kind] * len(values), *values))


def rational(order, kind, value, below=1):
    return (0x0112, kind, 1, struct.pack(order + "II", value * below, below))


ODD = [
    lambda order, value, other: [entry(order, 4, value)],
    lambda order, value, other: [entry(order, 8, value)],
    lambda order, value, other: [entry(order, 9, value)],
    lambda order, value, other: [entry(order, 1, value)],
    lambda order, value, other: [entry(order, 6, value)],
    lambda order, value, other: [entry(order, 11, value)],
    lambda order, value, other: [entry(order, 12, value)],
    lambda order, value, other: [entry(order, 13, value)],
    lambda order, value, other: [rational(order, 5, value)],
    lambda order, value, other: [rational(order, 5, value, 3)],
    lambda order, value, other: [rational(order, 10, value)],
    lambda order, value, other: [entry(order, 3, value, other)],
    lambda order, value, other: [entry(order, 3, value), entry(order, 3, other)],
    lambda order, value, other: [(0x02BC, 1, 60, b'<rdf tiff:Orientation="%d"/>'.ljust(60) % value)],
]


def xmp(choose):
    text = choose.choice(['<rdf:Description tiff:Orientation="%d"/>', "<tiff:Orientation>%d</tiff:Orientation>"])
    return (text % choose.randint(1, 8)).encode()


class Bits:
    """Codes of changing width, the lowest bit first as in GIF or (`msb`) the highest first as in TIFF."""

    def __init__(self, msb):
        self.msb, self.text = msb, []

    def put(self, code, width):
        bits = format(code, f"0{width}b")
        self.text.append(bits if self.msb else bits[::-1])

    def done(self):
        text = "".join(self.text)
        text += "0" * (-len(text) % 8)
        step = 1 if self.msb else -1
        return bytes(int(text[at : at + 8][::step], 2) for at in range(0, len(text), 8))


def lzw(data, bits, msb, early):
    """LZW with codes from `bits` + 1 to 12 bits; `early` widens them one code sooner, as TIFF does."""
    clear, out = 1 << bits, Bits(msb)
    table, width, prefix = {}, bits + 1, b""
    out.put(clear, width)

    def code(string):
        return string[0] if len(string) == 1 else table[string]

    for value in data:
        longer = prefix + bytes([value])
        if len(longer) == 1 or longer in table:
            prefix = longer
            continue
        out.put(code(prefix), width)
        table[longer] = clear + 2 + len(table)
        if table[longer] + early >= 1 << width and width < 12:
            width += 1
        if table[longer] >= 4093:
            out.put(clear, width)
            table, width = {}, bits + 1
        prefix = longer[-1:]
    if prefix:
        out.put(code(prefix), width)
        if clear + 2 + len(table) + early >= 1 << width and width < 12:
            width += 1
    out.put(clear + 1, width)
    return out.done()


def gif_interlaced(choose, beyond):
    """A GIF of few or many colours; with `beyond`, it has indices that its palette lacks."""
    width, height, bits = choose.randint(1, 40), choose.randint(1, 40), choose.randint(2, 8)
    colours = 1 << (bits - 1 if beyond else bits)
    uniform = choose.random() < 0.5
    rows = [bytes(1 if uniform else choose.randrange(1 << bits) for _ in range(width)) for _ in range(height)]
    interlaced = not beyond or choose.random() < 0.5
    order = [y for start, step in [(0, 8), (4, 8), (2, 4), (1, 2)] for y in range(start, height, step)]
    data = lzw(b"".join(rows[y] for y in (order if interlaced else range(height))), bits, msb=False, early=0)
    palette = bytes(choose.randrange(256) for _ in range(colours * 3))
    screen = struct.pack("<HHBBB", width, height, 0x80 | (colours.bit_length() - 2), 0, 0)
    frame = b"," + struct.pack("<HHHHB", 0, 0, width, height, 0x40 * interlaced) + bytes([bits])
    blocks = b"".join(bytes([len(data[at : at + 255])]) + data[at : at + 255] for at in range(0, len(data), 255))
    return b"GIF89a" + screen + palette + frame + blocks + b"\0;"


def bmp(choose, bits, header):
    """A bottom-up BMP with an information header of the given size; 16 bits are 555 or 565."""
    width, height = choose.randint(1, 40), choose.randint(1, 40)
    stride = (width * bits + 31) // 32 * 4
    pixels = choose.randbytes(stride * height)
    colours = 1 << bits if bits <= 8 else 0
    masks = choose.choice([None, (0x7C00, 0x03E0, 0x1F), (0xF800, 0x07E0, 0x1F)]) if bits == 16 else None
    if header == 12:
        info = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        info = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, 3 if masks else 0, len(pixels), 0, 0, 0, 0)
        info += struct.pack("<III", *masks) if masks and header > 40 else b""
        info = info.ljust(header, b"\0") + (struct.pack("<III", *masks) if masks and header == 40 else b"")
    palette = choose.randbytes(colours * (3 if header == 12 else 4))
    start = 14 + len(info) + len(palette)
    return b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start) + info + palette + pixels
