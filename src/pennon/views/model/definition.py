"""The definition of a view, in one form for all kinds of requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from pennon.core.identifiers import Identifier

Kind = Literal["query", "chunker", "udtf"]
#: The engine that evaluates expressions: Lance or Spark, depending on the dialect of the request.
Engine = Literal["lance", "spark"]
#: What a refresh does if a source has new columns.
SchemaChange = Literal["fail", "rebuild", "ignore_new"]

#: Hidden columns of a view: the row id of the source row, and its index among that row's children.
SOURCE_ROW, CHILD = "__source_row_id", "__child_index"


@dataclass(frozen=True)
class Source:
    """A table that a view reads."""

    #: The name in the query.
    name: str
    table_id: str
    identifier: Identifier
    #: The paths of the columns that the view reads.
    columns: tuple[str, ...]
    #: The version that the query selects; none means the newest.
    version: int | None = None


@dataclass(frozen=True)
class Column:
    """A column of a view: an expression on its source."""

    name: str
    expression: str


@dataclass(frozen=True)
class FunctionColumn:
    """Columns of a view that a function computes from columns of its source."""

    #: The path of the function in the folder of the view.
    reference: str
    inputs: tuple[str, ...]
    #: The columns of the view, each with its field in the result; the field is empty for the whole result.
    outputs: tuple[tuple[str, str], ...]
    manifest: str | None = None


@dataclass(frozen=True)
class Expansion:
    """The function of a chunker or a UDTF, and its options."""

    reference: str
    name: str
    version: str
    #: None means all columns of the source.
    inputs: tuple[str, ...] | None
    #: The columns that the function itself returns.
    outputs: tuple[str, ...]
    batch: bool = False
    partition_by: str | None = None
    partition_by_indexed_column: str | None = None
    num_cpus: float | None = None
    num_gpus: float | None = None
    memory: int | None = None
    error_handling: dict[str, Any] | None = None
    manifest: str | None = None


@dataclass(frozen=True)
class ViewFunction:
    """A function of a view: its path in the folder of the view, its inputs, and its columns."""

    reference: str
    inputs: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Definition:
    """The definition of a view."""

    kind: Kind
    engine: Engine
    sources: tuple[Source, ...]
    #: The columns that Lance evaluates, or that the rows of a chunker have from their source row.
    columns: tuple[Column, ...] = ()
    #: Whether the query selects all columns, so that new columns of a source become columns of the view.
    all_columns: bool = False
    where: str | None = None
    limit: int | None = None
    offset: int | None = None
    functions: tuple[FunctionColumn, ...] = ()
    #: The query that Spark evaluates. Its tables have the names of the sources (such as ``source_1``), and only the
    #: columns in ``Source.columns``, so that the meaning of ``*`` does not change. An incremental query also returns
    #: ``SOURCE_ROW`` as its first column, which its source must then provide.
    sql: str | None = None
    expansion: Expansion | None = None
    #: Why every refresh computes the whole view; none if it can be refreshed incrementally.
    rebuild_reason: str | None = None
    #: A function in the query whose value changes without any write, such as now(): every refresh is a rebuild.
    volatile: str | None = None

    @property
    def is_incremental(self) -> bool:
        """Whether each row of the view depends on a single row of a single source."""
        return self.rebuild_reason is None

    def uses(self) -> Iterator[ViewFunction]:
        """Yield the functions of the view, in the order of their columns."""
        for function in self.functions:
            yield ViewFunction(function.reference, function.inputs, tuple(column for column, _ in function.outputs))
        if self.expansion is not None:
            given = self.sources[0].columns if self.expansion.inputs is None else self.expansion.inputs
            yield ViewFunction(self.expansion.reference, given, self.expansion.outputs)

    def to_json(self) -> dict[str, Any]:
        """Return the definition as stored in the catalog."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Return a definition that was stored in the catalog."""
        expansion = document["expansion"]
        return cls(
            **{
                **document,
                "sources": tuple(
                    Source(**{**s, "identifier": tuple(s["identifier"]), "columns": tuple(s["columns"])})
                    for s in document["sources"]
                ),
                "columns": tuple(Column(**column) for column in document["columns"]),
                "functions": tuple(
                    FunctionColumn(
                        f["reference"], tuple(f["inputs"]), tuple((a, b) for a, b in f["outputs"]), f["manifest"]
                    )
                    for f in document["functions"]
                ),
                "expansion": None
                if expansion is None
                else Expansion(
                    **{
                        **expansion,
                        "inputs": None if expansion["inputs"] is None else tuple(expansion["inputs"]),
                        "outputs": tuple(expansion["outputs"]),
                    }
                ),
            }
        )
