// What ioredis, node-redis and node-redlock send, and where they would break;
// the names follow conformance/WIRE.md: trap_N is its list of traps.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, it } from 'node:test';
import Redlock5 from 'redlock';
import { ioredis, nodeRedis, UNLOCK } from './adapters.js';
import { addrsNow, missing, reported, sleep, versionOf } from './where.js';

const io = { client: 'ioredis', version: versionOf('ioredis'), mode: 'plain RESP3' };
const nr = { client: 'node-redis', version: versionOf('redis'), mode: 'plain RESP3' };
const redlock = { client: 'node-redlock 5 on ioredis', version: `${versionOf('redlock')}, ${io.version}`, mode: 'plain' };

const wire = (about, name, body) => it(name, (t) => reported(t, about, name, async () => body(await addrsNow(), `node:${randomUUID()}`)));

async function withIoredis(addrs, options, body) {
  const client = ioredis.plain(addrs, options);
  try {
    return await body(client);
  } finally {
    client.disconnect();
  }
}

async function withNodeRedis(addrs, options, body) {
  const client = await nodeRedis.plain(addrs, options);
  try {
    return await body(client);
  } finally {
    client.destroy();
  }
}

describe('wire', { concurrency: true }, () => {
  wire(redlock, 'trap_7_huge_ttls', (addrs, key) => withIoredis(addrs, {}, async (client) => {
    const locks = new Redlock5([client]);
    const ttl = 900719925474099;
    const lock = await locks.acquire([key], ttl);
    assert.ok(Math.abs(await client.pttl(key) - ttl) < 2000);
    const longer = await lock.extend(3 * ttl);
    assert.ok(Math.abs(await client.pttl(key) - 3 * ttl) < 2000);
    await longer.release();
    assert.equal(await client.pttl(key), -2);
  }));

  wire(redlock, 'several_resources_at_once', (addrs, key) => withIoredis(addrs, {}, async (client) => {
    const locks = new Redlock5([client], { retryCount: 0 });
    const lock = await locks.acquire([`${key}a`, `${key}b`], 30000);
    await assert.rejects(locks.acquire([`${key}b`, `${key}c`], 30000));
    assert.equal(await client.exists(`${key}c`), 0, 'a part of a refused lock was taken');
    await lock.release();
    assert.equal(await client.exists(`${key}a`, `${key}b`), 0);
  }));

  wire(redlock, 'using_extends_by_itself', (addrs, key) => withIoredis(addrs, {}, async (client) => {
    await new Redlock5([client]).using([key], 5000, async (signal) => {
      await sleep(7000);
      assert.equal(signal.aborted, false);
      assert.equal(await client.exists(key), 1);
    });
    assert.equal(await client.exists(key), 0);
  }));

  wire(nr, 'trap_3_hello_is_mandatory', (addrs) => withNodeRedis(addrs, { name: 'conformance', database: 3 }, async (client) => {
    const info = await client.clientInfo();
    assert.equal(info.name, 'conformance');
    assert.equal(info.db, 3);
  }));

  wire(nr, 'set_options_of_node_redis', (addrs, key) => withNodeRedis(addrs, {}, async (client) => {
    assert.equal(await client.set(key, 'v', { EX: 30, NX: true }), 'OK');
    assert.equal(await client.set(key, 'v', { EX: 30, NX: true }), null);
    assert.equal(await client.set(key, 'w', { XX: true, PX: 30000 }), 'OK');
    assert.equal(await client.del(key), 1);
  }));

  wire(io, 'handshake_and_ready_check', (addrs) => withIoredis(addrs, { connectionName: 'conformance', db: 3 }, async (client) => {
    assert.match(await client.client('INFO'), /name=conformance .*db=3 .*resp=3/);
    assert.match(await client.info(), /^loading:0\r$/m);
  }));

  wire({ ...io, mode: 'plain RESP2' }, 'handshake_of_resp2', (addrs) => withIoredis(addrs, { protocol: 2 }, async (client) => {
    assert.match(await client.client('INFO'), /resp=2/);
  }));

  wire(io, 'eval_first_then_evalsha', (addrs, key) => withIoredis(addrs, {}, async (client) => {
    client.defineCommand('unlock', { numberOfKeys: 1, lua: UNLOCK });
    await client.set(key, 'mine', 'PX', 30000, 'NX');
    assert.equal(await client.unlock(key, 'theirs'), 0);
    assert.equal(await client.unlock(key, 'mine'), 1);
  }));

  wire(io, 'client_kill_normal_and_reconnect', (addrs, key) => withIoredis(addrs, {}, async (client) => {
    await client.set(key, 'mine');
    const id = await client.client('ID');
    await withIoredis(addrs, {}, (other) => other.client('KILL', 'ID', id));
    assert.equal(await client.get(key), 'mine');
    assert.notEqual(await client.client('ID'), id);
    await client.del(key);
  }));

  wire({ ...io, mode: 'cluster' }, 'cluster_slots_and_info', async (addrs, key) => {
    const reason = missing('cluster');
    if (reason) return reason;
    const client = ioredis.cluster(addrs);
    try {
      assert.equal(await client.set(key, 'v', 'PX', 30000, 'NX'), 'OK');
      assert.equal(client.nodes('master').length, 1);
      assert.equal(await client.del(key), 1);
    } finally {
      client.disconnect();
    }
    return undefined;
  });
});
