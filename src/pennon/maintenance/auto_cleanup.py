"""Lance's own cleanup, which a client can configure: its limits become those of the table's policy.

Lance would remove versions at any commit, by age alone. Its configuration is therefore removed from the table.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from pennon.catalog import tables, transactions
from pennon.commits.statistics import AUTO_CLEANUP
from pennon.maintenance.policy import PREFIX, own_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance import LanceDataset

    from pennon.catalog import Connection, Database
    from pennon.catalog.jobs import Job
    from pennon.catalog.tables import Table
    from pennon.commits.history import History
    from pennon.tables.writer import Writer

_UNITS = {
    **dict.fromkeys(("ms", "msec", "millis"), 0.001),
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 86400.0),
    **dict.fromkeys(("M", "month", "months"), 30.44 * 86400),
    **dict.fromkeys(("y", "year", "years"), 365.25 * 86400),
}
_PART = re.compile(r"\s*([0-9]{1,12})\s*([A-Za-z]*)")
#: The fields of a policy that Lance's configuration has too.
_SECONDS, _COUNT = "max_version_seconds", "max_versions"


class Services(Protocol):
    """The services that the change of a table's configuration needs."""

    @property
    def database(self) -> Database:
        """The catalog."""

    @property
    def history(self) -> History:
        """The versions of the tables."""

    @property
    def writer(self) -> Writer:
        """The commits of tables."""


def take_over_auto_cleanup(services: Services, job: Job, table: Table, branch: str) -> None:
    """Replace Lance's own cleanup by the table's policy, if the newest version of a branch has it configured."""
    newest = services.history.latest(table, branch)
    if newest is None or newest.statistics is None or not newest.statistics.has_auto_cleanup:
        return

    def work(dataset: LanceDataset) -> None:
        configured = {key: value for key, value in dataset.config().items() if key.startswith(AUTO_CLEANUP)}
        if configured:
            services.database.write(lambda connection: _save(connection, table, policy_of_auto_cleanup(configured)))
            dataset.delete_config_keys(list(configured))

    def on_commit(connection: Connection) -> str:
        properties = {"operation": "UpdateTableConfig", "principal": job.submitted_by, "job_id": job.id}
        return transactions.insert(connection, "UpdateTableConfig", table.identifier, properties)

    services.writer.change(table, branch, on_commit, work)


def policy_of_auto_cleanup(config: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that set a policy to the limits of Lance's own cleanup."""
    found: dict[str, str] = {}
    seconds = parse_duration(config.get(f"{AUTO_CLEANUP}older_than", ""))
    if seconds is not None:
        found[PREFIX + _SECONDS] = f"{max(seconds, 1.0):.15g}"
    if config.get(f"{AUTO_CLEANUP}retain_versions", "").isdecimal():
        found[PREFIX + _COUNT] = config[f"{AUTO_CLEANUP}retain_versions"]
    return {name: text for name, text in found.items() if own_values({name: text})}


def parse_duration(text: str) -> float | None:
    """Return the seconds of a duration such as ``1h 30m``; None if it is invalid."""
    position, total = 0, 0.0
    while match := _PART.match(text, position):
        if match[2] not in _UNITS:
            return None
        total, position = total + int(match[1]) * _UNITS[match[2]], match.end()
    return total if position and not text[position:].strip() else None


def _save(connection: Connection, table: Table, properties: Mapping[str, str]) -> None:
    found = tables.find_by_id(connection, table.id)
    if found is not None and properties:
        tables.set_properties(connection, table.id, {**found.properties, **properties})
