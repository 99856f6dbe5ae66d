"""The ``@udf`` decorator: turns a Python function or class into a UDF that computes columns."""

from __future__ import annotations

import functools
import inspect
import platform
import textwrap
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, overload

from pennon.functions.envelope import COLUMN_KINDS, Envelope, Kind, write_envelope
from pennon.functions.error_policy import ErrorPolicy
from pennon.functions.options import FunctionOptions, Options
from pennon.functions.outputs import Output, outputs_of
from pennon.functions.type_hints import data_type_of

if TYPE_CHECKING:
    import pyarrow as pa

    from pennon.functions.pickles import Packed

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

NO_HINT = object()
_MAX_SOURCE_LENGTH = 64 * 1024


class Function(Generic[P, R_co]):
    """A user-defined function: UDF, chunker or UDTF. Calling it calls the undecorated function or class."""

    # Pickled functions that refer to others hold objects of this class: its attributes and its module are kept.

    __name__: str

    def __init__(
        self,
        plain: Callable[P, R_co],
        *,
        name: str,
        version: str | None,
        kind: Kind,
        inputs: tuple[str, ...],
        outputs: tuple[Output, ...],
        options: Options,
        arguments: tuple[tuple[object, ...], Mapping[str, object]] = ((), {}),
    ) -> None:
        functools.update_wrapper(self, plain, updated=())
        self.plain = plain
        self.name = name
        self.kind = kind
        self.stateful = isinstance(plain, type)
        self.inputs = inputs
        self.outputs = outputs
        self.options = options
        self._stated_version = version
        self._arguments = arguments

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the undecorated function or class."""
        return self.plain(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self.kind} function {self.name!r} of {', '.join(self.inputs) or 'nothing'}>"

    @property
    def version(self) -> str:
        """The version given in the decorator, else the sha256 of the pickle."""
        return self._stated_version or self._packed().sha256

    def constructed_with(self, *args: P.args, **kwargs: P.kwargs) -> Function[P, R_co]:
        """Return a UDF whose class is constructed with these arguments in every worker process."""
        if not self.stateful:
            raise TypeError(f"{self.name} is a function, not a class; it has no constructor.")
        return Function(
            self.plain,
            name=self.name,
            version=self._stated_version,
            kind=self.kind,
            inputs=self.inputs,
            outputs=self.outputs,
            options=self.options,
            arguments=(args, kwargs),
        )

    def pack(self) -> bytes:
        """Return the envelope of the function: the bytes that are sent, stored, and run by workers."""
        packed = self._packed()
        return write_envelope(
            Envelope(
                form="pennon",
                pickle=packed.pickle,
                sha256=packed.sha256,
                kind=self.kind,
                stateful=self.stateful,
                name=self.name,
                version=self._stated_version or packed.sha256,
                python=platform.python_version(),
                packages=packed.packages,
                inputs=self.inputs,
                outputs=self.outputs,
                options=self.options,
                source=_source_of(self.plain),
            )
        )

    def _packed(self) -> Packed:
        from pennon.functions.pickles import pack

        args, kwargs = self._arguments
        target: Callable[..., R_co] = self.plain
        if args or kwargs:
            target = functools.partial(target, *args, **kwargs)
        return pack(target, bundled={Path(module).stem.partition("-")[0] for module in self.options.py_modules})


@overload
def udf(plain: Callable[P, R], /) -> Function[P, R]: ...
@overload
def udf(
    *,
    data_type: pa.DataType | None = None,
    input_columns: Sequence[str] | None = None,
    kind: Kind | None = None,
    name: str | None = None,
    version: str | None = None,
    error_policy: ErrorPolicy | None = None,
    **options: Unpack[FunctionOptions],
) -> Callable[[Callable[P, R]], Function[P, R]]: ...
def udf(
    plain: Callable[P, R] | None = None,
    /,
    *,
    data_type: pa.DataType | None = None,
    input_columns: Sequence[str] | None = None,
    kind: Kind | None = None,
    name: str | None = None,
    version: str | None = None,
    error_policy: ErrorPolicy | None = None,
    **options: Unpack[FunctionOptions],
) -> object:
    """Declare a UDF (user-defined function) that computes the values of a feature column.

    Add the column with ``table.add_columns({"score": my_udf})`` and compute it with ``table.backfill("score")``. A
    class is a UDF with state, for example a model: each worker process constructs it once, calls its ``setup()`` if it
    has one, and then calls the object.

    Args:
        plain: The function or class, when the decorator is used without arguments.
        data_type: The Arrow type of the result; by default it follows from the return type hint. The fields of a
            struct, NamedTuple, dataclass or TypedDict become one output column each.
        input_columns: The columns passed as arguments, in order; nested ones by their path, as ``a.b``. By default the
            columns with the names of the arguments.
        kind: ``scalar`` gets the Python values of one row, ``batch`` gets pyarrow arrays, ``record_batch`` gets one
            pyarrow RecordBatch. By default the type hints of the arguments decide.
        name: The name of the UDF; by default the name of the function.
        version: The version of the UDF; by default the sha256 of its pickle. A new version makes computed rows stale.
        error_policy: What happens when a call fails; by default the job fails.
        options: ``batch_size`` (rows) and ``batch_bytes`` per call, ``timeout`` of a call in seconds,
            ``auto_backfill``, the resources ``num_cpus``, ``num_gpus`` and ``memory`` (bytes), ``image``, and a
            ``manifest`` of the Python environment with ``pip`` packages, ``py_modules`` and ``env_vars``.
    """

    def declare(plain: Callable[P, R]) -> Function[P, R]:
        signature = Signature(plain)
        chosen = signature.kind(kind)
        return Function(
            plain,
            name=name or name_of(plain),
            version=version,
            kind=chosen,
            inputs=signature.inputs(chosen, input_columns),
            outputs=_outputs(data_type, signature, chosen),
            options=Options(error_policy=error_policy or ErrorPolicy(), **options),
        )

    return decorate("udf", declare, plain)


def decorate(
    decorator: str, declare: Callable[[Callable[P, R]], Function[P, R]], plain: Callable[P, R] | None
) -> Function[P, R] | Callable[[Callable[P, R]], Function[P, R]]:
    """Declare a function, or return the decorator that does; a TypeError names the decorator and the function."""

    def named(plain: Callable[P, R]) -> Function[P, R]:
        try:
            return declare(plain)
        except TypeError as error:
            raise TypeError(f"@{decorator} on {name_of(plain)!r}: {error}.") from None

    return named if plain is None else named(plain)


class Signature:
    """The parameters and type hints of what is called for each row or batch."""

    def __init__(self, plain: Callable[..., object]) -> None:
        if not callable(plain):
            raise TypeError("expected a function or a class")
        self.called = _call_method(plain) if isinstance(plain, type) else plain
        if inspect.iscoroutinefunction(self.called):
            raise TypeError("async functions are not supported; use a regular function")
        parameters = list(inspect.signature(self.called).parameters.values())
        self.parameters = parameters[1:] if isinstance(plain, type) else parameters
        if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in self.parameters):
            raise TypeError("arguments are passed by position, so a keyword-only argument needs a default")

    def hint(self, name: str) -> object:
        """Return the type hint of a parameter, or of ``return``; NO_HINT if it has none."""
        return self._hints.get(name, NO_HINT)

    @functools.cached_property
    def _hints(self) -> dict[str, object]:
        try:
            return typing.get_type_hints(_with_hints(self.called), include_extras=True)
        except NameError as error:
            raise TypeError(f"a type hint cannot be resolved ({error}); pass data_type= and kind=") from None

    def kind(self, declared: Kind | None) -> Kind:
        """Return how the function is called: as stated, or as the type hints of its arguments say."""
        if declared is not None:
            if declared not in COLUMN_KINDS:
                raise TypeError(f"kind must be one of {', '.join(COLUMN_KINDS)}, not {declared!r}")
            return declared
        hints = {_kind_of_hint(self.hint(parameter.name)) for parameter in self.parameters}
        if hints <= {"scalar"}:
            return "scalar"
        if len(hints) > 1:
            raise TypeError("arguments must all be Python values, all be Arrow arrays, or be one RecordBatch")
        return hints.pop()

    def inputs(self, kind: Kind, declared: Sequence[str] | None) -> tuple[str, ...]:
        """Return the input columns: as stated, or those with the names of the arguments."""
        if isinstance(declared, str) or not all(isinstance(path, str) and path for path in declared or ()):
            raise TypeError("input_columns must be a list of column names")
        positional = [p for p in self.parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        is_variadic = any(p.kind is p.VAR_POSITIONAL for p in self.parameters)
        if declared is None:
            if kind == "record_batch" or is_variadic:
                raise TypeError("the arguments do not name the columns it reads; pass input_columns=")
            return tuple(p.name for p in positional)
        passed = 1 if kind == "record_batch" else len(declared)
        needed = sum(p.default is p.empty for p in positional)
        if passed < needed or (passed > len(positional) and not is_variadic):
            raise TypeError(
                f"input_columns passes {passed} values, but its arguments are ({', '.join(p.name for p in positional)})"
            )
        return tuple(declared)


def name_of(plain: object) -> str:
    """Return the name of a function or class, of the function of a partial one, or of the class of an object."""
    named = plain.func if isinstance(plain, functools.partial) else plain
    return str(getattr(named, "__name__", type(named).__name__))


def _kind_of_hint(hint: object) -> Kind:
    # pyarrow is imported only when a hint comes from it.
    if not isinstance(hint, type) or str(getattr(hint, "__module__", "")).partition(".")[0] != "pyarrow":
        return "scalar"
    import pyarrow as pa

    if issubclass(hint, pa.RecordBatch):
        return "record_batch"
    return "batch" if issubclass(hint, pa.Array) else "scalar"


def _source_of(plain: Any) -> str | None:  # inspect declares more than it takes
    """Return the source code of a function, if it is available and not too long to show."""
    try:
        source = textwrap.dedent(inspect.getsource(plain)).rstrip()
    except (OSError, TypeError):
        return None
    return source if len(source) <= _MAX_SOURCE_LENGTH else None


def _with_hints(called: object) -> object:
    """Return the function that has the type hints of a callable; partials and objects have none themselves."""
    if isinstance(called, functools.partial):
        called = called.func
    return called if inspect.isroutine(called) else type(called).__call__


def _call_method(plain: type) -> Callable[..., object]:
    called = inspect.getattr_static(plain, "__call__", None)
    if not inspect.isfunction(called):
        raise TypeError("a class needs a method __call__(self, ...)")
    return called


def _outputs(data_type: pa.DataType | None, signature: Signature, kind: Kind) -> tuple[Output, ...]:
    if inspect.isgeneratorfunction(signature.called):
        raise TypeError("a UDF must return one value per row, not yield several; use @chunker to make several rows")
    if data_type is not None:
        import pyarrow as pa

        if not isinstance(data_type, pa.DataType):
            raise TypeError(f"data_type must be an Arrow type, for example pa.float32(), not {data_type!r}")
        return outputs_of(data_type)
    hint = signature.hint("return")
    if hint is NO_HINT:
        raise TypeError("its result type is unknown; add a return type hint, or pass data_type=, such as pa.float32()")
    if kind != "scalar":
        raise TypeError("the return type hint of a batch UDF does not give the type of its values; pass data_type=")
    return outputs_of(data_type_of(hint))
