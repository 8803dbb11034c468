// That TLS is what it says: who is not to be trusted is refused, on either side.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ioredis, nodeRedis } from './adapters.js';
import { OTHER_CA, TRUSTED, addrsNow, missing, reported, versionOf } from './where.js';

const strangers = {
  nodes_of_another_authority_are_refused: [{ ...TRUSTED, ca: OTHER_CA }, /self-signed certificate|unable to (get|verify)/],
  a_client_without_a_certificate_is_refused: [{ ca: TRUSTED.ca }, /certificate required|ECONNRESET|Connection is closed|[Ss]ocket closed/],
};

const clients = [
  { client: 'ioredis', version: versionOf('ioredis'), mode: 'plain TLS',
    async ping(addrs, tls) {
      const client = ioredis['plain TLS'](addrs, { tls, retryStrategy: null, lazyConnect: true, enableReadyCheck: true });
      const fault = new Promise((_, reject) => { client.once('error', reject); });
      try {
        await Promise.race([fault, client.ping()]);
      } finally {
        client.disconnect();
      }
    } },
  { client: 'node-redis', version: versionOf('redis'), mode: 'plain TLS',
    async ping(addrs, tls) {
      const client = await nodeRedis['plain TLS'](addrs, { socket: { tls: true, ...tls, reconnectStrategy: false } });
      try {
        await client.ping();
      } finally {
        if (client.isOpen) client.destroy();
      }
    } },
];

describe('TLS', () => {
  for (const about of clients) {
    for (const [name, [tls, why]] of Object.entries(strangers)) {
      it(`${about.client} ${name}`, (t) => reported(t, about, name, async () => {
        const reason = missing(about.mode);
        if (reason) return reason;
        await assert.rejects(about.ping(await addrsNow(), tls), why);
        return undefined;
      }));
    }
  }
});
