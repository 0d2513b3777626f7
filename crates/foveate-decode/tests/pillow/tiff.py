"""Writes TIFF files of every layout: strips or tiles, one plane or several, any byte order, predictor, fill order."""

import lzma
import struct
import zlib

from pictures import lzw

# Kind → photometric interpretation, bits per sample, samples, sample format (1 unsigned, 2 signed, 3 float).
KINDS = {
    "gray1": (1, 1, 1, 1),
    "gray2": (1, 2, 1, 1),
    "gray4": (1, 4, 1, 1),
    "gray": (1, 8, 1, 1),
    "gray16": (1, 16, 1, 1),
    "signed16": (1, 16, 1, 2),
    "signed32": (1, 32, 1, 2),
    "float32": (1, 32, 1, 3),
    "rgb": (2, 8, 3, 1),
    "rgb16": (2, 16, 3, 1),
    "palette1": (3, 1, 1, 1),
    "palette2": (3, 2, 1, 1),
    "palette4": (3, 4, 1, 1),
    "palette": (3, 8, 1, 1),
    "cmyk": (5, 8, 4, 1),
    "cmyk16": (5, 16, 4, 1),
    "ycbcr": (6, 8, 3, 1),
    "lab": (8, 8, 3, 1),
}
COMPRESSIONS = {"raw": 1, "lzw": 5, "deflate": 8, "packbits": 32773, "lzma": 34925}
REVERSED = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))


def packbits(row):
    out, at = b"", 0
    while at < len(row):
        run = 1
        while at + run < len(row) and run < 128 and row[at + run] == row[at]:
            run += 1
        out += bytes([257 - run, row[at]]) if run > 1 else bytes([0, row[at]])
        at += run
    return out


def compress(name, rows, fill):
    data = b"".join(rows)
    packed = {
        "raw": lambda: data,
        "lzw": lambda: lzw(data, 8, msb=True, early=1),
        "deflate": lambda: zlib.compress(data),
        "packbits": lambda: b"".join(map(packbits, rows)),
        "lzma": lambda: lzma.compress(data, check=lzma.CHECK_CRC32),
    }[name]()
    return packed.translate(REVERSED) if fill == 2 else packed


def pack(values, bits, order):
    if bits == 8:
        return bytes(values)
    if bits > 8:
        return struct.pack(f"{order}{len(values)}{ {16: 'H', 32: 'I'}[bits]}", *values)
    text = "".join(format(value, f"0{bits}b") for value in values)
    text += "0" * (-len(text) % 8)
    return bytes(int(text[at : at + 8], 2) for at in range(0, len(text), 8))


def differences(row, samples, bits):
    """The horizontal predictor."""
    return row[:samples] + [(b - a) & ((1 << bits) - 1) for a, b in zip(row, row[samples:])]


def value(choose, bits, format):
    if format == 3:
        return struct.unpack("<I", struct.pack("<f", choose.uniform(-20, 300)))[0]
    if format == 2:
        return choose.randint(-20, 300) & ((1 << bits) - 1)
    return choose.choice([0, (1 << bits) - 1, choose.randrange(1 << bits), choose.randrange(min(1 << bits, 300))])


def make(
    choose, kind, *, extra=(), compression=None, tiled=None, planar=False, fill=1, white_is_zero=None, side=40
):
    photometric, bits, samples, format = KINDS[kind]
    samples += len(extra)
    compression = compression or choose.choice(["raw", "lzw", "deflate", "packbits"])
    tiled = choose.random() < 0.5 if tiled is None else tiled
    order = choose.choice("<>")
    if photometric == 1 and white_is_zero is not False and choose.random() < 0.3:
        photometric = 0
    width, height = choose.randint(1, side), choose.randint(1, side)
    predicted = compression in ("lzw", "deflate", "lzma") and bits in (8, 16) and kind != "ycbcr" and choose.random() < 0.5
    columns, rows_each = width, choose.randint(1, height)
    if tiled:
        sides = [16, 32] if side == 40 else [64, 128]
        columns, rows_each = choose.choice(sides), choose.choice(sides)
    picture = [[value(choose, bits, format) for _ in range(width * samples)] for _ in range(height)]

    chunks = []
    for plane in range(samples) if planar else [None]:
        count = 1 if planar else samples
        for top in range(0, height, rows_each):
            for left in range(0, width, columns):
                rows = []
                for y in range(top, top + rows_each if tiled else min(top + rows_each, height)):
                    row = picture[y][left * samples : (left + columns) * samples] if y < height else []
                    row = row + [0] * (columns * samples - len(row))
                    row = row[plane::samples] if planar else row
                    rows.append(pack(differences(row, count, bits) if predicted else row, bits, order))
                chunks.append(compress(compression, rows, fill))

    tags = {
        256: ("I", [width]),
        257: ("I", [height]),
        258: ("H", [bits] * samples),
        259: ("H", [COMPRESSIONS[compression]]),
        262: ("H", [photometric]),
        277: ("H", [samples]),
        284: ("H", [2 if planar else 1]),
        339: ("H", [format] * samples),
    }
    if fill != 1:
        tags[266] = ("H", [fill])
    if predicted:
        tags[317] = ("H", [2])
    if photometric == 3:
        tags[320] = ("H", [choose.randrange(65536) for _ in range(3 << bits)])
    if photometric == 6:
        tags[530] = ("H", [1, 1])
    if extra:
        tags[338] = ("H", list(extra))
    if choose.random() < 0.2:
        tags[274] = ("H", [choose.randint(1, 8)])
    if tiled:
        tags |= {322: ("I", [columns]), 323: ("I", [rows_each])}
    else:
        tags[278] = ("I", [rows_each])
    starts, lengths = (324, 325) if tiled else (273, 279)
    tags[starts] = ("I", [0] * len(chunks))
    tags[lengths] = ("I", [len(chunk) for chunk in chunks])
    return assemble(order, tags, chunks, starts)


def assemble(order, tags, chunks, starts):
    tags = dict(sorted(tags.items()))
    place = 8 + 2 + 12 * len(tags) + 4
    for code, values in tags.values():
        length = struct.calcsize(code) * len(values)
        place += length + length % 2 if length > 4 else 0
    data_start = place
    tags[starts] = ("I", [data_start + sum(map(len, chunks[:at])) for at in range(len(chunks))])
    table, far, place = b"", b"", 8 + 2 + 12 * len(tags) + 4
    for tag, (code, values) in tags.items():
        raw = struct.pack(f"{order}{len(values)}{code}", *values)
        field = raw.ljust(4, b"\0")
        if len(raw) > 4:
            field = struct.pack(order + "I", place + len(far))
            far += raw + b"\0" * (len(raw) % 2)
        table += struct.pack(order + "HHI", tag, {"H": 3, "I": 4}[code], len(values)) + field
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IH", 8, len(tags))
    return head + table + struct.pack(order + "I", 0) + far + b"".join(chunks)
