"""A lock that is held, and that another client wants, as LOCK.LIST shows it."""

import threading

import pytest

import where
from test_locks import every, make  # noqa: F401


@every
def test_sight(case, make, key):  # noqa: F811
    if not where.CONTROL:
        pytest.skip("nobody to ask: LOCKSTEP_CONTROL is not set")
    a, b = make(), make()
    held = a.acquire(key, 60)
    assert held
    got = []
    waiter = threading.Thread(target=lambda: got.append(b.acquire(key, 60, wait=40)))
    waiter.start()
    try:
        name, owner = a.seen(key, held)
        where.sight({"client": a.client, "version": a.version, "mode": case[1], "key": name, "kind": "plain",
                     "owner": owner, "holds": 1, "queue": a.queue})
    finally:
        a.release(held)
        waiter.join()
    assert got and got[0], "the waiter did not get the lock"
    b.release(got[0])
