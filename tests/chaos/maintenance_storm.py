"""Tables under maintenance while clients insert, upsert and delete: every answer is compared with an exact search."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import FTS, BTree, IvfFlat

from tests.chaos.storm import Killer
from tests.clients.lakes import ClientTable, Lake

if TYPE_CHECKING:
    from tests.support.server import PennonProcess

WIDTH, FIRST_ROWS, ALL_ROWS = 16, 200, 10**6
ALL_PARTITIONS = 1000
#: Small enough that a few hundred rows pass through all tiers, and are folded, merged and removed.
POLICY = {
    "PENNON_WORKERS": "1",
    "PENNON_SPARK_PRESTART": "false",
    "PENNON_MAINTENANCE_TARGET_FRAGMENT_BYTES": str(64 * 1024),
    "PENNON_MAINTENANCE_MAX_SMALL_FRAGMENTS": "4",
    "PENNON_MAINTENANCE_MAX_DELETED_SHARE": "0.05",
    "PENNON_MAINTENANCE_MAX_UNINDEXED_ROWS": "30",
    "PENNON_MAINTENANCE_MAX_UNINDEXED_SECONDS": "0.5",
    "PENNON_MAINTENANCE_MIN_VERSION_SECONDS": "20",
    "PENNON_MAINTENANCE_MAX_VERSIONS": "20",
    "PENNON_MAINTENANCE_MIN_FILE_SECONDS": "5",
}

#: The rows of a table: a number, and the seed from which all else of the row is made.
Model = dict[int, int]


def vector(number: int, seed: int) -> Any:
    """Return the vector of a row."""
    return np.random.default_rng([number, seed]).random(WIDTH, dtype=np.float32)


def rows(model: Model) -> pa.Table:
    """Return rows as the model describes them."""
    vectors = np.stack([vector(number, seed) for number, seed in model.items()])
    return pa.table(
        {
            "id": pa.array(list(model), pa.int64()),
            "seed": pa.array(list(model.values()), pa.int64()),
            "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH),
            "words": [f"number{number % 7} seed{seed % 3}" for number, seed in model.items()],
        }
    )


class ShortSearchError(AssertionError):
    """A vector search returned other rows than an exact one."""


@dataclass
class Writer:
    """One client that changes rows of its own, with what the table must have of them."""

    lake: Lake
    name: str
    number: int
    seed: int
    killer: Killer
    model: Model = field(default_factory=dict)
    #: Vectors of rows that were just deleted or replaced: searches near them must not be short.
    gone: deque[Any] = field(default_factory=lambda: deque(maxlen=50))
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed * 1000 + self.number)  # noqa: S311 (a test that can be repeated)
        self._next = (self.number + 1) * 1_000_000
        self.table = connect(self.lake.url).open_table(self.name)

    def run(self, changes: int) -> None:
        """Make a number of changes."""
        for turn in range(1, changes + 1):
            self._random.choice([self._insert, self._upsert, self._upsert, self._delete])(turn)

    def _insert(self, turn: int) -> None:
        new = {self._next + number: turn for number in range(self._random.choice([1, 1, 1, 5, 20]))}
        self._next += len(new)
        self._change("insert", {**self.model, **new}, lambda: self.table.add(rows(new)))

    def _upsert(self, turn: int) -> None:
        """Replace some rows and insert some."""
        some = self._sample(self._random.choice([1, 5, 25]))
        new = {**dict.fromkeys(some, turn), self._next: turn}
        self._next += 1
        after = {**self.model, **new}
        merge = self.table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        self._change("upsert", after, lambda: merge.execute(rows(new)), some)

    def _delete(self, turn: int) -> None:
        some = self._sample(self._random.choice([1, 10, 40]))
        if some:
            after = {number: seed for number, seed in self.model.items() if number not in set(some)}
            where = f"id IN ({', '.join(map(str, some))})"
            self._change("delete", after, lambda: self.table.delete(where), some)

    def _sample(self, count: int) -> list[int]:
        return self._random.sample(sorted(self.model), min(count, len(self.model)))

    def _change(self, kind: str, after: Model, work: Callable[[], object], replaced: list[int] | None = None) -> None:
        kills, before = self.killer.kill_count, self.model
        for number in replaced or ():
            self.gone.append(vector(number, before[number]))
        try:
            work()
        except Exception as error:
            if not self.killer.excuses(error, kills) and "error sending request" not in str(error):
                raise AssertionError(f"a client's {kind} failed: {error}") from error
            found = self.killer.repeat_until_up(self.stored)
            assert found in (before, after), f"rows of {self.number} are neither as before nor as after a {kind}"
            self.model = found
            self.done["unclear"] += 1
        else:
            self.model = after
            self.done[kind] += 1

    def stored(self) -> Model:
        """Return this writer's rows as the server has them."""
        low = (self.number + 1) * 1_000_000
        table = connect(self.lake.url).open_table(self.name)
        found = table.search().where(f"id >= {low} AND id < {low + 1_000_000}").limit(ALL_ROWS).to_arrow()
        return model_of(found)


