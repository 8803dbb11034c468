"""What every lock library promises, in every mode it has."""

import threading
import time

import pytest

import adapters
import where


def case_id(case):
    return f"{case[0].client}-{case[1]}".replace(" ", "_")


every = pytest.mark.parametrize("case", adapters.ALL, ids=case_id)


@pytest.fixture
def make(case):
    """Makes clients of the case, each with connections of its own."""
    adapter, mode, connect = case
    if reason := adapters.available(mode):
        pytest.skip(reason)
    made = []

    def one():
        made.append(adapter(connect, where.addrs_now()))
        return made[-1]

    yield one
    for client in made:
        client.close()


@every
def test_acquire_and_release(case, make, key):
    a, b = make(), make()
    held = a.acquire(key, 30)
    assert held
    assert b.acquire(key, 30) is None
    a.release(held)
    again = b.acquire(key, 30)
    assert again
    b.release(again)


@every
def test_contention(case, make, key):
    inside, seen, faults = [], [], []

    def worker(client, n):
        try:
            for _ in range(4):
                held = client.acquire(key, 20, wait=20)
                if held is None:
                    faults.append(f"{n} waited in vain")
                    return
                inside.append(n)
                if len(inside) != 1:
                    faults.append(f"together inside: {inside}")
                time.sleep(0.002)
                inside.remove(n)
                seen.append(n)
                client.release(held)
        except Exception as fault:  # reported by the assertion below
            faults.append(f"{n}: {fault}")

    threads = [threading.Thread(target=worker, args=(make(), n)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert faults == []
    assert len(seen) == 16


@every
def test_extend(case, make, key):
    a, b = make(), make()
    if not a.extends:
        pytest.skip("the library cannot extend")
    held = a.acquire(key, 5)
    time.sleep(3)
    a.extend(held, 5)
    time.sleep(3)
    assert b.acquire(key, 5) is None, "the lease ended before its extension"
    a.release(held)


@every
def test_expiry(case, make, key):
    a, b = make(), make()
    before = time.monotonic()
    assert a.acquire(key, 3)
    assert b.acquire(key, 3) is None
    held = None
    while held is None and time.monotonic() - before < 15:
        held = b.acquire(key, 3)
        time.sleep(0.02)
    waited = time.monotonic() - before
    assert held, "the lease never ended"
    assert waited >= 3, "the lease ended early"


@every
def test_release_by_non_owner_is_refused(case, make, key):
    a, b = make(), make()
    held = a.acquire(key, 30)
    assert held
    stranger = b.foreign(key, held)
    if b.refused is None:
        b.release(stranger)
    else:
        with pytest.raises(b.refused):
            b.release(stranger)
        with pytest.raises(b.refused):
            b.extend(stranger, 30)
    assert b.acquire(key, 30) is None, "a stranger released the lock"
    a.release(held)


@every
def test_waiter_gets_the_lock_when_it_is_released(case, make, key):
    a, b = make(), make()
    held = a.acquire(key, 60)
    assert held
    got = []
    waiter = threading.Thread(target=lambda: got.append(b.acquire(key, 60, wait=30)))
    waiter.start()
    time.sleep(0.3)
    assert got == []
    released = time.monotonic()
    a.release(held)
    waiter.join()
    assert got and got[0], "the waiter did not get the lock"
    assert time.monotonic() - released < 15, "the waiter waited for its timeout"
    b.release(got[0])
