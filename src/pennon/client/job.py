"""Jobs of a server: what they do, how far they are, and how to wait for them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

from lance_namespace.errors import InternalError, LanceNamespaceError, ServiceUnavailableError

from pennon.client.progress import JobProgress
from pennon.client.transport import new_key

if TYPE_CHECKING:
    import pyarrow as pa

    from pennon.client.transport import Transport

_ACTIVE = {"pending", "running", "committing", "paused"}
#: The states that LanceDB's client knows, for an answer without the finer one.
_STATES = {"in_progress": "running", "canceled": "cancelled"}
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 2.0
#: Events come for every piece of work; the whole description is asked for no more often than this.
_REFRESH_SECONDS = 0.5
#: How long whoever follows a job waits for a server that does not answer: one that is started anew carries jobs on.
_AWAY_SECONDS = 120.0


class JobError(Exception):
    """A job that was waited for did not come to a good end; ``job`` is the job."""

    def __init__(self, job: Job, message: str) -> None:
        super().__init__(message)
        self.job = job

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.job, str(self))


class JobFailedError(JobError):
    """The job failed; ``phase``, ``kind`` and ``retryable`` say more."""

    @property
    def phase(self) -> str:
        """In which phase it failed, e.g. ``preflight`` or ``compute``."""
        return str((self.job.failure or {}).get("phase", ""))

    @property
    def kind(self) -> str:
        """The type of the error that ended the job."""
        return str((self.job.failure or {}).get("type", ""))

    @property
    def retryable(self) -> bool:
        """Whether the same job may succeed when it is tried again."""
        return bool((self.job.failure or {}).get("retryable", False))


class JobTimedOutError(JobFailedError):
    """The job was ended because it took longer than it was given."""


class JobCancelledError(JobError):
    """The job was cancelled."""


class Job:
    """A job of the server; it goes on whether or not anyone waits for it."""

    def __init__(self, transport: Transport, job_id: str, known: dict[str, Any] | None = None) -> None:
        self._transport = transport
        self._id = job_id
        self._known = dict(known or {})
        #: Lists tell only a part of a job.
        self._described = self._is_away = False
        self._last_event = ""

    def __repr__(self) -> str:
        named = " ".join(part for part in (self.kind, self.table, self.target) if part)
        return f"<Job {self.id}: {named}, {self.state}>" if named else f"<Job {self.id}: {self.state}>"

    @property
    def id(self) -> str:
        """The job's id, by which any connection finds it again."""
        return self._id

    @property
    def kind(self) -> str:
        """What kind of job it is, e.g. ``backfill``."""
        return str(self._tell("job_type") or self._tell("kind") or "")

    @property
    def table(self) -> str:
        """The table the job works on."""
        return str(self._tell("table") or "")

    @property
    def target(self) -> str:
        """What the job makes: of a backfill, the column."""
        return str(self._tell("target") or "")

    @property
    def state(self) -> str:
        """The state, as last heard: pending, running, committing, paused, done, failed, cancelled or timed_out."""
        state = str(self._tell("state") or self._tell("job_state") or "pending").lower()
        return _STATES.get(state, state)

    @property
    def finished(self) -> bool:
        """Whether the job has come to an end, good or bad."""
        return self.state not in _ACTIVE

    @property
    def counters(self) -> dict[str, float]:
        """Rows, fragments, bytes and seconds so far."""
        return dict(self._describe().get("counters") or {})

    @property
    def result(self) -> dict[str, Any] | None:
        """What came of the job, once it is done."""
        return self._describe().get("result")

    @property
    def failure(self) -> dict[str, Any] | None:
        """Why the job failed: its phase, type and message, and whether to try again."""
        return self._describe().get("failure")

    @property
    def waiting_for(self) -> str:
        """What a pending job waits for, and who follows it: the server, should it not answer."""
        if self._is_away:
            return "the server does not answer"
        return str(self._tell("waiting_for") or "") if self.state == "pending" else ""

    @property
    def created_at(self) -> datetime | None:
        """When the job was submitted."""
        millis = self._tell("created_at_millis") or self._tell("creation_ms")
        return None if millis is None else datetime.fromtimestamp(float(millis) / 1000, UTC)

    def refresh(self) -> Job:
        """Ask the server how the job is now."""
        self._known = self._transport.ask("/v1/jobs/describe", {"job_id": self.id})
        self._described, self._is_away = True, False
        return self

    def wait(self, timeout: float | None = None, progress: bool = True) -> Job:
        """Wait until the job is done and return it; raise an error if it comes to another end.

        A bar shows how far it is, if someone sees it. Neither an interrupt nor the time running out ends the job.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            with JobProgress(enabled=progress) as bar:
                for _ in self.follow(deadline):
                    bar.show(self)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"Job {self.id} goes on without you; {self._way_back()}.") from None
        if not self.finished:
            waits = f" (waits: {self.waiting_for})" if self.waiting_for else ""
            raise TimeoutError(f"Job {self.id} is still {self.state} after {timeout:g} s{waits}; {self._way_back()}.")
        if self.state != "done":
            self._raise()
        return self

    def follow(self, deadline: float | None = None) -> Iterator[Job]:
        """Yield the job whenever something has changed, until it has finished or the (monotonic) time has come."""
        pause = _FIRST_PAUSE
        # A server that has told of the job may be starting anew; one that never did may have another address.
        yield from self._reach(deadline) if self._known else [self.refresh()]
        while not self.finished and _left(deadline) > 0:
            heard = False
            for _ in self._listen(deadline):
                heard = True
                yield self
            pause = _FIRST_PAUSE if heard else min(pause * 1.5, _LONGEST_PAUSE)
            self._rest(min(pause, _left(deadline)))
            yield from self._reach(deadline)

    def cancel(self) -> str:
        """Cancel the job and return what became of that: cancelled, cancelling, committing, already_done or the like.

        What the job has committed stays; after "cancelling" it commits nothing more.
        """
        return self._wish("cancel")

    def pause(self) -> str:
        """Let the job rest and return what became of that: paused, pausing, committing or already_paused."""
        return self._wish("pause")

    def resume(self) -> str:
        """Let a paused job go on and return what became of that: resumed, still_pausing or not_paused."""
        return self._wish("resume")

    def retry(self, only_failed: bool = False) -> Job:
        """Have the job done again, or only its failed rows, and return the job that does it."""
        answer = self._ask_for("retry", {"only_failed": True} if only_failed else {})
        return submitted(self._transport, answer).refresh()

    def events(self) -> pa.Table:
        """Return what has happened so far, one row an event."""
        import pyarrow as pa

        pages: list[pa.Table] = []
        while not pages or pages[-1].num_rows:
            body = {"job_id": self.id, **({"after": pages[-1]["seq"][-1].as_py()} if pages else {})}
            content = self._transport.fetch("/v1/jobs/query_events", body)
            pages.append(pa.ipc.open_stream(content).read_all())
        return pa.concat_tables(pages)

    def _describe(self) -> dict[str, Any]:
        if not self._described:
            self.refresh()
        return self._known

    def _tell(self, name: str) -> Any:
        return (self._known or self._describe()).get(name)

    def _ask_for(self, verb: str, more: dict[str, Any]) -> dict[str, Any]:
        return self._transport.post(f"/v1/jobs/{verb}", {"job_id": self.id, **more}, idempotency_key=new_key())

    def _wish(self, verb: str) -> str:
        answer = self._ask_for(verb, {})
        self.refresh()
        return str(answer.get("status") or self.state)

    def _listen(self, deadline: float | None) -> Iterator[None]:
        """Follow the live events and learn from them; nothing comes of a server or proxy that does not offer them."""
        refreshed = time.monotonic()
        path = f"/v1/jobs/{quote(self.id, safe='')}/events"
        try:
            for event in self._transport.stream_events(path, after=self._last_event, until=deadline):
                self._last_event = event.id
                told = _parse(event.data)
                self._known |= {name: told[name] for name in ("state", "counters") if told.get(name)}
                if self.finished or time.monotonic() - refreshed > _REFRESH_SECONDS:
                    self.refresh()
                    refreshed = time.monotonic()
                yield
                if self.finished:
                    return
        except LanceNamespaceError:
            return

    def _reach(self, deadline: float | None) -> Iterator[Job]:
        """Ask how the job is, again and again while the server does not answer."""
        patience = time.monotonic() + _AWAY_SECONDS
        while True:
            try:
                self.refresh()
            except ServiceUnavailableError as error:
                if time.monotonic() > patience:
                    told = f"{str(error).rstrip('.')}. Job {self.id} may well go on; {self._way_back()}."
                    raise ServiceUnavailableError(told) from error
                self._is_away = True
            yield self
            if not self._is_away or _left(deadline) <= 0:
                return
            self._rest(min(_LONGEST_PAUSE, _left(deadline)))

    def _rest(self, seconds: float) -> None:
        if not self.finished:
            time.sleep(max(0.0, seconds))

    def _raise(self) -> NoReturn:
        if self.state == "cancelled":
            raise JobCancelledError(self, f"Job {self.id} was cancelled.")
        failure = self.failure or {}
        phase = f" in the phase {failure['phase']}" if failure.get("phase") else ""
        why = ": ".join(str(failure[name]) for name in ("type", "message") if failure.get(name))
        kind = JobTimedOutError if self.state == "timed_out" else JobFailedError
        how = "timed out" if self.state == "timed_out" else "failed"
        raise kind(self, f"Job {self.id} {how}{phase}: {why}" if why else f"Job {self.id} {how}{phase}.")

    def _way_back(self) -> str:
        return f"pennon.connect({self._transport.url!r}).job({self.id!r}).wait() waits for it again"


def submitted(transport: Transport, answer: dict[str, Any], **known: str) -> Job:
    """Return the job that the answer to a submission names, with what is known of it."""
    job_id = answer.get("job_id")
    if not job_id:
        raise InternalError("The server took the job but did not say its id; jobs() lists it.")
    return Job(transport, str(job_id), {"state": "pending", **known})


def _left(deadline: float | None) -> float:
    return float("inf") if deadline is None else deadline - time.monotonic()


def _parse(data: str) -> dict[str, Any]:
    try:
        told = json.loads(data)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
