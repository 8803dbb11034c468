// What every lock library promises, on every client, in every mode it has.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, describe, it } from 'node:test';
import { ALL } from './adapters.js';
import { addrsNow, canSee, missing, reported, sight, sleep } from './where.js';

const tests = {
  async acquire_and_release(make, key) {
    const [a, b] = [await make(), await make()];
    const held = await a.acquire(key, 30000);
    assert.ok(held);
    assert.equal(await b.acquire(key, 30000), null);
    await a.release(held);
    const again = await b.acquire(key, 30000);
    assert.ok(again);
    await b.release(again);
  },

  async contention(make, key) {
    const clients = await Promise.all([1, 2, 3, 4].map(make));
    let inside = 0;
    let seen = 0;
    await Promise.all(clients.map(async (client) => {
      for (let i = 0; i < 4; i++) {
        const held = await client.acquire(key, 20000, 20000);
        assert.ok(held, 'waited in vain');
        assert.equal(++inside, 1, 'two inside');
        await sleep(2);
        inside--;
        seen++;
        await client.release(held);
      }
    }));
    assert.equal(seen, 16);
  },

  async extend(make, key) {
    const [a, b] = [await make(), await make()];
    const held = await a.acquire(key, 9000);
    await sleep(5000);
    const longer = await a.extend(held, 9000) ?? held;
    await sleep(5000);
    assert.equal(await b.acquire(key, 9000), null, 'the lease ended before its extension');
    await a.release(longer);
  },

  async expiry(make, key) {
    const [a, b] = [await make(), await make()];
    const start = performance.now();
    assert.ok(await a.acquire(key, 3000));
    assert.equal(await b.acquire(key, 3000), null);
    let held = null;
    while (!held && performance.now() - start < 30000) {
      held = await b.acquire(key, 3000);
      await sleep(10);
    }
    assert.ok(held, 'the lease never ended');
    assert.ok(performance.now() - start >= 2999, 'the lease ended early');
  },

  async release_by_non_owner_is_refused(make, key) {
    const [a, b] = [await make(), await make()];
    const held = await a.acquire(key, 30000);
    const stranger = b.foreign(key);
    await assert.rejects(async () => b.release(stranger));
    await assert.rejects(async () => b.extend(stranger, 30000));
    assert.equal(await b.acquire(key, 30000), null, 'a stranger released the lock');
    await a.release(held);
  },

  async waiter_gets_the_lock_when_it_is_released(make, key) {
    const [a, b] = [await make(), await make()];
    const held = await a.acquire(key, 60000);
    const waiting = b.acquire(key, 60000, 30000);
    await sleep(300);
    const released = performance.now();
    await a.release(held);
    const got = await waiting;
    assert.ok(got, 'the waiter did not get the lock');
    assert.ok(performance.now() - released < 15000, 'the waiter waited for its timeout');
    await b.release(got);
  },

  async sight(make, key, { client, version, mode }) {
    if (!canSee) return 'nobody to ask: LOCKSTEP_CONTROL is not set';
    const [a, b] = [await make(), await make()];
    const held = await a.acquire(key, 60000);
    const waiting = b.acquire(key, 60000, 40000);
    try {
      await sight({ client, version, mode, key, kind: 'plain', owner: held.value ?? held.token, holds: 1, queue: 'poller' });
    } finally {
      await a.release(held);
    }
    const got = await waiting;
    assert.ok(got, 'the waiter did not get the lock');
    await b.release(got);
    return undefined;
  },
};

describe('locks', { concurrency: 8 }, () => {
  for (const about of ALL) {
    describe(`${about.client} ${about.mode}`, { concurrency: true }, () => {
      const made = [];
      after(() => Promise.all(made.map((client) => client.close())));
      for (const [name, body] of Object.entries(tests)) {
        it(name, (t) => reported(t, about, name, async () => {
          const reason = missing(about.mode);
          if (reason) return reason;
          const make = async () => {
            made.push(await about.make(await addrsNow()));
            return made.at(-1);
          };
          return body(make, `node:${randomUUID()}`, about);
        }));
      }
    });
  }
});
