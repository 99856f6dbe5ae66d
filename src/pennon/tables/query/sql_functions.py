"""The SQL functions that callers may use, and a bound on the size of each one's result."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import prod
from types import MappingProxyType
from typing import NamedTuple


class Kind(Enum):
    """How the size of a function's result follows from its arguments."""

    #: At most the arguments together, plus a constant.
    BOUNDED = "bounded"
    #: All arguments: a long argument list can repeat one large column many times.
    JOINS = "joins"
    #: One argument is the number of times another one is repeated.
    REPEATS = "repeats"
    #: One argument is the length of the result.
    PADS = "pads"
    #: Two bytes for each byte.
    DOUBLES = "doubles"
    #: One argument, and those after it, replace every match or element.
    REPLACES = "replaces"
    #: The groups of a pattern.
    MATCHES = "matches"
    #: A boolean or a number: the pattern is only tested.
    TESTS = "tests"
    #: Values of the named type, which may be of fixed size.
    CASTS = "casts"
    #: A format, written for every row.
    FORMATS = "formats"
    #: The call has no bound, or its time grows faster than its arguments.
    UNBOUNDED = "unbounded"


class Literal(NamedTuple):
    """An argument that is a literal."""

    #: The length in bytes.
    size: int
    #: The value of an integer literal.
    number: int | None
    #: The number of opening parentheses: an upper bound on the groups of a pattern.
    groups: int
    #: The number of values in a fixed-size type that the literal names, as in FixedSizeList(3, Float32).
    width: int


@dataclass(frozen=True)
class Growth:
    """An upper bound on the result of an expression for one row, relative to its columns and literals."""

    #: The largest ratio of a result to its input.
    factor: int = 1
    #: The number of values that are joined into one.
    operands: int = 0
    #: Bytes of literals in the result.
    literal_bytes: int = 0
    #: The call that has no bound, for the error message.
    unbounded: str | None = None

    @property
    def copies(self) -> int:
        """The largest number of copies of the input in a result."""
        return self.factor * max(self.operands, 1)

    @property
    def written_bytes(self) -> int:
        """The largest number of bytes of literals in a result."""
        return self.copies * self.literal_bytes

    def __add__(self, other: Growth) -> Growth:
        return Growth(
            max(self.factor, other.factor),
            self.operands + other.operands,
            self.literal_bytes + other.literal_bytes,
            self.unbounded or other.unbounded,
        )


@dataclass(frozen=True)
class SqlFunction:
    """A function that callers may use."""

    kind: Kind
    #: The position of the argument that decides the size.
    argument: int = 0
    min_arguments: int = 0


def _names(text: str, kind: Kind, argument: int = 0, min_arguments: int = 0) -> dict[str, SqlFunction]:
    return {name: SqlFunction(kind, argument, min_arguments) for name in text.split()}


#: Array functions: each has the prefixes array_ and list_.
_ARRAYS = {
    **_names(
        "any_value compact contains dims distance distinct element empty except extract has has_all has_any indexof "
        "intersect length max min ndims normalize pop_back pop_front position positions remove remove_all remove_n "
        "reverse slice sort",
        Kind.BOUNDED,
    ),
    **_names("append cat concat prepend push_back push_front union replace", Kind.JOINS),
    **_names("join to_string", Kind.REPLACES, 1),
    **_names("replace_n replace_all", Kind.REPLACES, 2),
    **_names("repeat resize", Kind.REPEATS, 1),
}

