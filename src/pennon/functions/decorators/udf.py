"""The decorator that turns a Python function, or a class with state, into one that fills columns."""

from __future__ import annotations

import functools
import inspect
import platform
import textwrap
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from pennon.functions.envelope import COLUMN_KINDS, Envelope, Kind, write_envelope
from pennon.functions.error_policy import ErrorPolicy
from pennon.functions.options import Options
from pennon.functions.outputs import Output, outputs_of
from pennon.functions.type_hints import data_type_of

if TYPE_CHECKING:
    import pyarrow as pa

    from pennon.functions.pickles import Packed

P = ParamSpec("P")
R = TypeVar("R")

NO_HINT = object()
_LONGEST_SOURCE = 64 * 1024


class Function(Generic[P, R]):
    """A function that fills columns. Called, it does what the plain function or class does."""

    __name__: str

    def __init__(
        self,
        plain: Callable[P, R],
        *,
        name: str,
        version: str | None,
        kind: Kind,
        inputs: tuple[str, ...],
        outputs: tuple[Output, ...],
        options: Options,
        arguments: tuple[tuple[Any, ...], dict[str, Any]] = ((), {}),
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

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Do what the plain function or class does."""
        return self.plain(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self.kind} function {self.name!r} of {', '.join(self.inputs) or 'nothing'}>"

    @property
    def version(self) -> str:
        """The version its author gave the function, or the digest of its pickle."""
        return self._stated_version or self._packed().sha256

    def constructed_with(self, *args: P.args, **kwargs: P.kwargs) -> Function[P, R]:
        """Return the function of a class whose constructor gets these arguments on every worker."""
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
        """Return the envelope: the bytes that are stored and run elsewhere."""
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
        thing = functools.partial(self.plain, *args, **kwargs) if args or kwargs else self.plain
        modules = (self.options.manifest or {}).get("py_modules", ())
        return pack(thing, shipped={Path(module).stem.partition("-")[0] for module in modules})


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
    batch_size: int | None = None,
    batch_bytes: int | None = None,
    timeout: float | None = None,
    error_policy: ErrorPolicy | None = None,
    auto_backfill: bool = False,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    memory: int | None = None,
    image: str | None = None,
    manifest: Mapping[str, Any] | None = None,
) -> Callable[[Callable[P, R]], Function[P, R]]: ...
def udf(
    plain: Callable[..., Any] | None = None,
    /,
    *,
    data_type: pa.DataType | None = None,
    input_columns: Sequence[str] | None = None,
    kind: Kind | None = None,
    name: str | None = None,
    version: str | None = None,
    error_policy: ErrorPolicy | None = None,
    **options: Any,
) -> Any:
    """Declare a function that fills columns; a class is constructed, and set up, once a worker process.

    Args:
        plain: The function or class, where the decorator is used without arguments.
        data_type: The Arrow type of the result, else taken from the return hint. A struct's fields become one output
            column each, as do those of a NamedTuple, dataclass or TypedDict.
        input_columns: The columns given as arguments, in order; nested ones by their path, as ``a.b``. By default
            those that are called like the arguments.
        kind: ``scalar`` gets the Python values of one row, ``batch`` gets pyarrow arrays, ``record_batch`` one
            pyarrow RecordBatch. By default the arguments' hints decide.
        name: Its name, else that of the function.
        version: Its version, else the digest of its pickle.
        error_policy: What happens when it fails; by default the job fails.
        options: ``batch_size`` (rows) and ``batch_bytes`` of a call, ``timeout`` of a call in seconds,
            ``auto_backfill``, ``num_cpus``, ``num_gpus`` and ``memory`` it needs, ``image``, and ``manifest`` with
            ``pip`` packages, ``py_modules`` and ``env_vars``.
    """

    def declare(plain: Callable[..., Any]) -> Function[..., Any]:
        try:
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
        except TypeError as error:
            raise TypeError(f"@udf on {name_of(plain)!r}: {error}.") from None

    return declare if plain is None else declare(plain)


class Signature:
    """The parameters and hints of what is called for each row or batch."""

    def __init__(self, plain: Callable[..., Any]) -> None:
        if not callable(plain):
            raise TypeError("a function or a class is expected")
        self.called = _call_method(plain) if isinstance(plain, type) else plain
        if inspect.iscoroutinefunction(self.called):
            raise TypeError("an async function cannot be called here; make it a plain one")
        parameters = list(inspect.signature(self.called).parameters.values())
        self.parameters = parameters[1:] if isinstance(plain, type) else parameters
        if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in self.parameters):
            raise TypeError("values are passed by position, so an argument after '*' needs a default")

    def hint(self, name: str) -> Any:
        """Return the hint of a parameter, or of what is returned."""
        return self._hints.get(name, NO_HINT)

    @functools.cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(_hinted(self.called), include_extras=True)
        except NameError as error:
            raise TypeError(f"a hint cannot be resolved ({error}); pass data_type= and kind=") from None

    def kind(self, stated: Kind | None) -> Kind:
        """Return how the function is called: as stated, or as the hints of its arguments say."""
        if stated is not None:
            if stated not in COLUMN_KINDS:
                raise TypeError(f"kind is one of {', '.join(COLUMN_KINDS)}, not {stated!r}")
            return stated
        hints = {self._arrow_kind(self.hint(parameter.name)) for parameter in self.parameters}
        if hints <= {"scalar"}:
            return "scalar"
        if len(hints) > 1:
            raise TypeError("some arguments are Arrow arrays or batches and others are not; make them one kind")
        return hints.pop()

    @staticmethod
    def _arrow_kind(hint: Any) -> Kind:
        module = getattr(hint, "__module__", None)
        if not isinstance(hint, type) or not isinstance(module, str) or module.partition(".")[0] != "pyarrow":
            return "scalar"
        import pyarrow as pa

        if issubclass(hint, pa.RecordBatch):
            return "record_batch"
        return "batch" if issubclass(hint, pa.Array) else "scalar"

    def inputs(self, kind: Kind, stated: Sequence[str] | None) -> tuple[str, ...]:
        """Return the columns that are passed: as stated, or called like the arguments."""
        if isinstance(stated, str) or not all(isinstance(path, str) and path for path in stated or ()):
            raise TypeError("input_columns is a list of column names")
        positional = [p for p in self.parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        endless = any(p.kind is p.VAR_POSITIONAL for p in self.parameters)
        if stated is None:
            if kind == "record_batch" or endless:
                raise TypeError("the arguments do not say which columns it reads; pass input_columns=")
            return tuple(p.name for p in positional)
        passed = 1 if kind == "record_batch" else len(stated)
        needed = sum(p.default is p.empty for p in positional)
        if passed < needed or (passed > len(positional) and not endless):
            raise TypeError(
                f"{passed} values would be passed for the arguments ({', '.join(p.name for p in positional)})"
            )
        return tuple(stated)


def _source_of(plain: Any) -> str | None:
    """Return the text a function was written as, if it is known and of a length for people to read."""
    try:
        source = textwrap.dedent(inspect.getsource(plain)).rstrip()
    except (OSError, TypeError):
        return None
    return source if len(source) <= _LONGEST_SOURCE else None


def name_of(plain: Any) -> str:
    """Return the name of a function or class, of the function of a partial one, or of the class of an object."""
    named = plain.func if isinstance(plain, functools.partial) else plain
    return str(getattr(named, "__name__", type(named).__name__))


def _hinted(called: Any) -> Any:
    """Return what has the hints of a callable, which a partial function and an object have not."""
    if isinstance(called, functools.partial):
        called = called.func
    return called if inspect.isroutine(called) else type(called).__call__


def _call_method(plain: type) -> Callable[..., Any]:
    called = inspect.getattr_static(plain, "__call__", None)
    if not inspect.isfunction(called):
        raise TypeError("a class needs a method __call__(self, ...)")
    return called


def _outputs(data_type: pa.DataType | None, signature: Signature, kind: Kind) -> tuple[Output, ...]:
    if inspect.isgeneratorfunction(signature.called):
        raise TypeError("it yields values where one is to be returned; @chunker makes several rows of one")
    if data_type is not None:
        import pyarrow as pa

        if not isinstance(data_type, pa.DataType):
            raise TypeError(f"data_type is an Arrow type, for example pa.float32(), not {data_type!r}")
        return outputs_of(data_type)
    hint = signature.hint("return")
    if hint is NO_HINT:
        raise TypeError("the type of its result is unknown; hint it, or pass data_type=, for example pa.float32()")
    if kind != "scalar":
        raise TypeError("the hint of a batch does not say the type of its values; pass data_type=")
    return outputs_of(data_type_of(hint))
