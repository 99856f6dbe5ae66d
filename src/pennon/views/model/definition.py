"""The definition of a view, in one form whichever way it was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from pennon.core.identifiers import Identifier

Kind = Literal["query", "chunker", "udtf"]
#: What evaluates expressions: Lance where the request speaks its SQL, Spark where it speaks Spark's.
Engine = Literal["lance", "spark"]
#: What happens when a source has columns that the view did not know.
SchemaChange = Literal["fail", "rebuild", "ignore_new"]

#: Columns that tie a row of a view to the row of its source, and tell the children of one row apart.
SOURCE_ROW, CHILD = "__source_row_id", "__child_index"


@dataclass(frozen=True)
class Source:
    """A table that a view reads."""

    #: As the query names it.
    name: str
    table_id: str
    identifier: Identifier
    #: The columns that the view needs of it, as paths.
    columns: tuple[str, ...]
    #: A version that the query asks for; none means the newest.
    version: int | None = None


@dataclass(frozen=True)
class Column:
    """A column of a view: an expression over its source."""

    name: str
    expression: str


@dataclass(frozen=True)
class FunctionColumn:
    """Columns of a view that a function computes from columns of its source."""

    #: Where the view's folder keeps the function.
    reference: str
    inputs: tuple[str, ...]
    #: The view's columns, each with the field of the result that goes there; empty when the result itself does.
    outputs: tuple[tuple[str, str], ...]
    manifest: str | None = None


@dataclass(frozen=True)
class Expansion:
    """The function of a chunker or a table function, and how it is called."""

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
class FunctionUse:
    """A function of a view: where the view's folder keeps it, what it is given, and the columns that it makes."""

    reference: str
    inputs: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Definition:
    """What a view is made of."""

    kind: Kind
    engine: Engine
    sources: tuple[Source, ...]
    #: Of a query that Lance evaluates, and the columns that a chunker's children have from their parent.
    columns: tuple[Column, ...] = ()
    #: Whether all columns of the source were asked for, so that new ones of it belong to the view.
    all_columns: bool = False
    where: str | None = None
    limit: int | None = None
    offset: int | None = None
    functions: tuple[FunctionColumn, ...] = ()
    #: Of a query that Spark evaluates: its tables are called by the names of the sources (plain words such as
    #: ``source_1``), each with the columns of ``Source.columns`` alone, so that ``*`` stays what it was. One that works
    #: row by row also returns, as its first column, ``SOURCE_ROW``, which its source then has to have as a column.
    sql: str | None = None
    expansion: Expansion | None = None
    #: Why every refresh computes the whole view; none when it can follow the changes.
    rebuild_reason: str | None = None
    #: What the query reads that changes by itself, such as the time: then every refresh computes the view anew.
    volatile: str | None = None

    @property
    def is_incremental(self) -> bool:
        """Whether each row of the view comes from one row of one source, whatever the other rows are."""
        return self.rebuild_reason is None

    def uses(self) -> Iterator[FunctionUse]:
        """Return how the view uses functions, in the order of their columns."""
        for function in self.functions:
            yield FunctionUse(function.reference, function.inputs, tuple(column for column, _ in function.outputs))
        if self.expansion is not None:
            given = self.sources[0].columns if self.expansion.inputs is None else self.expansion.inputs
            yield FunctionUse(self.expansion.reference, given, self.expansion.outputs)

    def to_json(self) -> dict[str, Any]:
        """Return the definition as the catalog keeps it."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Return the definition that the catalog kept."""
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
