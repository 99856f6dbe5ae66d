"""The options of an index: which there are, what values they take, and how Lance is given them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from lance.lance import language_model_home
from lance_namespace.errors import InvalidInputError

from pennon.core.errors import suggest

#: Options of vector indexes, all of them whole numbers, and Lance's names for them.
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
_KINDS = {int: "a whole number", str: "a text", bool: "true or false", list: "a list of texts"}
#: The tokenizers that Lance has built in.
_BUILT_IN_TOKENIZERS = frozenset({"simple", "whitespace", "raw", "ngram", "icu", "icu/split", "code"})
#: Those that read a model, and its folder in Lance's folder of models. Lance would join any name that begins like these
#: with the path of that folder, so that "jieba/../../x" leads out of it.
_MODEL_TOKENIZERS = {
    "jieba": "jieba/default",
    "jieba/default": "jieba/default",
    "lindera/ipadic": "lindera/ipadic",
    "lindera/ko-dic": "lindera/ko-dic",
    "lindera/unidic": "lindera/unidic",
}
_DOCUMENT_TOKENIZERS = ("text", "json")
_LARGEST = 2**31 - 1


def vector_options(kind: str, given: Mapping[str, Any], column: pa.DataType) -> dict[str, Any]:
    """Return the options of a vector index as Lance takes them."""
    options = {
        lance_name: _checked(name, given[name], int)
        for name, lance_name in _VECTOR_OPTIONS.items()
        if given.get(name) is not None
    }
    if kind.endswith("PQ"):
        options.setdefault("num_sub_vectors", _sub_vectors(column, options.get("num_bits", 8)))
    return options


def text_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a full-text index as Lance takes them."""
    options = {
        name: _checked(name, given[name], kind) for name, kind in _TEXT_OPTIONS.items() if given.get(name) is not None
    }
    if "max_token_length" in given:
        options.setdefault("max_token_length", None)  # null is a value of this one: tokens of any length
    if "base_tokenizer" in options:
        _check_tokenizer(options["base_tokenizer"])
    if options.get("lance_tokenizer", "text") not in _DOCUMENT_TOKENIZERS:
        raise InvalidInputError(f"lance_tokenizer must be one of {', '.join(_DOCUMENT_TOKENIZERS)}.")
    return options


def _checked(name: str, value: Any, kind: type) -> Any:
    items: list[Any] = value if isinstance(value, list) else []
    fits = type(value) is kind and all(isinstance(item, str) for item in items)
    if not fits:
        raise InvalidInputError(f"{name} must be {_KINDS[kind]}.")
    if kind is int and not 0 <= value <= _LARGEST:
        raise InvalidInputError(f"{name} is {value}; it must be between 0 and {_LARGEST}.")
    return value


def _check_tokenizer(name: str) -> None:
    """Refuse a tokenizer that is not known by name, or whose model this server does not have."""
    if name in _BUILT_IN_TOKENIZERS:
        return
    model = _MODEL_TOKENIZERS.get(name)
    if model is None:
        known = sorted({*_BUILT_IN_TOKENIZERS, *_MODEL_TOKENIZERS})
        raise InvalidInputError(f"base_tokenizer must be one of {', '.join(known)}.{suggest(name, known)}")
    home = language_model_home()
    if not home or not (Path(home) / model).is_dir():
        raise InvalidInputError(
            f"base_tokenizer {name!r} needs a language model that this server does not have; ask its operator to "
            "install it, or use a tokenizer that needs none, such as 'icu'."
        )


def _sub_vectors(kind: pa.DataType, bits: int) -> int:
    """Return into how many parts vectors are cut by default: parts of 16 numbers, or of 8, or the whole, as in LanceDB.

    Codes of 4 bits are stored in pairs: their number must be even. LanceDB then takes one part more; where that does
    not divide the vector, parts are smaller here.
    """
    while pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    width = kind.list_size if pa.types.is_fixed_size_list(kind) else 1
    count = next((width // part for part in (16, 8) if width % part == 0), 1)
    if bits != 4 or count % 2 == 0:
        return count
    counts = [count + 1, *(width // part for part in (4, 2) if width % part == 0)]
    return next((even for even in counts if even % 2 == 0 and width % even == 0), 2)
