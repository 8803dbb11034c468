"""Where the servers are, and how a test asks for a failover."""

import json
import os
import urllib.error
import urllib.request
from importlib.metadata import version


def _list(name):
    return [a for a in os.environ.get(name, "").split(",") if a]


ADDRS = _list("LOCKSTEP_ADDRS") or ["127.0.0.1:6379"]
SENTINELS = _list("LOCKSTEP_SENTINELS")
CLUSTER = _list("LOCKSTEP_CLUSTER")
CONTROL = os.environ.get("LOCKSTEP_CONTROL", "")
NODES = len(ADDRS)
# The same with TLS, and the files of a client; OTHER_CA has signed nothing.
TLS = {"plain": _list("LOCKSTEP_TLS_ADDRS"), "sentinel": _list("LOCKSTEP_TLS_SENTINELS"), "cluster": _list("LOCKSTEP_TLS_CLUSTER")}
CA, CERT, KEY, OTHER_CA = (os.environ.get(f"LOCKSTEP_TLS_{name}", "") for name in ("CA", "CERT", "KEY", "OTHER_CA"))
MASTER = "mymaster"  # the name that every tutorial gives it

REDIS_PY = version("redis")


def split(addr):
    host, port = addr.rsplit(":", 1)
    return host, int(port)


def addrs_now():
    """The addresses at this moment: followers first, the leader last."""
    if not CONTROL:
        return {"plain": ADDRS, "sentinel": SENTINELS, "cluster": CLUSTER, "tls": TLS}
    with urllib.request.urlopen(CONTROL + "/addrs", timeout=10) as reply:
        return json.load(reply)


def failover():
    """kill -9 of the leader; returns when another one leads and it is back."""
    request = urllib.request.Request(CONTROL + "/failover", method="POST")
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


def sight(seen):
    """Has the harness ask LOCK.LIST and its kin about a lock; raises if they are wrong."""
    body = json.dumps(seen).encode()
    request = urllib.request.Request(CONTROL + "/sight", data=body, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as fault:
        raise AssertionError(fault.read().decode()) from fault
