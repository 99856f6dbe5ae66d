"""The options of indexes: their names, allowed values, and Lance's names for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from lance.lance import language_model_home
from lance_namespace.errors import InvalidInputError

from pennon.core.errors import suggest

_T = TypeVar("_T")

#: Options of vector indexes, all of them integers, and Lance's names for them.
_VECTOR_OPTIONS = {
    "num_partitions": "num_partitions",
    "num_sub_vectors": "num_sub_vectors",
    "num_bits": "num_bits",
    "sample_rate": "sample_rate",
    "max_iterations": "max_iters",
    "target_partition_size": "target_partition_size",
    "m": "m",
    "ef_construction": "ef_construction",
}
_TEXT_OPTIONS: dict[str, type] = {
    "base_tokenizer": str,
    "language": str,
    "with_position": bool,
    "max_token_length": int,
    "lower_case": bool,
    "stem": bool,
    "remove_stop_words": bool,
    "custom_stop_words": list,
    "ascii_folding": bool,
    "min_ngram_length": int,
    "max_ngram_length": int,
    "prefix_only": bool,
    "block_size": int,
    "lance_tokenizer": str,
    "split_identifiers": bool,
    "split_on_numerics": bool,
    "preserve_original": bool,
    "index_operators": bool,
}
_TYPE_NAMES: dict[type, str] = {int: "an integer", str: "a string", bool: "true or false", list: "a list of strings"}
#: Tokenizers built into Lance.
_BUILT_IN_TOKENIZERS = frozenset({"simple", "whitespace", "raw", "ngram", "icu", "icu/split", "code"})
#: Tokenizers with a model, and its folder in Lance's model folder. Lance would join any name with these prefixes to
#: that path, so that "jieba/../../x" leads out of it.
_MODEL_TOKENIZERS = {
    "jieba": "jieba/default",
    "jieba/default": "jieba/default",
    "lindera/ipadic": "lindera/ipadic",
    "lindera/ko-dic": "lindera/ko-dic",
    "lindera/unidic": "lindera/unidic",
}
_DOCUMENT_TOKENIZERS = ("text", "json")
_MAX_INTEGER = 2**31 - 1


def vector_options(kind: str, given: Mapping[str, object], column: pa.DataType) -> dict[str, int]:
    """Return the options of a vector index in Lance's form."""
    options = {
        lance_name: _checked(name, given[name], int)
        for name, lance_name in _VECTOR_OPTIONS.items()
        if given.get(name) is not None
    }
    if kind.endswith("PQ"):
        options.setdefault("num_sub_vectors", _sub_vectors(column, options.get("num_bits", 8)))
    return options


def text_options(given: Mapping[str, object]) -> dict[str, object]:
    """Return the options of a full-text index in Lance's form."""
    options: dict[str, object] = {
        name: _checked(name, given[name], kind) for name, kind in _TEXT_OPTIONS.items() if given.get(name) is not None
    }
    if "max_token_length" in given:
        options.setdefault("max_token_length", None)  # null is a valid value here: no maximum
    if "base_tokenizer" in options:
        _check_tokenizer(str(options["base_tokenizer"]))
    tokenizer = options.get("lance_tokenizer", "text")
    if tokenizer not in _DOCUMENT_TOKENIZERS:
        raise InvalidInputError(
            f"lance_tokenizer is {tokenizer!r}; it must be one of {', '.join(_DOCUMENT_TOKENIZERS)}."
        )
    return options


def _checked(name: str, value: Any, kind: type[_T]) -> _T:
    items: list[object] = value if isinstance(value, list) else []
    if type(value) is not kind or not all(isinstance(item, str) for item in items):
        raise InvalidInputError(f"{name} must be {_TYPE_NAMES[kind]}.")
    if isinstance(value, int) and not 0 <= value <= _MAX_INTEGER:
        raise InvalidInputError(f"{name} is {value}; it must be between 0 and {_MAX_INTEGER}.")
    return value


def _check_tokenizer(name: str) -> None:
    """Reject an unknown tokenizer, or one whose model this server does not have."""
    if name in _BUILT_IN_TOKENIZERS:
        return
    model = _MODEL_TOKENIZERS.get(name)
    if model is None:
        known = sorted({*_BUILT_IN_TOKENIZERS, *_MODEL_TOKENIZERS})
        raise InvalidInputError(
            f"base_tokenizer is {name!r}; it must be one of {', '.join(known)}.{suggest(name, known)}"
        )
    home = language_model_home()
    if not home or not (Path(home) / model).is_dir():
        raise InvalidInputError(
            f"base_tokenizer {name!r} needs a language model that this server does not have. Ask its operator to "
            "install it, or use a tokenizer without a model, such as 'icu'."
        )


def _sub_vectors(kind: pa.DataType, bits: int) -> int:
    """Return the default number of sub-vectors: of 16 dimensions, of 8, or one sub-vector, as in LanceDB.

    Codes of 4 bits are stored in pairs, so their number must be even. LanceDB then uses one sub-vector more; if that
    does not divide the dimensions, sub-vectors are smaller here.
    """
    while pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    width = kind.list_size if pa.types.is_fixed_size_list(kind) else 1
    count: int = next((width // part for part in (16, 8) if width % part == 0), 1)
    if bits != 4 or count % 2 == 0:
        return count
    counts = [count + 1, *(width // part for part in (4, 2) if width % part == 0)]
    return next((even for even in counts if even % 2 == 0 and width % even == 0), 2)
