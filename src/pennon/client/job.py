"""Jobs of a server: their state and progress, and waiting for them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypedDict, cast
from urllib.parse import quote

from lance_namespace.errors import InternalError, LanceNamespaceError, ServiceUnavailableError

from pennon.client.progress import JobProgress
from pennon.client.transport import new_key

if TYPE_CHECKING:
    import pyarrow as pa

    from pennon.client.transport import JsonObject, Transport

_ACTIVE = {"pending", "running", "committing", "paused"}
#: LanceDB's names of states, for a response without Pennon's own.
_STATES = {"in_progress": "running", "canceled": "cancelled"}
_FIRST_POLL_SECONDS = 0.2
_MAX_POLL_SECONDS = 2.0
#: Events come for every batch of work; the full description is read no more often than this.
_REFRESH_SECONDS = 0.5
#: How long to wait for a server that does not respond: after a restart it continues its jobs.
_UNREACHABLE_SECONDS = 120.0


class JobFailure(TypedDict, total=False):
    """Why a job failed."""

    phase: str
    type: str
    message: str
    retryable: bool


class JobFields(TypedDict, total=False):
    """What the server says about a job; some only in its full description."""

    job_id: str
    job_type: str
    kind: str
    table: str
    target: str
    state: str
    #: The state in the words of LanceDB's client.
    job_state: str
    counters: dict[str, float]
    result: dict[str, Any] | None
    failure: JobFailure | None
    waiting_for: str
    created_at_millis: int
    creation_ms: int
    submitted_by: str
    spec: dict[str, object]


class JobError(Exception):
    """A job ended without success; ``job`` is the job."""

    def __init__(self, job: Job, message: str) -> None:
        super().__init__(message)
        self.job = job

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.job, str(self))


class JobFailedError(JobError):
    """The job failed; ``phase``, ``kind`` and ``retryable`` give the details."""

    @property
    def phase(self) -> str:
        """The phase in which the job failed, such as ``preflight`` or ``compute``."""
        return str((self.job.failure or {}).get("phase", ""))

    @property
    def kind(self) -> str:
        """The type of the error that ended the job."""
        return str((self.job.failure or {}).get("type", ""))

    @property
    def retryable(self) -> bool:
        """Whether the same job may succeed if it is retried."""
        return bool((self.job.failure or {}).get("retryable", False))


class JobTimedOutError(JobFailedError):
    """The job exceeded its timeout and was ended by the server."""


class JobCancelledError(JobError):
    """The job was cancelled."""


class Job:
    """A job of the server, such as a backfill or a refresh; it runs whether or not a client waits for it."""

    def __init__(self, transport: Transport, job_id: str, fields: JobFields | None = None) -> None:
        self._transport = transport
        self._id = job_id
        self._fields: JobFields = {**fields} if fields else {}
        #: Whether the fields are those of the full description; listings have only some.
        self._is_described = self._is_unreachable = False
        self._last_event = ""

    def __repr__(self) -> str:
        named = " ".join(part for part in (self.kind, self.table, self.target) if part)
        return f"<Job {self.id}: {named}, {self.state}>" if named else f"<Job {self.id}: {self.state}>"

    @property
    def id(self) -> str:
        """The job's id; ``connection.job(id)`` finds the job again."""
        return self._id

    @property
    def kind(self) -> str:
        """The kind of the job, such as ``backfill`` or ``refresh``."""
        fields = self._any_fields()
        return str(fields.get("job_type") or fields.get("kind") or "")

    @property
    def table(self) -> str:
        """The table or view that the job works on."""
        return str(self._any_fields().get("table") or "")

    @property
    def target(self) -> str:
        """What the job computes: the column of a backfill."""
        return str(self._any_fields().get("target") or "")

    @property
    def state(self) -> str:
        """The last known state: pending, running, committing, paused, done, failed, cancelled or timed_out."""
        fields = self._any_fields()
        state = str(fields.get("state") or fields.get("job_state") or "pending").lower()
        return _STATES.get(state, state)

    @property
    def finished(self) -> bool:
        """Whether the job has ended: done, failed, cancelled or timed out."""
        return self.state not in _ACTIVE

    @property
    def counters(self) -> dict[str, float]:
        """Rows, fragments, bytes and seconds so far."""
        return dict(self._description().get("counters") or {})

    @property
    def result(self) -> dict[str, Any] | None:
        """The result of the job, once it is done."""
        return self._description().get("result")

    @property
    def failure(self) -> JobFailure | None:
        """Why the job failed: phase, type, message, and whether it is retryable."""
        return self._description().get("failure")

    @property
    def waiting_for(self) -> str:
        """What a pending job waits for; also set while the server does not respond."""
        if self._is_unreachable:
            return "the server does not respond"
        return str(self._any_fields().get("waiting_for") or "") if self.state == "pending" else ""

    @property
    def created_at(self) -> datetime | None:
        """When the job was submitted."""
        fields = self._any_fields()
        millis = fields.get("created_at_millis") or fields.get("creation_ms")
        return None if millis is None else datetime.fromtimestamp(float(millis) / 1000, UTC)

    def refresh(self) -> Job:
        """Read the current state of the job from the server."""
        self._fields = cast(JobFields, self._transport.read("/v1/jobs/describe", {"job_id": self.id}))
        self._is_described, self._is_unreachable = True, False
        return self

    def wait(self, timeout: float | None = None, progress: bool = True) -> Job:
        """Wait until the job is done and return it; raise a JobError if it fails, times out or is cancelled.

        A terminal or notebook shows a progress bar. Neither an interrupt nor the timeout of this call ends the job.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            with JobProgress(enabled=progress) as bar:
                for _ in self.follow(deadline):
                    bar.show(self)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"Job {self.id} continues on the server. {self._reconnect_hint()}") from None
        if not self.finished:
            waits = f" (waiting: {self.waiting_for})" if self.waiting_for else ""
            raise TimeoutError(
                f"Job {self.id} is still {self.state} after {timeout:g} s{waits}. {self._reconnect_hint()}"
            )
        if self.state != "done":
            self._raise()
        return self

    def follow(self, deadline: float | None = None) -> Iterator[Job]:
        """Yield the job after each change, until it has ended or the deadline (monotonic time) has passed."""
        pause = _FIRST_POLL_SECONDS
        # A server that has described the job may be restarting; one that never did may be the wrong address.
        yield from self._poll(deadline) if self._fields else [self.refresh()]
        while not self.finished and _remaining(deadline) > 0:
            has_events = False
            for _ in self._follow_events(deadline):
                has_events = True
                yield self
            pause = _FIRST_POLL_SECONDS if has_events else min(pause * 1.5, _MAX_POLL_SECONDS)
            self._sleep(min(pause, _remaining(deadline)))
            yield from self._poll(deadline)

    def cancel(self) -> str:
        """Cancel the job and return the outcome: cancelled, cancelling, committing, already_done and so on.

        What the job has committed stays; after "cancelling" it commits nothing more.
        """
        return self._control("cancel")

    def pause(self) -> str:
        """Pause the job and return the outcome: paused, pausing, committing or already_paused."""
        return self._control("pause")

    def resume(self) -> str:
        """Resume a paused job and return the outcome: resumed, still_pausing or not_paused."""
        return self._control("resume")

    def retry(self, only_failed: bool = False) -> Job:
        """Submit the job again, or only its failed rows, and return the new job."""
        response = self._post("retry", {"only_failed": True} if only_failed else {})
        return job_from_response(self._transport, response).refresh()

    def events(self) -> pa.Table:
        """Return the events of the job so far, one per row."""
        import pyarrow as pa

        pages: list[pa.Table] = []
        while not pages or pages[-1].num_rows:
            body = {"job_id": self.id, **({"after": pages[-1]["seq"][-1].as_py()} if pages else {})}
            content = self._transport.read_bytes("/v1/jobs/query_events", body)
            pages.append(pa.ipc.open_stream(content).read_all())
        return pa.concat_tables(pages)

    def _description(self) -> JobFields:
        if not self._is_described:
            self.refresh()
        return self._fields

    def _any_fields(self) -> JobFields:
        """Return the known fields, even if they are only those of a listing."""
        return self._fields or self._description()

    def _post(self, verb: str, more: JsonObject) -> JsonObject:
        return self._transport.post(f"/v1/jobs/{verb}", {"job_id": self.id, **more}, idempotency_key=new_key())

    def _control(self, verb: Literal["cancel", "pause", "resume"]) -> str:
        response = self._post(verb, {})
        self.refresh()
        return str(response.get("status") or self.state)

    def _follow_events(self, deadline: float | None) -> Iterator[None]:
        """Update the job from its live events; yields nothing if a server or proxy does not offer them."""
        refreshed = time.monotonic()
        path = f"/v1/jobs/{quote(self.id, safe='')}/events"
        try:
            for event in self._transport.stream_events(path, after=self._last_event, until=deadline):
                self._last_event = event.id
                data = _parse(event.data)
                if state := data.get("state"):
                    self._fields["state"] = state
                if counters := data.get("counters"):
                    self._fields["counters"] = counters
                if self.finished or time.monotonic() - refreshed > _REFRESH_SECONDS:
                    self.refresh()
                    refreshed = time.monotonic()
                yield
                if self.finished:
                    return
        except LanceNamespaceError:
            return

    def _poll(self, deadline: float | None) -> Iterator[Job]:
        """Read the job's state, and repeat that while the server does not respond."""
        give_up_at = time.monotonic() + _UNREACHABLE_SECONDS
        while True:
            try:
                self.refresh()
            except ServiceUnavailableError as error:
                if time.monotonic() > give_up_at:
                    message = f"{str(error).rstrip('.')}. Job {self.id} may still be running. {self._reconnect_hint()}"
                    raise ServiceUnavailableError(message) from error
                self._is_unreachable = True
            yield self
            if not self._is_unreachable or _remaining(deadline) <= 0:
                return
            self._sleep(min(_MAX_POLL_SECONDS, _remaining(deadline)))

    def _sleep(self, seconds: float) -> None:
        if not self.finished:
            time.sleep(max(0.0, seconds))

    def _raise(self) -> NoReturn:
        if self.state == "cancelled":
            raise JobCancelledError(self, f"Job {self.id} was cancelled.")
        failure = self.failure or {}
        phase = f" in the phase {failure['phase']}" if failure.get("phase") else ""
        reason = ": ".join(part for part in (failure.get("type"), failure.get("message")) if part)
        kind = JobTimedOutError if self.state == "timed_out" else JobFailedError
        how = "timed out" if self.state == "timed_out" else "failed"
        raise kind(self, f"Job {self.id} {how}{phase}: {reason}" if reason else f"Job {self.id} {how}{phase}.")

    def _reconnect_hint(self) -> str:
        return f"To wait for it again: pennon.connect({self._transport.url!r}).job({self.id!r}).wait()"


def job_from_response(transport: Transport, response: JsonObject, **fields: str) -> Job:
    """Return the job that the response to a submission names, with the fields that are known of it."""
    job_id = response.get("job_id")
    if not job_id:
        raise InternalError("The server accepted the job but returned no job id; connection.jobs() lists the job.")
    return Job(transport, str(job_id), cast(JobFields, {"state": "pending", **fields}))


def _remaining(deadline: float | None) -> float:
    return float("inf") if deadline is None else deadline - time.monotonic()


def _parse(data: str) -> JobFields:
    try:
        document = json.loads(data)
    except ValueError:
        return {}
    return cast(JobFields, document) if isinstance(document, dict) else {}
