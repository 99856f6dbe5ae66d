"""Full-text queries: strings, and the structured queries of the specification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import lance.query as lq
from lance_namespace.errors import InvalidInputError

from pennon.tables.lance_errors import clean_message

if TYPE_CHECKING:
    from lance import LanceDataset

#: A part of a structured query: JSON of the client, which Lance's constructors check.
Clause: TypeAlias = dict[str, Any]

_MAX_DEPTH = 32
#: The longest text that the API process searches for, and the length that each clause and option counts for.
_MAX_INLINE_TEXT, _VALUE_BYTES = 16 * 1024, 16
#: The highest fuzziness in the API process: the time to prepare a term grows fast with it.
_MAX_INLINE_EDITS = 2


@dataclass(frozen=True)
class FullText:
    """A full-text query: a string over some columns, or a structured query."""

    text: str | None = None
    columns: tuple[str, ...] = ()
    structured: Clause | None = None

    @property
    def isolation_reason(self) -> str | None:
        """Why this search must run in a query process, which can be interrupted; None if the API process may run it."""
        size = len(self.text or "")
        parts: list[object] = [self.structured]
        while parts:
            part = parts.pop()
            size += len(part) if isinstance(part, str) else _VALUE_BYTES
            if isinstance(part, list):
                parts += part
            elif isinstance(part, dict):
                parts += part.values()
                fuzziness = part.get("fuzziness")
                if isinstance(fuzziness, int) and fuzziness > _MAX_INLINE_EDITS:
                    return "its fuzziness"
        return "its long full-text query" if size > _MAX_INLINE_TEXT else None


def build_full_text(dataset: LanceDataset, query: FullText) -> lq.FullTextQuery | dict[str, object]:
    """Return a full-text query in Lance's form."""
    if query.structured is not None:
        return _structured(dataset, query.structured, 0)
    return {"query": query.text or "", "columns": list(query.columns) or indexed_columns(dataset)}


def indexed_columns(dataset: LanceDataset) -> list[str]:
    """Return the columns that have a full-text index."""
    found = [
        column
        for index in dataset.describe_indices()
        if "invertedindex" in index.type_url.lower()
        for column in index.field_names
    ]
    if not found:
        raise InvalidInputError("No column has a full-text index; create one first.")
    return sorted(set(found))


def _structured(dataset: LanceDataset, query: object, depth: int) -> lq.FullTextQuery:
    if depth > _MAX_DEPTH:
        raise InvalidInputError(f"The full-text query is nested too deeply: more than {_MAX_DEPTH} levels.")
    if not isinstance(query, dict):
        raise InvalidInputError("A full-text query must be an object.")
    given = [(kind, body) for kind, body in query.items() if kind in _KINDS and body is not None]
    if len(given) != 1 or not isinstance(given[0][1], dict):
        raise InvalidInputError(f"A full-text query must have exactly one of {', '.join(_KINDS)}.")
    kind, body = given[0][0], {name: value for name, value in given[0][1].items() if value is not None}
    try:
        return _KINDS[kind](dataset, body, depth)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise InvalidInputError(f"The full-text query's {kind!r} is invalid: {clean_message(str(error))}.") from None


def _match(dataset: LanceDataset, body: Clause, _: int) -> lq.FullTextQuery:
    terms = _text(body, "terms")
    options = {
        "boost": body.get("boost", 1.0),
        "fuzziness": 0 if body.get("fuzziness") is None else body["fuzziness"],
        "max_expansions": body.get("max_expansions", 50),
        "operator": _operator(body),
        "prefix_length": body.get("prefix_length", 0),
    }
    columns = [body["column"]] if body.get("column") else indexed_columns(dataset)
    queries = [lq.MatchQuery(terms, column, **options) for column in columns]
    if len(queries) == 1:
        return queries[0]
    return lq.BooleanQuery([(lq.Occur.SHOULD, query) for query in queries])


def _phrase(dataset: LanceDataset, body: Clause, _: int) -> lq.FullTextQuery:
    columns = [body["column"]] if body.get("column") else indexed_columns(dataset)
    queries = [lq.PhraseQuery(_text(body, "terms"), column, slop=body.get("slop") or 0) for column in columns]
    if len(queries) == 1:
        return queries[0]
    return lq.BooleanQuery([(lq.Occur.SHOULD, query) for query in queries])


def _boost(dataset: LanceDataset, body: Clause, depth: int) -> lq.FullTextQuery:
    return lq.BoostQuery(
        _structured(dataset, body.get("positive"), depth + 1),
        _structured(dataset, body.get("negative"), depth + 1),
        negative_boost=body.get("negative_boost", 0.5),
    )


def _multi_match(dataset: LanceDataset, body: Clause, depth: int) -> lq.FullTextQuery:
    if "match_queries" in body:
        queries = [_structured(dataset, {"match": query}, depth + 1) for query in body["match_queries"]]
        return lq.BooleanQuery([(lq.Occur.SHOULD, query) for query in queries])
    columns = body.get("columns") or indexed_columns(dataset)
    return lq.MultiMatchQuery(_text(body, "query"), list(columns), boosts=body.get("boost"), operator=_operator(body))


def _boolean(dataset: LanceDataset, body: Clause, depth: int) -> lq.FullTextQuery:
    occurrences = (("must", lq.Occur.MUST), ("should", lq.Occur.SHOULD), ("must_not", lq.Occur.MUST_NOT))
    return lq.BooleanQuery(
        [
            (occurrence, _structured(dataset, query, depth + 1))
            for name, occurrence in occurrences
            for query in body.get(name) or []
        ]
    )


def _operator(body: Clause) -> lq.FullTextOperator:
    return lq.FullTextOperator[str(body.get("operator") or "Or").upper()]


def _text(body: Clause, name: str) -> str:
    if not isinstance(body.get(name), str):
        raise InvalidInputError(f"The full-text query needs {name!r}, a string.")
    return str(body[name])


_KINDS = {
    "match": _match,
    "phrase": _phrase,
    "boost": _boost,
    "multi_match": _multi_match,
    "boolean": _boolean,
}
