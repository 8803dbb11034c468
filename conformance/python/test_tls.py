"""That TLS is what it says: who is not to be trusted is refused, on either side."""

import pytest
import redis

import adapters
import where

pytestmark = [
    pytest.mark.skipif(not where.TLS["plain"], reason="no TLS listener"),
    pytest.mark.client("redis-py", where.REDIS_PY, "plain TLS"),
]


def refused(**options):
    client = adapters.plain(where.addrs_now()["tls"], **{**adapters.TRUSTED, **options}, retry=None)
    with pytest.raises(redis.exceptions.ConnectionError) as fault:
        client.ping()
    client.close()
    return str(fault.value)


def test_rediss_url():
    host, port = where.split(where.addrs_now()["tls"]["plain"][0])
    url = f"rediss://{host}:{port}?ssl_ca_certs={where.CA}&ssl_certfile={where.CERT}&ssl_keyfile={where.KEY}"
    with redis.Redis.from_url(url) as client:
        assert client.ping()


def test_nodes_of_another_authority_are_refused():
    assert "CERTIFICATE_VERIFY_FAILED" in refused(ssl_ca_certs=where.OTHER_CA)


def test_a_client_without_a_certificate_is_refused():
    refused(ssl_certfile=None, ssl_keyfile=None)
