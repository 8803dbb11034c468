"""Results for docs/compatibility.md, and the fixtures all tests share."""

import json
import os
import uuid

import pytest

import adapters
import where


def pytest_report_header(config):
    clients = sorted({f"client {a.client} {a.version}" for a, _, _ in adapters.ALL})
    return clients + [f"client redis-py {where.REDIS_PY}"]


@pytest.fixture
def key():
    return f"py:{uuid.uuid4().hex}"


@pytest.fixture
def about(request):
    """Tests without an adapter are about redis-py itself."""
    return {"client": "redis-py", "version": where.REDIS_PY, "mode": "plain RESP3"}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    path = os.environ.get("LOCKSTEP_RESULTS")
    if not path or not (report.when == "call" or report.when == "setup" and report.skipped):
        return
    params = getattr(item, "callspec", None)
    case = params.params.get("case") if params else None
    if case:
        client, version, mode = case[0].client, case[0].version, case[1]
    else:
        mark = item.get_closest_marker("client")
        client, version, mode = mark.args if mark else ("redis-py", where.REDIS_PY, "plain RESP3")
    line = {"client": client, "version": version, "mode": mode,
            "test": item.originalname.removeprefix("test_"), "result": report.outcome}
    if report.skipped:
        line["reason"] = report.longrepr[2].removeprefix("Skipped: ")
    with open(path, "a", encoding="utf-8") as results:
        results.write(json.dumps(line) + "\n")
