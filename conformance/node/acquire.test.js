// docs/locks.md on ioredis and on node-redis: LOCK.ACQUIRE and LOCK.RELEASE by
// each client's generic call.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, describe, it } from 'node:test';
import { ErrorReply } from 'redis';
import { ioredis, nodeRedis } from './adapters.js';
import { addrsNow, CONTROL, reported, sleep, versionOf } from './where.js';

const WAIT = 20000; // for a lock that the test is to get

const io = {
  client: 'ioredis LOCK.ACQUIRE', version: versionOf('ioredis'), mode: 'plain RESP3',
  refusal: { name: 'ReplyError', message: /^DEADLOCK / },
  async open(addrs) {
    const client = ioredis.plain(addrs);
    return {
      async acquire(key, owner, wait = 0) {
        const reply = await client.call('LOCK.ACQUIRE', key, owner, 'PX', 30000, 'WAIT', wait);
        return reply;
      },
      async release(key, owner) {
        const holds = await client.call('LOCK.RELEASE', key, owner);
        return holds;
      },
      close: () => client.disconnect(),
    };
  },
};

const nr = {
  client: 'node-redis LOCK.ACQUIRE', version: versionOf('redis'), mode: 'plain RESP3',
  refusal: (fault) => fault instanceof ErrorReply && fault.message.startsWith('DEADLOCK '),
  async open(addrs) {
    const client = await nodeRedis.plain(addrs);
    return {
      async acquire(key, owner, wait = 0) {
        const reply = await client.sendCommand(['LOCK.ACQUIRE', key, owner, 'PX', '30000', 'WAIT', `${wait}`]);
        return reply;
      },
      async release(key, owner) {
        const holds = await client.sendCommand(['LOCK.RELEASE', key, owner]);
        return holds;
      },
      close: () => client.destroy(),
    };
  },
};

async function granted(client, key, owner, wait) {
  const [token, ttl, holds, ...more] = await client.acquire(key, owner, wait);
  assert.ok(Number.isSafeInteger(token) && token > 0, `token ${token}`);
  assert.ok(ttl > 0 && ttl <= 30000, `ttl ${ttl}`);
  assert.equal(holds, 1);
  assert.deepEqual(more, []);
}

const tests = {
  async lock_acquire_replies_three_integers({ open, key }) {
    const client = await open();
    await granted(client, key, 'me');
    assert.equal(await client.release(key, 'me'), 0);
  },

  async lock_acquire_waits_for_the_release({ open, key }) {
    const [first, second] = [await open(), await open()];
    await granted(first, key, 'first');
    const begin = performance.now();
    const waiting = granted(second, key, 'second', WAIT);
    await sleep(250);
    assert.equal(await first.release(key, 'first'), 0);
    await waiting;
    assert.ok(performance.now() - begin >= 249, 'granted before the release');
    assert.equal(await second.release(key, 'second'), 0);
  },

  async lock_acquire_in_vain_replies_null({ open, key }) {
    const [first, second] = [await open(), await open()];
    await granted(first, key, 'first');
    const begin = performance.now();
    assert.equal(await second.acquire(key, 'second', 200), null);
    assert.ok(performance.now() - begin >= 199, 'waited too short');
    assert.equal(await second.release(key, 'second'), null);
    assert.equal(await first.release(key, 'first'), 0);
  },

  async lock_acquire_refuses_a_deadlock({ open, key, refusal }) {
    const client = await open();
    await granted(client, key, 'me');
    await assert.rejects(client.acquire(key, 'me', WAIT), refusal);
    assert.equal(await client.release(key, 'me'), 0);
  },
};

/** Other servers than lockstep do not have the commands. */
async function lacking(open) {
  try {
    await (await open()).release('none', 'nobody');
  } catch (fault) {
    if (CONTROL || !/unknown command/.test(fault.message)) throw fault;
    return 'the server has no LOCK.ACQUIRE';
  }
  return undefined;
}

describe('acquire', { concurrency: true }, () => {
  const made = [];
  after(() => made.forEach((client) => client.close()));
  for (const about of [io, nr]) {
    const open = async () => {
      made.push(await about.open(await addrsNow()));
      return made.at(-1);
    };
    for (const [name, body] of Object.entries(tests)) {
      it(`${about.client} ${name}`, (t) => reported(t, about, name, async () => await lacking(open)
        ?? body({ open, key: `node:${randomUUID()}`, refusal: about.refusal })));
    }
  }
});
