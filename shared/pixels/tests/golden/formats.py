#!/usr/bin/env python3
"""Makes small files of the formats other than JPEG in formats/, and what Pillow makes of them in formats.txt:

    python3 formats.py

Each line holds a file's name and two CRC-32: of the image, and of the image turned by ImageOps.exif_transpose. Both are
in RGB, in the middle of a black square of 40 x 40 pixels. Pillow turns a TIFF when it loads it, so both are the same
there.

Needs numpy and Pillow.
"""
import io
import pathlib
import struct
import zlib

import numpy
from PIL import Image, ImageOps

HERE = pathlib.Path(__file__).parent
FILES = HERE / "formats"
W, H, SQUARE = 13, 11, 40

y, x = numpy.mgrid[0:H, 0:W]
colors = numpy.stack([(x * 17 + y * 9) % 256, (x * 6 + y * 21) % 256, (x * x + y * 3) % 256], -1).astype(numpy.uint8)
image = Image.fromarray(colors)
gray = image.convert("L")
clear = Image.fromarray(numpy.dstack([colors, (x * 19 % 256).astype(numpy.uint8)]))
exif = Image.Exif()
exif[0x0112] = 6


def tiffs():
    kinds = {"rgb": image, "gray": gray, "bilevel": gray.convert("1"), "palette": image.convert("P"),
             "cmyk": image.convert("CMYK"), "rgba": clear, "la": gray.convert("LA"),
             "gray16": Image.fromarray((x * 4000 + y * 13).astype(numpy.uint16)),
             "float": Image.fromarray((x / 9).astype(numpy.float32))}
    for name, kind in kinds.items():
        kind.save(FILES / f"{name}.tif")
    for name, compression in {"lzw": "tiff_lzw", "deflate": "tiff_adobe_deflate", "packbits": "packbits",
                              "jpeg": "jpeg"}.items():
        image.save(FILES / f"{name}.tif", compression=compression)
    gray.convert("1").save(FILES / "group4.tif", compression="group4")
    image.save(FILES / "predictor.tif", compression="tiff_lzw", tiffinfo={317: 2})
    image.save(FILES / "turned.tif", compression="tiff_lzw", exif=exif)
    image.save(FILES / "pages.tif", save_all=True, append_images=[ImageOps.invert(image)])
    (FILES / "planar.tif").write_bytes(by_hand("<", [8] * 3, 2, colors.transpose(2, 0, 1).tobytes(), planar=2))
    tile = numpy.zeros((16, 16, 3), numpy.uint8)
    tile[:H, :W] = colors
    (FILES / "tile.tif").write_bytes(by_hand("<", [8] * 3, 2, tile.tobytes(), tiled=True))
    (FILES / "big-endian.tif").write_bytes(by_hand(">", [8] * 3, 2, colors.tobytes()))
    (FILES / "white-is-zero.tif").write_bytes(by_hand("<", [8], 0, numpy.asarray(gray).tobytes()))
    (FILES / "rgb16.tif").write_bytes(by_hand(">", [16] * 3, 2, (colors.astype(">u2") * 256 + 77).tobytes()))


