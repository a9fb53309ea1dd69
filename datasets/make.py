#!/usr/bin/env python3
"""Makes tiny/, broken/ and SHA256SUMS beside this file: `make.py SOURCE_DIR`, where SOURCE_DIR holds the photographs
of budgie-backgrounds (longer side 960) under their names. Needs Pillow; the committed files came from Pillow 13."""

import hashlib
import io
import pathlib
import random
import shutil
import struct
import sys
import zlib

from PIL import Image

HERE = pathlib.Path(__file__).parent
CLASSES = {
    "animal": ["budgie-branch", "canyon-wren", "kitten-on-lawn", "oakland-zoo-otters", "perched-osprey"],
    "building": ["casa-mila", "colorful-wall", "orange-hallway", "piazza-gae-aulenti", "roman-colosseum"],
    "city": ["beacon-street-sunset", "noche-bogota", "san-francisco-skyline", "singaporean-cityscape", "taipei-city"],
    "land": ["cave-opening", "extreme-desert-hike", "lake-sherburne", "serene", "sunset-beach"],
    "plant": ["blue-periwinkle", "dragonfly-on-lavender", "fragrant-chamomile", "solaris-grapes", "tea-gardens"],
    "space": ["apollo-11-earth", "midsummer-sunrise", "saturnian-profile", "ufo-galaxy"],
}
ASPECTS = [(4, 3), (3, 4), (1, 1), (16, 9), (3, 2), (2, 3)]


def crop(photo, draw):
    """Cuts a part with one of the aspects, and scales it to a longer side of 200 to 400 pixels."""
    wide, high = draw.choice(ASPECTS)
    room = min(photo.width / wide, photo.height / high) * draw.uniform(0.6, 1.0)
    width, height = int(room * wide), int(room * high)
    left, top = draw.randint(0, photo.width - width), draw.randint(0, photo.height - height)
    scale = draw.randint(200, 400) / max(width, height)
    size = round(width * scale), round(height * scale)
    return photo.crop((left, top, left + width, top + height)).resize(size, Image.LANCZOS)


def tiny(source, folder):
    draw = random.Random(1)
    number = 0
    for name, photos in CLASSES.items():
        (folder / name).mkdir(parents=True)
        for photo in photos:
            with Image.open(source / f"{photo}.jpg") as file:
                whole = file.convert("RGB")
            for part in range(2 if name != "space" else 3):
                image = crop(whole, draw)
                target = folder / name / f"{photo}-{part}.jpg"
                if number % 20 == 9:
                    image = image.convert("L")
                if number in (13, 44):
                    image.resize((image.width // 2, image.height // 2)).save(target.with_suffix(".png"), optimize=True)
                else:
                    full = number % 3 == 1
                    image.save(target, quality=92 if full else 90, subsampling="4:4:4" if full else "4:2:0",
                               progressive=number % 12 == 5, optimize=True)
                number += 1


def jpeg(image, **options):
    out = io.BytesIO()
    image.save(out, "JPEG", **options)
    return out.getvalue()


def png(width, height, data):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def broken(source, folder):
    with Image.open(source / "kitten-on-lawn.jpg") as file:
        small = file.convert("RGB").crop((200, 100, 520, 340)).resize((160, 120), Image.LANCZOS)
    good = jpeg(small, quality=85)
    scan = good.index(b"\xff\xda")
    frame = good.index(b"\xff\xc0")
    huge = good[: frame + 5] + struct.pack(">HH", 65500, 65500) + good[frame + 9 :]
    noise = bytes(random.Random(2).choices(range(256), k=400))
    tables = good.index(b"\xff\xc4")
    picture = io.BytesIO()
    small.resize((40, 30)).save(picture, "PNG")
    files = {
        "good/plain.jpg": good,
        "good/png-named.jpg": picture.getvalue(),
        "good/trailing-bytes.jpg": good + b"\x00" * 64,
        "cut/in-header.jpg": good[:100],
        "cut/in-scan.jpg": good[: scan + (len(good) - scan) // 2],
        "cut/after-start.jpg": good[:2],
        "cut/in-data.png": picture.getvalue()[: len(picture.getvalue()) // 2],
        "wrong/empty.jpg": b"",
        "wrong/text.jpg": b"This is not a picture.\n" * 8,
        "wrong/noise.jpg": noise,
        "wrong/zeros.jpg": bytes(512),
        "damaged/no-huffman-tables.jpg": good[:tables] + good[scan:],
        "damaged/zero-width.jpg": good[: frame + 7] + b"\x00\x00" + good[frame + 9 :],
        "damaged/scan.jpg": good[: scan + 900] + noise + good[scan + 1300 :],
        "damaged/checksum.png": picture.getvalue()[:60] + b"\x55" + picture.getvalue()[61:],
        "bomb/header-65500.jpg": huge,
        "bomb/header-60000.png": png(60000, 60000, bytes(1000)),
        "bomb/zeros-4000.png": png(4000, 4000, bytes(8_000_000)),
    }
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def main():
    source = pathlib.Path(sys.argv[1])
    for name, make in (("tiny", tiny), ("broken", broken)):
        shutil.rmtree(HERE / name, ignore_errors=True)
        make(source, HERE / name)
    files = sorted(path for name in ("broken", "tiny") for path in (HERE / name).rglob("*") if path.is_file())
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(HERE)}\n" for path in files]
    (HERE / "SHA256SUMS").write_text("".join(lines))


if __name__ == "__main__":
    main()