#: Every function that may be called, by its name in lower case.
FUNCTIONS = MappingProxyType(
    _names(
        # mathematics
        "abs acos acosh asin asinh atan atan2 atanh cbrt ceil cos cosh cot degrees exp factorial floor gcd isnan "
        "iszero lcm ln log log10 log2 nanvl pi pow power radians random round signum sin sinh sqrt tan tanh trunc "
        # conditions
        "cast_to_type coalesce greatest ifnull least nullif nvl nvl2 try_cast_to_type "
        # text
        "ascii bit_length btrim char_length character_length chr contains ends_with find_in_set initcap instr left "
        "length lower ltrim octet_length position reverse right rtrim split_part starts_with strpos substr "
        "substr_index substring substring_index to_hex translate trim upper uuid contains_tokens decode md5 "
        "sha224 sha256 sha384 sha512 digest "
        # time
        "current_date current_time current_timestamp date_bin date_part date_trunc datepart datetrunc extract "
        "from_unixtime make_date make_time now to_date to_local_time to_time to_timestamp to_timestamp_micros "
        "to_timestamp_millis to_timestamp_nanos to_timestamp_seconds to_unixtime today "
        # nested values
        "arrays_overlap cardinality empty flatten element_at map_entries map_extract map_keys map_values union_extract "
        "union_tag cosine_distance dot_product inner_product "
        "json_extract json_extract_with_type json_get json_get_string json_get_int json_get_float json_get_bool "
        "json_exists json_array_contains json_array_length "
        # types
        "version "
        # geometry
        "box2d st_area st_asbinary st_astext st_box2dfromgeohash st_centroid st_contains st_convexhull st_coorddim "
        "st_coveredby st_covers st_crosses st_disjoint st_distance st_endpoint st_equals st_geometryfromtext "
        "st_geometrytype st_geomfromtext st_geomfromwkb st_intersects st_isclosed st_isempty st_isvalid "
        "st_isvalidreason st_length st_m st_makebox2d st_makepoint st_makepointm st_ndims st_npoints "
        "st_numinteriorrings st_numpoints st_orientedenvelope st_overlaps st_point st_pointfromgeohash st_pointm "
        "st_pointonsurface st_pointz st_pointzm st_simplify st_simplifypreservetopology st_simplifyvw st_startpoint "
        "st_touches st_within st_x st_xmax st_xmin st_y st_ymax st_ymin st_z st_zmax st_zmin",
        Kind.BOUNDED,
    )
    | _names("get_field", Kind.BOUNDED, min_arguments=2)
    | _names("is_valid", Kind.BOUNDED, min_arguments=1)
    | _names("concat concat_ws overlay struct row named_struct map make_array make_list make_map", Kind.JOINS)
    | _names("arrays_zip list_zip with_metadata", Kind.JOINS)
    | _names("encode", Kind.DOUBLES)
    | _names("repeat", Kind.REPEATS, 1)
    | _names("lpad rpad", Kind.PADS, 1)
    | _names("replace regexp_replace", Kind.REPLACES, 2)
    | _names("regexp_match", Kind.MATCHES, 1)
    | _names("regexp_like regexp_count regexp_instr", Kind.TESTS, 1)
    | _names("to_char date_format", Kind.FORMATS, 1)
    | _names("arrow_cast arrow_try_cast", Kind.CASTS, 1)
    | _names("levenshtein range generate_series st_geohash", Kind.UNBOUNDED)
    | _names("string_to_array string_to_list arrow_typeof arrow_metadata arrow_field", Kind.UNBOUNDED)
    | {f"{prefix}_{name}": function for prefix in ("array", "list") for name, function in _ARRAYS.items()}
)

#: Words that may precede a parenthesis without calling a function, type names included.
KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
        all and any array as between binary by case cast dec decimal distinct else end escape exists float fn for from
        ilike in is like not null numeric on or over placing safe_cast select similar some then to try_cast unnest
        values when where xor bigint char character collate convert datetime int integer interval smallint time
        timestamp tinyint varbinary varchar
        """,
    )
)

#: Output bytes for one byte of a format: the longest names of months and time zones.
_FORMAT_BYTES = 32
#: A number in the name of a type, but not a suffix as in Int64.
_WHOLE_NUMBER = re.compile(r"\b\d{1,18}")
#: The largest size in bytes of a character or a number.
_UNIT_BYTES = 8


def grow(name: str, arguments: Sequence[Literal | None], before: Growth) -> Growth:
    """Return the growth of an expression after a call; None stands for an argument that is not a literal."""
    function = FUNCTIONS[name]
    position, kind = function.argument, function.kind
    literal = arguments[position] if position < len(arguments) else None
    if kind is Kind.BOUNDED:
        return before
    if kind is Kind.JOINS:
        return replace(before, operands=before.operands + len(arguments))
    if kind is Kind.DOUBLES:
        return replace(before, factor=before.factor * 2)
    unbounded = replace(before, unbounded=before.unbounded or f"{name}()")
    if kind is Kind.UNBOUNDED or literal is None:
        return unbounded
    if kind is Kind.TESTS:
        return before
    if kind is Kind.MATCHES:
        return replace(before, factor=before.factor * (literal.groups + 1))
    if kind is Kind.REPLACES:
        inserted = _total_size(arguments[position:])
        return unbounded if inserted is None else replace(before, factor=before.factor * (inserted + 1))
    if kind is Kind.CASTS:
        return replace(before, literal_bytes=before.literal_bytes + _UNIT_BYTES * literal.width)
    if kind is Kind.FORMATS:
        return replace(before, literal_bytes=before.literal_bytes + _FORMAT_BYTES * literal.size)
    if literal.number is None:
        return unbounded
    if kind is Kind.REPEATS:
        return replace(before, factor=before.factor * max(literal.number, 1))
    return replace(before, literal_bytes=before.literal_bytes + _UNIT_BYTES * literal.number)


def _total_size(arguments: Sequence[Literal | None]) -> int | None:
    """Return the total size of arguments in bytes; None unless all of them are literals."""
    sizes = [argument.size for argument in arguments if argument is not None]
    return sum(sizes) if len(sizes) == len(arguments) else None


def argument_literal(text: str) -> Literal:
    """Return the properties of an argument that is a literal."""
    number = int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None
    width = prod(map(int, _WHOLE_NUMBER.findall(text))) if "fixed" in text.lower() else 0
    return Literal(len(text.strip("'\"").encode()), number, text.count("("), width)
