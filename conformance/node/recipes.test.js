// Locks as people write them by hand, on ioredis and on node-redis: one text
// of each recipe, and the two clients' words for the commands in it.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, it } from 'node:test';
import { ioredis, nodeRedis } from './adapters.js';
import { addrsNow, reported, sleep, versionOf } from './where.js';

/** ioredis takes commands as Redis spells them. */
const io = {
  client: 'ioredis recipes', version: versionOf('ioredis'), mode: 'plain RESP3',
  async open(addrs) {
    const c = ioredis.plain(addrs);
    return Object.assign(c, {
      setNx: (key, value) => c.setnx(key, value),
      setNxPx: (key, value, px) => c.set(key, value, 'PX', px, 'NX'),
      swap: (key, value) => c.getset(key, value),
      pop: async (key, seconds) => (await c.blpop(key, seconds))?.[1] ?? null,
      watched: (key) => c.watch(key),
      // null when a watched key has changed.
      deleteInMulti: async (key) => (await c.multi().del(key).exec())?.map(([fault, n]) => fault ?? n) ?? null,
      notifyExpiry: () => c.config('SET', 'notify-keyspace-events', 'Ex'),
      listen: async (pattern, heard) => {
        c.on('pmessage', (_pattern, channel, key) => heard(channel, key));
        await c.psubscribe(pattern);
      },
      quit: () => c.disconnect(),
    });
  },
};

/** node-redis has options and camel case. */
const nr = {
  client: 'node-redis recipes', version: versionOf('redis'), mode: 'plain RESP3',
  async open(addrs) {
    const c = await nodeRedis.plain(addrs);
    return {
      get: (key) => c.get(key),
      del: (key) => c.del(key),
      ttl: (key) => c.ttl(key),
      expire: (key, seconds) => c.expire(key, seconds),
      rpush: (key, ...values) => c.rPush(key, values),
      llen: (key) => c.lLen(key),
      setNx: (key, value) => c.setNX(key, value),
      setNxPx: (key, value, PX) => c.set(key, value, { PX, NX: true }),
      swap: (key, value) => c.getSet(key, value),
      pop: async (key, seconds) => (await c.blPop(key, seconds))?.element ?? null,
      watched: (key) => c.watch(key),
      deleteInMulti: async (key) => {
        try {
          return await c.multi().del(key).exec();
        } catch (fault) {
          if (/watched keys/.test(fault.message)) return null;
          throw fault;
        }
      },
      notifyExpiry: () => c.configSet('notify-keyspace-events', 'Ex'),
      listen: (pattern, heard) => c.pSubscribe(pattern, (key, channel) => heard(channel, key)),
      quit: () => c.destroy(),
    };
  },
};

const recipes = {
  async setnx_and_expire(r, other, key) {
    assert.equal(await r.setNx(key, 'a'), 1);
    assert.equal(await r.expire(key, 2), 1);
    assert.equal(await other.setNx(key, 'b'), 0);
    assert.ok(await other.ttl(key) > 0);
    const end = performance.now() + 15000;
    while (await other.setNx(key, 'b') === 0) {
      assert.ok(performance.now() < end, 'the lease never ended');
      await sleep(20);
    }
    assert.equal(await other.ttl(key), -1);
    assert.equal(await other.del(key), 1);
    assert.equal(await other.ttl(key), -2);
  },

  // The value is the time at which the lock ends; GETSET decides who takes over.
  async getset_of_a_deadline(r, other, key) {
    const now = Date.now();
    assert.equal(await r.setNx(key, `${now - 1}`), 1, 'its owner died');
    assert.equal(await r.setNx(key, 'x'), 0);
    const seen = await r.get(key);
    assert.ok(Number(seen) < now);
    assert.equal(await r.swap(key, `${now + 30000}`), seen, 'r is the one that takes over');
    assert.equal(await other.swap(key, `${now + 31000}`), `${now + 30000}`, 'other sees a lock that is held');
    assert.equal(await r.del(key), 1);
  },

  async blpop_semaphore(r, other, key) {
    assert.equal(await r.rpush(key, 'permit-1', 'permit-2'), 2);
    assert.equal(await r.pop(key, 1), 'permit-1');
    assert.equal(await r.pop(key, 1), 'permit-2');
    assert.equal(await r.pop(key, 1), null);
    const waiting = other.pop(key, 20);
    await sleep(200);
    await r.rpush(key, 'permit-1');
    assert.equal(await waiting, 'permit-1');
    assert.equal(await r.llen(key), 0);
  },

  async watch_and_multi_unlock(r, _other, key) {
    assert.equal(await r.setNxPx(key, 'mine', 30000), 'OK');
    await r.watched(key);
    assert.equal(await r.get(key), 'mine');
    assert.deepEqual(await r.deleteInMulti(key), [1]);
    assert.equal(await r.get(key), null);
  },

  async watch_and_multi_unlock_of_a_lock_that_was_taken_over(r, other, key) {
    assert.equal(await r.setNxPx(key, 'mine', 30000), 'OK');
    await r.watched(key);
    assert.equal(await r.get(key), 'mine');
    await other.del(key);
    assert.equal(await other.setNxPx(key, 'theirs', 30000), 'OK');
    assert.equal(await r.deleteInMulti(key), null);
    assert.equal(await r.get(key), 'theirs');
  },

  // A waiter that sleeps until the lock ends.
  async listener_to_the_expiry_of_a_lock(r, other, key) {
    await r.notifyExpiry();
    const expired = new Promise((resolve) => {
      other.listen('__keyevent@*__:expired', (channel, name) => { if (name === key) resolve(channel); })
        .then(() => r.setNxPx(key, 'mine', 700), resolve);
    });
    const start = performance.now();
    assert.equal(await Promise.race([expired, sleep(15000, 'no event', { ref: false })]), '__keyevent@0__:expired');
    assert.ok(performance.now() - start >= 699, 'before the lease ended');
    assert.equal(await r.setNxPx(key, 'next', 1000), 'OK');
  },
};

describe('recipes', { concurrency: true }, () => {
  for (const about of [io, nr]) {
    for (const [name, body] of Object.entries(recipes)) {
      it(`${about.client} ${name}`, (t) => reported(t, about, name, async () => {
        const addrs = await addrsNow();
        const clients = [await about.open(addrs), await about.open(addrs)];
        try {
          await body(...clients, `node:${randomUUID()}`);
        } finally {
          clients.forEach((c) => c.quit());
        }
      }));
    }
  }
});