class Storm:
    """A table with a vector, a full-text and a BTREE index, its writers, and what must be true of every version."""

    def __init__(self, server: PennonProcess, name: str, seed: int, writers: int = 2) -> None:
        self.lake = Lake(server)
        self.name = name
        self.killer = Killer(server, seed)
        self.random = random.Random(seed)  # noqa: S311 (a test that can be repeated)
        self.first = dict.fromkeys(range(FIRST_ROWS), 0)
        self.table = create(self.lake.url, name, self.first)
        self.writers = [Writer(self.lake, name, number, seed, self.killer) for number in range(writers)]
        self.lance = ClientTable(self.lake, self.lake.connect(), name)
        self.checks = 0

    def run(self, changes: int, beside: Callable[[], object] = lambda: None) -> None:
        """Let all writers make their changes, and check the newest version again and again meanwhile."""
        errors: list[BaseException] = []

        def work(writer: Writer) -> None:
            try:
                writer.run(changes)
            except BaseException as error:
                errors.append(error)

        with ExitStack() as stack:
            threads = [threading.Thread(target=work, args=(writer,)) for writer in self.writers]
            for thread in threads:
                thread.start()
                stack.callback(thread.join)
            while any(thread.is_alive() for thread in threads) and not errors:
                beside()
                self.killer.repeat_until_up(self.check)
        if errors:
            raise errors[0]

    @property
    def model(self) -> Model:
        """The rows that the table must have when no writer writes."""
        found = dict(self.first)
        for writer in self.writers:
            found |= writer.model
        return found

    def check(self, version: int | None = None) -> Model:
        """Compare the answers of one version, by default the newest, with exact ones; return its rows."""
        table = connect(self.lake.url).open_table(self.name)
        version = table.version if version is None else version
        table.checkout(version)
        stored = table.search().limit(ALL_ROWS).to_arrow()
        model = model_of(stored)
        self._check_filters(table, model, version)
        self._check_words(table, stored, version)
        near = [self.random.choice(writer.gone) for writer in self.writers if writer.gone]
        for query in [*near, self.random.choice(stored["v"]).values.to_numpy()]:
            self._check_search(table, stored, query, version)
        self.checks += 1
        return model

    def _check_filters(self, table: Any, model: Model, version: int) -> None:
        low = self.random.choice(sorted(model))
        found = table.search().where(f"id >= {low} AND id < {low + 30}").limit(ALL_ROWS).to_arrow()
        wanted = {number: seed for number, seed in model.items() if low <= number < low + 30}
        assert model_of(found) == wanted, f"version {version}: a filter from {low} is wrong"

    def _check_words(self, table: Any, stored: pa.Table, version: int) -> None:
        word = self.random.choice(["number3", "seed1", "seed0"])
        found = table.search(word, query_type="fts").limit(ALL_ROWS).to_arrow()["id"].to_pylist()
        both = zip(stored["id"].to_pylist(), stored["words"].to_pylist(), strict=True)
        wanted = sorted(number for number, words in both if word in words.split())
        assert sorted(found) == wanted, f"version {version}: a search for {word} is wrong"

    def _check_search(self, table: Any, stored: pa.Table, query: Any, version: int) -> None:
        vectors = stored["v"].combine_chunks().flatten().to_numpy().reshape(-1, WIDTH)
        exact = np.sort(((vectors - query) ** 2).sum(axis=1))
        for k in (5, 40):
            found = table.search(query).limit(k).nprobes(ALL_PARTITIONS).to_arrow()
            got = np.sort(found["_distance"].to_numpy())
            wanted = exact[:k]
            if len(got) != len(wanted) or not np.allclose(got, wanted, atol=1e-4):
                raise ShortSearchError(
                    f"version {version}: a search for {k} of {len(exact)} rows returned {len(got)}; "
                    f"distances {got.tolist()} instead of {wanted.tolist()}"
                )

    def settle(self, fragments: int, seconds: float = 60) -> None:
        """Wait until maintenance has nothing left to do, and insist on what it leaves."""
        deadline = time.monotonic() + seconds
        while True:
            dataset = self.lance.open()
            count = len(dataset.get_fragments())
            outside = {
                each.name: dataset.stats.index_stats(each.name)["num_unindexed_rows"]
                for each in dataset.describe_indices()
            }
            if count <= fragments and not any(outside.values()):
                return
            assert time.monotonic() < deadline, f"{count} fragments, rows outside of indexes: {outside}"
            time.sleep(0.2)


def connect(url: str) -> Any:
    """Connect with LanceDB's client, without retries."""
    config = {"retry_config": {"retries": 0}}
    return lancedb.connect("db://lake", api_key="none", host_override=url, client_config=config)


def create(url: str, name: str, model: Model) -> Any:
    """Create a table with its indexes."""
    table = connect(url).create_table(name, rows(model))
    table.create_index("v", config=IvfFlat(distance_type="l2", num_partitions=4))
    table.create_index("words", config=FTS(stem=False, remove_stop_words=False))
    table.create_index("id", config=BTree())
    table.wait_for_index(["v_idx", "words_idx", "id_idx"], timeout=timedelta(seconds=60))
    return table


def model_of(found: pa.Table) -> Model:
    """Return the rows of an answer; no row may be there twice."""
    ids = found["id"].to_pylist()
    assert len(set(ids)) == len(ids), "a row is there twice"
    return dict(zip(ids, found["seed"].to_pylist(), strict=True))
