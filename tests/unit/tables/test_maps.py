"""Maps that come as lists of their entries."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError

from pennon.tables.maps import is_entry_list, maps_from_entries

ENTRY = pa.struct([("key", pa.string()), ("value", pa.int32())])
LISTED = pa.list_(ENTRY)
MAP = pa.map_(pa.string(), pa.int32())
SOME = [{"key": "a", "value": 1}, {"key": "b", "value": None}]
PAIRS = [("a", 1), ("b", None)]

CASES: dict[str, tuple[pa.DataType, pa.DataType, list[Any], list[Any]]] = {
    "maps": (LISTED, MAP, [SOME, None, []], [PAIRS, None, []]),
    "large lists": (pa.large_list(ENTRY), MAP, [None, SOME], [None, PAIRS]),
    "none": (LISTED, MAP, [], []),
    "in structs": (
        pa.struct([("n", pa.int8()), ("m", LISTED)]),
        pa.struct([("n", pa.int8()), ("m", MAP)]),
        [{"n": 1, "m": SOME}, None, {"n": None, "m": None}],
        [{"n": 1, "m": PAIRS}, None, {"n": None, "m": None}],
    ),
    "in lists": (pa.list_(LISTED), pa.list_(MAP), [[SOME, None], None, []], [[PAIRS, None], None, []]),
    "in large lists": (pa.large_list(LISTED), pa.large_list(MAP), [[[], SOME]], [[[], PAIRS]]),
    "in maps": (
        pa.list_(pa.struct([("key", pa.int8()), ("value", LISTED)])),
        pa.map_(pa.int8(), MAP),
        [[{"key": 1, "value": SOME}], None, [{"key": 2, "value": None}]],
        [[(1, PAIRS)], None, [(2, None)]],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_entries_become_maps_at_any_depth(case: str) -> None:
    given, kind, listed, expected = CASES[case]
    assert is_entry_list(given, kind)
    values = pa.array(listed * 2, given)
    for part, wanted in ((values, expected * 2), (values[len(listed) :], expected)):
        found = maps_from_entries(part, kind)
        found.validate(full=True)
        assert found.type == kind
        assert found.to_pylist() == wanted


@pytest.mark.parametrize("entry", [None, {"key": None, "value": 1}])
def test_an_entry_without_a_key_is_refused(entry: dict[str, Any] | None) -> None:
    with pytest.raises(InvalidInputError, match="without a key"):
        maps_from_entries(pa.array([SOME, [entry]], LISTED), MAP)


def test_what_a_null_hides_does_not_matter() -> None:
    entries = pa.array([{"key": None, "value": 1}, *SOME], ENTRY)
    hiding = pa.ListArray.from_arrays([0, 1, 3], entries, mask=pa.array([True, False]))
    assert maps_from_entries(hiding, MAP).to_pylist() == [None, PAIRS]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (MAP, MAP),
        (LISTED, LISTED),
        (pa.list_(pa.int32()), MAP),
        (pa.list_(pa.struct([("key", pa.string())])), MAP),
        (pa.list_(pa.struct([("key", pa.int32()), ("value", pa.int32())])), MAP),
        (pa.list_(pa.struct([("key", pa.string()), ("value", pa.int64())])), MAP),
        (pa.struct([("a", LISTED)]), pa.struct([("b", MAP)])),
        (pa.large_list(LISTED), pa.list_(MAP)),
        (pa.int32(), MAP),
        (pa.int32(), pa.int64()),
    ],
)
def test_other_types_are_left_alone(given: pa.DataType, kind: pa.DataType) -> None:
    assert not is_entry_list(given, kind)
