"""The fragments that an index segment covers: a Roaring bitmap in the portable format, as Lance stores it."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from threading import Lock

from cachetools import LRUCache, cached

_PLAIN, _WITH_RUNS = 12346, 12347
#: From this number of containers on, a bitmap with runs has offsets.
_OFFSETS_FROM = 4
#: Containers with more values are bit sets.
_MOST_ARRAY_VALUES, _BIT_SET_BYTES = 4096, 8192
#: A bitmap of a few bytes can have billions of values: 262,144 of them take 40 ms and 16 MB.
_MOST_VALUES = 262_144
#: The values that are cached, of all bitmaps together: 64 MB.
_MOST_CACHED_VALUES = 2**20

_Parsed = frozenset[int] | None


def _cached_values(parsed: _Parsed) -> int:
    return 16 + len(parsed or ())


@cached(LRUCache[bytes, _Parsed](_MOST_CACHED_VALUES, _cached_values), key=bytes, lock=Lock())
def parse_fragment_bitmap(content: bytes) -> frozenset[int] | None:
    """Return the ids of fragments; None if they are invalid or too many. Cached: an append keeps all segments."""
    try:
        return frozenset(_values(content))
    except (struct.error, ValueError):
        return None


def _values(content: bytes) -> Iterator[int]:
    (cookie,) = struct.unpack_from("<I", content, 0)
    if cookie == _PLAIN:
        (count,) = struct.unpack_from("<I", content, 4)
        runs, position, has_offsets = b"", 8, True
    elif cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        runs, position = content[4 : 4 + (count + 7) // 8], 4 + (count + 7) // 8
        has_offsets = count >= _OFFSETS_FROM
    else:
        raise ValueError("not a Roaring bitmap")
    header = struct.unpack_from(f"<{2 * min(count, 65536)}H", content, position)
    keys, sizes = header[::2], [size + 1 for size in header[1::2]]
    if sum(sizes) > _MOST_VALUES:
        raise ValueError("too many fragments")
    position += 4 * count * (2 if has_offsets else 1)
    for number, (key, size) in enumerate(zip(keys, sizes, strict=True)):
        high = key << 16
        if runs and runs[number // 8] >> number % 8 & 1:
            (pairs,) = struct.unpack_from("<H", content, position)
            found = struct.unpack_from(f"<{2 * pairs}H", content, position + 2)
            if sum(found[1::2]) + pairs != size:
                raise ValueError("runs of another length")
            for start, more in zip(found[::2], found[1::2], strict=True):
                yield from range(high + start, high + start + more + 1)
            position += 2 + 4 * pairs
        elif size <= _MOST_ARRAY_VALUES:
            yield from (high + low for low in struct.unpack_from(f"<{size}H", content, position))
            position += 2 * size
        else:
            words = array("B", content[position : position + _BIT_SET_BYTES])
            yield from (
                high + 8 * index + bit for index, byte in enumerate(words) for bit in range(8) if byte >> bit & 1
            )
            position += _BIT_SET_BYTES
