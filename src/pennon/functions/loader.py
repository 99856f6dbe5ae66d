"""Loading of functions: the only module that unpickles; only executors import it."""

from __future__ import annotations

import importlib.metadata
import pickle
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pennon.functions.envelope import Envelope
from pennon.functions.failures import name_of, text_of

# Arrow's format and Python API are stable across its major versions.
_ANY_VERSION = frozenset({"pyarrow"})


class EnvironmentMismatchError(Exception):
    """A function needs another Python version, or packages that this executor does not have."""


class LoadingFailedError(Exception):
    """A function cannot be unpickled, constructed or set up."""


@dataclass(frozen=True, eq=False)
class Loaded:
    """A function that is ready to be called."""

    envelope: Envelope
    call: Callable[..., object]

    @property
    def name(self) -> str:
        """The name from the envelope, else that of the callable."""
        return self.envelope.name or getattr(self.call, "__name__", "") or "function"


_MAX_LOADED = 4  # models are large
_loaded: dict[tuple[str, bool], Callable[..., object]] = {}


def load(envelope: Envelope) -> Loaded:
    """Load a function; a class is constructed and set up once per process."""
    mismatches = list(_mismatches(envelope))
    if mismatches:
        raise EnvironmentMismatchError(
            f"The function {envelope.name!r} cannot run on this executor: {'; '.join(mismatches)}."
        )
    key = (envelope.sha256, envelope.stateful)
    if key not in _loaded:
        call = _unpickle(envelope)
        if len(_loaded) >= _MAX_LOADED:
            del _loaded[next(iter(_loaded))]
        _loaded[key] = _construct(envelope, call) if envelope.stateful else call
    return Loaded(envelope, _loaded[key])


def _mismatches(envelope: Envelope) -> Iterator[str]:
    here = platform.python_version()
    if envelope.python is not None and envelope.python.split(".")[:2] != here.split(".")[:2]:
        yield f"it was packed with Python {envelope.python}, this executor has {here}"
    for package, version in envelope.packages.items():
        installed = _installed(package)
        if installed is None:
            yield f"it was packed with {package} {version}, which this executor does not have"
        elif package not in _ANY_VERSION and _series(installed) != _series(version):
            yield f"it was packed with {package} {version}, this executor has {installed}"


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _series(version: str) -> list[str]:
    """Return the part of a version that changes with incompatible releases: 2 of 2.1.3, and 0.4 of 0.4.1."""
    parts = version.split(".")
    return parts[:2] if parts[0] == "0" else parts[:1]


def _unpickle(envelope: Envelope) -> Callable[..., object]:
    try:
        target: object = pickle.loads(envelope.pickle)  # noqa: S301 - executors run users' code here
    except ModuleNotFoundError as error:
        raise missing_package(envelope, error) from error
    except (Exception, SystemExit) as error:
        raise _loading_failed(envelope, "cannot be unpickled", error) from error
    if not callable(target):
        raise LoadingFailedError(f"The pickle holds a {type(target).__name__}, which is not callable.")
    return target


def _construct(envelope: Envelope, constructor: Callable[..., object]) -> Callable[..., object]:
    try:
        instance = constructor()
        if callable(setup := getattr(instance, "setup", None)):
            setup()
    except ModuleNotFoundError as error:
        raise missing_package(envelope, error) from error
    except (Exception, SystemExit) as error:
        raise _loading_failed(envelope, "cannot be set up", error) from error
    if not callable(instance):
        raise LoadingFailedError(f"Instances of the class {envelope.name!r} are not callable.")
    return instance


def _loading_failed(envelope: Envelope, what: str, error: BaseException) -> LoadingFailedError:
    return LoadingFailedError(f"The function {envelope.name!r} {what}: {name_of(type(error))}: {text_of(error)}")


def missing_package(envelope: Envelope, error: ModuleNotFoundError) -> EnvironmentMismatchError:
    """Return the error for a package that a function needs and this executor does not have."""
    package = (error.name or str(error)).partition(".")[0]
    if envelope.form == "geneva" and package == "geneva":
        return EnvironmentMismatchError("The function was packed with geneva, which this executor does not have.")
    return EnvironmentMismatchError(
        f"The function {envelope.name!r} needs the package {package!r}, which this executor does not have. "
        "Add it to the manifest's 'pip', or install it on the executor."
    )
