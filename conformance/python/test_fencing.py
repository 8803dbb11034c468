"""docs/fencing.md with redis-py's Lock: late writes of former owners are refused."""

import asyncio
import os
import re
import uuid
from pathlib import Path

import psycopg
import pytest
import redis

import adapters
import where

POSTGRES = os.environ.get("LOCKSTEP_POSTGRES", "")
PAGE = Path(__file__).parents[2] / "docs" / "fencing.md"


def example(language):
    """The code on the page in a language."""
    return re.search(f"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]


class Owner:
    """A client that has taken the lock and asked for its token."""

    def __init__(self, client, lock, name, token):
        self.call, self.lock, self.name, self.token = client.execute_command, lock, name, token


class SyncClient:
    def __init__(self, connect):
        self.redis = connect(where.addrs_now())
        self.execute_command = self.redis.execute_command

    def take(self, name):
        client = self.redis
        lock = client.lock(name, timeout=30)
        lock.acquire()
        token = client.execute_command("LOCK.TOKEN", name, "OWNER", lock.local.token)
        self.release = lock.release
        return Owner(self, name, lock.local.token, token)

    def close(self):
        self.redis.close()


class AsyncClient:
    """The same on asyncio, in an event loop of its own."""

    def __init__(self, connect):
        self.loop = asyncio.new_event_loop()

        async def made():
            return connect(where.addrs_now())

        self.redis = self.loop.run_until_complete(made())

    def execute_command(self, *words):
        return self.loop.run_until_complete(self.redis.execute_command(*words))

    def take(self, name):
        client = self.redis
        lock = client.lock(name, timeout=30)

        async def locked():
            await lock.acquire()
            return await client.execute_command("LOCK.TOKEN", name, "OWNER", lock.local.token)

        token = self.loop.run_until_complete(locked())
        self.release = lambda: self.loop.run_until_complete(lock.release())
        return Owner(self, name, lock.local.token, token)

    def close(self):
        self.loop.run_until_complete(self.redis.aclose())
        self.loop.close()


class Database:
    """A row in PostgreSQL. Each owner has a connection of its own."""

    def __init__(self, key):
        _, self.read, self.store, _ = example("sql").split(";")
        self.id, self.connections = key, {}
        self.connection(None).execute("INSERT INTO account (id, balance) VALUES ($1, 0)", [key])

    def connection(self, owner):
        if owner not in self.connections:
            # RawCursor takes the statements as they are on the page.
            self.connections[owner] = psycopg.connect(POSTGRES, autocommit=True, cursor_factory=psycopg.RawCursor)
        return self.connections[owner]

    def begin(self, owner):
        return self.connection(owner).execute(self.read, [owner.token, self.id]).fetchone() is not None

    def write(self, owner, value):
        return self.connection(owner).execute(self.store, [owner.token, self.id, value]).rowcount == 1

    def value(self):
        return self.connection(None).execute("SELECT balance FROM account WHERE id = $1", [self.id]).fetchone()[0]

    def close(self):
        for connection in self.connections.values():
            connection.close()


class Fenced:
    """A resource that cannot compare tokens: LOCK.FENCE compares them."""

    def __init__(self, key):
        self.key, self.written = key + ":fence", None

    def begin(self, owner):
        accepted, highest = owner.call("LOCK.FENCE", self.key, owner.token, "PX", 60000)
        assert highest == owner.token if accepted else highest > owner.token
        return accepted == 1

    def write(self, owner, value):
        if accepted := self.begin(owner):
            self.written = value
        return accepted

    def value(self):
        return self.written

    def close(self):
        pass


class Data:
    """A key of lockstep: one script checks the lock and writes the key."""

    def __init__(self, key):
        self.key, self.script, self.read = "{" + key + "}:data", example("lua"), None

    def begin(self, owner):
        self.read = lambda: int(owner.call("GET", self.key))
        return owner.call("LOCK.CHECK", owner.lock, owner.token, "OWNER", owner.name) == 1

    def write(self, owner, value):
        return owner.call("EVAL", self.script, 2, owner.lock, self.key, owner.name, owner.token, value) == 1

    def value(self):
        return self.read()

    def close(self):
        pass


def case_id(case):
    return f"{case[0].client}-{case[1]}".replace(" ", "_")


@pytest.fixture
def client(case):
    """Makes clients of the case, each with connections of its own."""
    adapter, mode, connect = case
    if reason := adapters.available(mode):
        pytest.skip(reason)
    made = []

    def one():
        made.append((AsyncClient if adapter is adapters.AsyncRedisPy else SyncClient)(connect))
        return made[-1]

    yield one
    for c in made:
        c.close()


every = pytest.mark.parametrize(
    "case", [c for c in adapters.ALL if issubclass(c[0], adapters.RedisPy)], ids=case_id)


def play(make, resource):
    """Of three owners, the first is paused until its lease ends, and the second releases the lock."""
    name = f"py:{uuid.uuid4().hex}"
    guarded, former = resource(name), []
    try:
        for turn in range(3):
            client = make()
            owner = client.take(name)
            for o in former:
                assert owner.token > o.token
                assert owner.call("LOCK.CHECK", name, o.token) == 0
                assert owner.call("LOCK.TOKEN", name, "OWNER", o.name) is None
            assert owner.call("LOCK.CHECK", name, owner.token) == 1
            assert guarded.begin(owner)
            for o in former:
                assert not guarded.write(o, -turn), "written before the owner's write"
            assert guarded.write(owner, turn)
            for o in former:
                assert not guarded.begin(o)
                assert not guarded.write(o, -turn), "written after the owner's write"
            assert guarded.begin(owner) and guarded.value() == turn
            if turn == 0:
                assert client.execute_command("PEXPIRE", name, 1) == 1
            else:
                client.release()
            former.append(owner)
    finally:
        guarded.close()


def need_tokens(make):
    """Other servers than lockstep have no tokens."""
    try:
        make().execute_command("LOCK.TOKEN", "none")
    except redis.ResponseError as fault:
        if where.CONTROL or "unknown command" not in str(fault):
            raise
        pytest.skip("the server has no LOCK.TOKEN")


@every
def test_fencing_sql_database(case, client):
    need_tokens(client)
    if not POSTGRES:
        pytest.skip("no PostgreSQL")
    play(client, Database)


@every
def test_fencing_lock_fence(case, client):
    need_tokens(client)
    play(client, Fenced)


@every
def test_fencing_lock_and_data_in_one_script(case, client):
    need_tokens(client)
    play(client, Data)
