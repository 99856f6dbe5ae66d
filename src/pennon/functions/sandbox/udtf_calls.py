"""Calling a UDTF in a child process: a partition that kills the process, or hangs it, has failed.

The child requests each batch of a partition, and sends each output batch as soon as it has it.
"""

from __future__ import annotations

import json
import traceback
from typing import IO, Self, TypedDict

import pyarrow as pa

from pennon.functions.envelope import read_envelope
from pennon.functions.error_policy import ErrorPolicy
from pennon.functions.failures import RangeFailedError
from pennon.functions.loader import EnvironmentMismatchError, load
from pennon.functions.sandbox.child_process import (
    Child,
    batch_from_bytes,
    batch_to_bytes,
    encode_report,
    error_of,
    open_function,
    read_frame,
    run_child,
    write_frame,
)
from pennon.functions.udf_calls import GRACE_SECONDS
from pennon.functions.udtf_calls import Batches, PartitionFailedError, TableFunction

#: Starts a partition, and ends its input batches.
_MARK = b""


class _Settings(TypedDict):
    policy: dict[str, object]
    grace: float


class SandboxedTableFunction:
    """Runs a UDTF like a TableFunction, in a child process that is restarted when it dies."""

    def __init__(
        self,
        content: bytes,
        inputs: pa.Schema,
        outputs: pa.Schema,
        policy: ErrorPolicy | None = None,
        grace: float = GRACE_SECONDS,
    ) -> None:
        """Prepare a UDTF, given as an envelope, for batches of a schema."""
        envelope = read_envelope(content)
        self._policy = envelope.error_policy if policy is None else policy
        settings: _Settings = {"policy": self._policy.to_json(), "grace": grace}
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
        """Yield the output of a partition; raise PartitionFailedError if the function raises or its process dies."""
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
                self._child.close()  # the rest of its partition is no longer wanted
        if report["outcome"] == "raised":
            rule = None if report["rule"] is None else self._policy.retries[report["rule"]]
            raise PartitionFailedError(report["type"], report["message"], rule)
        if report["outcome"] != "done":
            raise error_of(report)


# In the child process.


def _serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Load a UDTF and run it on the partitions that the parent sends."""
    settings: _Settings = json.loads(read_frame(requests))
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
    """Run the function on a partition, and return its final report."""
    try:
        for batch in function.run(inputs, _requested(requests, replies)):
            write_frame(replies, encode_report("made"))
            write_frame(replies, batch_to_bytes(batch))
    except PartitionFailedError as failure:
        rule = None if failure.rule is None else policy.retries.index(failure.rule)
        return encode_report("raised", type=failure.type, message=failure.message, rule=rule)
    except EnvironmentMismatchError as error:
        return encode_report("mismatch", message=str(error))
    except (EOFError, BrokenPipeError):
        raise
    except Exception:  # noqa: BLE001 - the parent raises it
        return encode_report("broken", message=traceback.format_exc())
    return encode_report("done")


def _requested(requests: IO[bytes], replies: IO[bytes]) -> Batches:
    while True:
        write_frame(replies, encode_report("needs"))
        content = read_frame(requests)
        if content == _MARK:
            return
        yield batch_from_bytes(content)


if __name__ == "__main__":
    run_child(_serve)