def by_hand(order, bits, photometric, data, planar=1, tiled=False):
    """A TIFF of one strip, of one for each plane, or of one tile of 16 x 16 pixels."""
    count = len(bits)
    strips = count if planar == 2 else 1
    entries = [(256, 3, [W]), (257, 3, [H]), (258, 3, bits), (259, 3, [1]), (262, 3, [photometric]),
               (273, 4, None), (277, 3, [count]), (278, 3, [H]), (279, 4, [len(data) // strips] * strips),
               (284, 3, [planar])]
    if tiled:
        entries = [entry for entry in entries if entry[0] not in (273, 278, 279)]
        entries += [(322, 3, [16]), (323, 3, [16]), (324, 4, None), (325, 4, [len(data)])]
    end = 8 + 2 + 12 * len(entries) + 4
    arrays = b""
    directory = struct.pack(order + "H", len(entries))
    first = end + 64
    for tag, kind, values in entries:
        if values is None:
            values = [first + i * (len(data) // strips) for i in range(strips)]
        packed = struct.pack(order + ("H" if kind == 3 else "I") * len(values), *values)
        if len(packed) > 4:
            at = struct.pack(order + "I", end + len(arrays))
            arrays += packed
            packed = at
        directory += struct.pack(order + "HHI", tag, kind, len(values)) + packed.ljust(4, b"\0")
    header = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8)
    return (header + directory + b"\0" * 4 + arrays).ljust(first, b"\0") + data


def chunk(kind, data):
    return kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) & 1)


def still(**options):
    """The image's own chunks of a WebP."""
    file = io.BytesIO()
    clear.save(file, "WEBP", **options)
    data, at, parts = file.getvalue(), 12, []
    while at + 8 <= len(data):
        size = struct.unpack("<I", data[at + 4:at + 8])[0]
        if data[at:at + 4] in (b"VP8 ", b"VP8L", b"ALPH"):
            parts.append((data[at:at + 4], data[at + 8:at + 8 + size]))
        at += 8 + size + (size & 1)
    return parts


def animation(parts, blends, with_exif=False):
    """Two frames that lie within a larger canvas with a background of its own."""
    def three(value):
        return struct.pack("<I", value)[:3]

    frame = three(3) + three(2) + three(W - 1) + three(H - 1) + three(50) + bytes([0 if blends else 2])
    frame = chunk(b"ANMF", frame + b"".join(chunk(*part) for part in parts))
    flags = 0x12 | (8 if with_exif else 0)
    body = chunk(b"VP8X", bytes([flags, 0, 0, 0]) + three(W + 8) + three(H + 6))
    body += chunk(b"ANIM", b"\x10\x20\x30\xff\0\0") + frame + frame
    body += chunk(b"EXIF", exif.tobytes()) if with_exif else b""
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def others():
    image.save(FILES / "turned.png", exif=exif)
    image.save(FILES / "turned.webp", exif=exif, lossless=True)
    image.save(FILES / "turned-lossy.webp", exif=exif, quality=80)
    for name, options in {"lossless": {"lossless": True, "exact": True}, "lossy": {"quality": 70}}.items():
        for blends in (False, True):
            path = FILES / f"frame-{name}-{'blended' if blends else 'replaced'}.webp"
            path.write_bytes(animation(still(**options), blends))
    (FILES / "frame-turned.webp").write_bytes(animation(still(lossless=True, exact=True), True, True))
    Image.fromarray((x * 4000 + y * 13).astype(numpy.uint16)).save(FILES / "gray16.png")


def bitmap(bits, data, compression=0, palette=b"", header=40, masks=b""):
    """A BMP of W x H pixels."""
    info = struct.pack("<IiiHHIIiiII", header, W, H, 1, bits, compression, len(data), 0, 0, len(palette) // 4, 0)
    front = info + bytes(header - 40) + masks + palette
    return b"BM" + struct.pack("<IHHI", 14 + len(front) + len(data), 0, 0, 14 + len(front)) + front + data


def gif(size, at, indices, transparent=None):
    """A GIF of W x H pixels with a frame that has another size, in uncompressed codes."""
    control = b"" if transparent is None else b"!\xf9\x04\x01\0\0" + bytes([transparent, 0])
    palette = bytes([10, 20, 30, 200, 100, 50, 0, 90, 180, 255, 250, 5])
    front = b"GIF89a" + struct.pack("<HHBBB", W, H, 0x81, 2, 0) + palette + control
    # Each code has 8 bits: 128 clears the table, before its codes become longer.
    codes = b"".join(b"\x80" + bytes(indices[i:i + 100]) for i in range(0, len(indices), 100)) + b"\x81"
    blocks = b"".join(bytes([len(codes[i:i + 255])]) + codes[i:i + 255] for i in range(0, len(codes), 255))
    return front + b"," + struct.pack("<HHHHBB", *at, *size, 0, 7) + blocks + b"\0;"


def segment(payload):
    return b"\xff\xe1" + struct.pack(">H", len(payload) + 2) + payload


def uncommon():
    """What Pillow reads otherwise than the crate `image`, or what the crate does not read."""
    scaled = colors.astype(numpy.uint32)
    size = b"%d %d\n" % (W, H)
    text = " ".join(map(str, (scaled * 6 // 255).flatten())).encode()
    indices = ((x * 5 + y * 3) % 4).astype(numpy.uint8)
    palette = bytes([30, 20, 10, 0, 50, 100, 200, 0, 180, 90, 0, 0, 5, 250, 255, 0])
    five = scaled * 31 // 255
    wide = five[..., 0] << 10 | five[..., 1] << 5 | five[..., 2]
    six = five[..., 0] << 11 | (scaled[..., 1] * 63 // 255) << 5 | five[..., 2]
    padding = ((0, 0), (0, -W % 2))
    rows = b"".join(b"".join(bytes([1, index]) for index in row) + b"\0\0" for row in indices.tolist())
    skips = b"".join(bytes([3, row[0], 0, 2, 5, 0, 0, 5]) + bytes(row[8:]) + b"\0\0\0" for row in indices.tolist())
    halves = b"".join(bytes([13, 0x10 + row[0]]) + b"\0\0" for row in indices.tolist())
    png, jpeg = io.BytesIO(), io.BytesIO()
    image.save(png, "PNG")
    image.save(jpeg, "JPEG", quality=95)
    jpeg = jpeg.getvalue()
    bits = "\n".join("".join("01"[int(v > 1)] for v in row) for row in indices)
    files = {
        "maximum.pgm": b"P5\n" + size + b"100\n" + (scaled[..., 0] * 101 // 255).astype(numpy.uint8).tobytes(),
        "maximum.ppm": b"P6 # six\n" + size + b"6\n" + (scaled * 6 // 255).astype(numpy.uint8).tobytes(),
        "maximum-plain.ppm": b"P3\n" + size + b"6\n" + text,
        "wide.ppm": b"P6\n" + size + b"65535\n" + (scaled * 256 + 200).astype(">u2").tobytes(),
        "bits.pbm": b"P4\n" + size + numpy.packbits(indices > 1, axis=1).tobytes(),
        "bits-plain.pbm": b"P1\n" + size + bits.encode(),
        "555.bmp": bitmap(16, numpy.pad(wide, padding).astype("<u2").tobytes()),
        "565.bmp": bitmap(16, numpy.pad(six, padding).astype("<u2").tobytes(), 3,
                          masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F)),
        "os2.bmp": bitmap(8, numpy.pad(indices, ((0, 0), (0, -W % 4))).tobytes(), palette=palette, header=64),
        "rle8-no-end.bmp": bitmap(8, rows[:-2], 1, palette),
        "rle8-skips.bmp": bitmap(8, skips + b"\0\1", 1, palette),
        "rle4-no-end.bmp": bitmap(4, halves, 2, palette, header=64),
        "frame.gif": gif((5, 4), (3, 2), indices[:4, :5].flatten().tolist()),
        "frame-transparent.gif": gif((5, 4), (3, 2), indices[:4, :5].flatten().tolist(), 3),
        "frame-outside.gif": gif((W, H), (3, 2), indices.flatten().tolist()),
        "no-end.png": png.getvalue()[:-12],
        "cut-end.png": png.getvalue()[:-4],
        "second-exif.jpg": jpeg[:2] + segment(b"Exif\0\0") + segment(exif.tobytes()) + jpeg[2:],
    }
    for name, data in files.items():
        (FILES / name).write_bytes(data)


def seen(picture):
    square = Image.new("RGB", (SQUARE, SQUARE))
    square.paste(picture.convert("RGB"), ((SQUARE - picture.width) // 2, (SQUARE - picture.height) // 2))
    return zlib.crc32(square.tobytes())


if __name__ == "__main__":
    FILES.mkdir(exist_ok=True)
    tiffs()
    others()
    uncommon()
    lines = []
    for path in sorted(FILES.iterdir()):
        picture = Image.open(path)
        picture.load()
        lines.append(f"{path.name} {seen(picture)} {seen(ImageOps.exif_transpose(picture))}")
    (HERE / "formats.txt").write_text("\n".join(lines) + "\n")
