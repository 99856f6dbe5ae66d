"""Applying a table function in a child process: a partition that kills it, or hangs it, has failed.

The child asks for each batch of a partition, and sends back what it makes of them as soon as it has it.
"""

from __future__ import annotations

import json
import traceback
from typing import IO, Self

import pyarrow as pa

from pennon.functions.envelope import read_envelope
from pennon.functions.error_policy import ErrorPolicy
from pennon.functions.failures import RangeFailedError
from pennon.functions.loader import EnvironmentMismatchError, load
from pennon.functions.sandbox.child_process import (
    Child,
    as_report,
    batch_from_bytes,
    batch_to_bytes,
    open_function,
    read_frame,
    refusal,
    run_child,
    write_frame,
)
from pennon.functions.udf_calls import GRACE_SECONDS
from pennon.functions.udtf_calls import Batches, PartitionFailedError, TableFunction

#: Begins a partition, and ends its batches.
_MARK = b""


class SandboxedTableFunction:
    """Runs a table function like a TableFunction, in a child process that is started again whenever it dies."""

    def __init__(
        self,
        content: bytes,
        inputs: pa.Schema,
        outputs: pa.Schema,
        policy: ErrorPolicy | None = None,
        grace: float = GRACE_SECONDS,
    ) -> None:
        """Make a table function, given as the bytes of its envelope, ready for batches of a schema."""
        envelope = read_envelope(content)
        self._policy = envelope.error_policy if policy is None else policy
        settings = {"policy": self._policy.to_json(), "grace": grace}
        schemas = [schema.serialize().to_pybytes() for schema in (inputs, outputs)]
        opening = [json.dumps(settings).encode(), content, *schemas]
        self._child = Child(
            "pennon.functions.sandbox.udtf_calls", opening, envelope.name or "function", envelope.options.timeout
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()

    def run(self, _schema: pa.Schema, batches: Batches) -> Batches:
        """Yield what becomes of batches; raise PartitionFailedError when the function raises, or its process ends."""
        is_over = False
        try:
            self._child.send(_MARK)
            while not is_over:
                report = self._child.report()
                if report["outcome"] == "needs":
                    batch = next(batches, None)
                    self._child.send(_MARK if batch is None else batch_to_bytes(batch))
                elif report["outcome"] == "made":
                    yield batch_from_bytes(self._child.receive())
                else:
                    is_over = True
        except RangeFailedError as death:
            raise PartitionFailedError(death.type, death.message) from None
        finally:
            if not is_over:
                self._child.close()  # it is in the middle of a partition that nobody wants any more
        if report["outcome"] == "raised":
            rule = None if report["rule"] is None else self._policy.retries[report["rule"]]
            raise PartitionFailedError(report["type"], report["message"], rule)
        if report["outcome"] != "done":
            raise refusal(report)


# The child.


def _serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Load a table function and run it over the partitions that come in."""
    settings = json.loads(read_frame(requests))
    content = read_frame(requests)
    inputs, outputs = (pa.ipc.read_schema(pa.py_buffer(read_frame(requests))) for _ in range(2))
    policy = ErrorPolicy.from_json(settings["policy"])
    function = open_function(
        lambda: TableFunction(load(read_envelope(content)), outputs, policy, settings["grace"]), replies
    )
    while function is not None:
        read_frame(requests)
        write_frame(replies, _run(function, policy, inputs, requests, replies))


def _run(
    function: TableFunction, policy: ErrorPolicy, inputs: pa.Schema, requests: IO[bytes], replies: IO[bytes]
) -> bytes:
    """Run the function over a partition, and return the last report of it."""
    try:
        for batch in function.run(inputs, _asked_for(requests, replies)):
            write_frame(replies, as_report("made"))
            write_frame(replies, batch_to_bytes(batch))
    except PartitionFailedError as failure:
        rule = None if failure.rule is None else policy.retries.index(failure.rule)
        return as_report("raised", type=failure.type, message=failure.message, rule=rule)
    except EnvironmentMismatchError as error:
        return as_report("mismatch", message=str(error))
    except (EOFError, BrokenPipeError):
        raise
    except Exception:  # noqa: BLE001 - the parent raises it
        return as_report("broken", message=traceback.format_exc())
    return as_report("done")


def _asked_for(requests: IO[bytes], replies: IO[bytes]) -> Batches:
    while True:
        write_frame(replies, as_report("needs"))
        content = read_frame(requests)
        if content == _MARK:
            return
        yield batch_from_bytes(content)


if __name__ == "__main__":
    run_child(_serve)
