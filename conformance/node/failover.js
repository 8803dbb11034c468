// One failover in the middle of held and contended locks of every library at
// once. Not *.test.js: nothing else may run beside it.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { ALL } from './adapters.js';
import { ADDRS, CONTROL, addrsNow, closeGreetedSockets, failover, missing, mustEnd, reported, sleep } from './where.js';

const WORKERS = 3;

/**
 * The answer to a request in flight whose outcome nobody knows; redlock wraps
 * it. A client of the killed node sends it again by itself, so a release that
 * had been carried out is then refused.
 */
async function isUnknown(fault, mode) {
  if (!mode.startsWith('plain') && /not the owner/.test(fault.message)) return true;
  const causes = [fault, fault.cause].filter(Boolean);
  for (const attempt of Array.isArray(fault.attempts) ? fault.attempts : []) {
    causes.push(...(await attempt).votesAgainst.values());
  }
  if (!mode.startsWith('plain') && causes.some((cause) => /0 of the 1 requested/.test(cause.message))) return true;
  return causes.some((cause) => /INDETERMINATE/.test(cause.message));
}

// The connection to the killed node breaks, and what was in flight on it fails
// in the client, as with Redis.
const isLost = (fault) => /socket closed|ECONN|connection lost|disconnected|ECONNREFUSED|connect to/i.test(`${fault.message} ${fault.name} ${fault.code}`);

/** A client that never answers must be a failed test, not a test that never ends. */
const answered = (about, doing, promise) => Promise.race([
  promise,
  sleep(40000, undefined, { ref: false }).then(() => { throw new Error(`${about.client} ${about.mode}: ${doing}: no answer for 40 s`); }),
]);

class Stage {
  constructor(about) {
    this.about = about;
    this.key = `node:${randomUUID()}`;
    Object.assign(this, { inside: 0, faults: [], unknown: [], lost: [], done: 0, over: false, stop: false });
  }

  answered(doing, promise) { return answered(this.about, doing, promise); }

  async start(addrs) {
    const make = () => this.answered('connect', this.about.make(addrs));
    [this.owner, this.thief, ...this.workers] = await Promise.all(Array.from({ length: 2 + WORKERS }, make));
    this.held = await this.answered('acquire', this.owner.acquire(`${this.key}:held`, 120000));
    this.running = this.workers.map((client) => this.contend(client));
  }

  async contend(client) {
    while (!this.stop) {
      try {
        // A grant whose reply is lost with its connection is nobody's until it
        // ends (as with Redis), so leases are short.
        const held = await this.answered('acquire', client.acquire(this.key, 8000, 8000));
        if (!held) continue;
        const { over } = this;
        if (++this.inside !== 1) this.faults.push(`${this.inside} inside`);
        await sleep(2);
        this.inside--;
        await this.answered('release', client.release(held));
        this.done += over ? 1 : 0;
      } catch (fault) {
        // redlock's votes are promises of the same client.
        const unknown = await this.answered('votes', isUnknown(fault, this.about.mode))
          .catch((late) => { this.faults.push(late.message); });
        if (unknown) this.unknown.push(fault.message);
        else if (isLost(fault)) this.lost.push(fault.message);
        else this.faults.push(`${fault.name}: ${fault.message}`);
        await sleep(100);
      }
      await sleep(10);
    }
  }

  async close() {
    this.stop = true;
    await this.answered('last requests', Promise.all(this.running ?? []));
    await this.answered('close', Promise.all([this.owner, this.thief, ...this.workers ?? []].map((c) => c?.close())));
  }
}

const stages = ALL.filter((about) => !missing(about.mode)).map((about) => new Stage(about));
const impossible = !CONTROL ? 'nobody to ask for a failover' : ADDRS.length < 3 ? 'a failover needs three nodes' : undefined;

describe('failover', () => {
  before(async () => {
    if (impossible) return;
    const addrs = await addrsNow();
    await Promise.all(stages.map((s) => s.start(addrs)));
    await sleep(500);
    await failover();
    stages.forEach((s) => { s.over = true; });
    for (const end = performance.now() + 25000; performance.now() < end && stages.some((s) => s.done < 3);) {
      await sleep(50);
    }
    stages.forEach((s) => { s.stop = true; });
  });
  after(async () => {
    mustEnd(30000);
    if (impossible) return;
    await Promise.all(stages.map((s) => s.close()));
    const greeted = await closeGreetedSockets();
    if (greeted) console.log(`sockets that clients left behind: ${greeted}`);
  });

  for (const about of ALL) {
    const stage = stages.find((s) => s.about === about);
    const reason = missing(about.mode) ?? impossible;
    it(`${about.client} ${about.mode}: held lock`, (t) => reported(t, about, 'failover_held_lock_is_still_held', async () => {
      if (reason) return reason;
      assert.ok(stage.held);
      assert.equal(await stage.answered('acquire', stage.thief.acquire(`${stage.key}:held`, 5000)), null, 'granted twice');
      await stage.answered('release', stage.owner.release(stage.held));
      assert.ok(await stage.answered('acquire', stage.thief.acquire(`${stage.key}:held`, 5000)), 'not released');
      return undefined;
    }));
    it(`${about.client} ${about.mode}: contended lock`, (t) => reported(t, about, 'failover_contended_lock_goes_on', async () => {
      if (reason) return reason;
      assert.deepEqual(stage.faults, []);
      // Only what was in flight when the leader died may have an unknown outcome,
      // and only clients of the killed node may lose their connection.
      assert.ok(stage.unknown.length <= WORKERS, stage.unknown.join('\n'));
      if (about.mode.startsWith('plain')) assert.deepEqual(stage.lost, []);
      assert.ok(stage.done >= 3, 'nobody got the lock after the failover');
      return undefined;
    }));
  }
});
