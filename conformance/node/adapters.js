// Each lock library on each client in each mode behind the same few words: an
// adapter is one client of a lock with a connection of its own; acquire gives
// something to release and extend with, or null when the lock was not to be
// had within `wait` milliseconds. All else is the library's default.
import { randomUUID } from 'node:crypto';
import { Redis, Cluster } from 'ioredis';
import { createClient, createCluster, createSentinel, defineScript } from 'redis';
import redis3 from 'redis-3';
import Redlock5 from 'redlock';
import Redlock4 from 'redlock-4';
import { MASTER, sleep, split, versionOf } from './where.js';

// Clients tell of lost connections by events; a process that does not listen dies.
const quiet = (client) => client.on('error', () => {});

export const ioredis = {
  plain: (addrs, options = {}) => quiet(new Redis({ ...split(addrs.plain[0]), ...options })),
  sentinel: (addrs) => quiet(new Redis({ sentinels: addrs.sentinel.map(split), name: MASTER })),
  cluster: (addrs) => quiet(new Cluster(addrs.cluster.map(split))),
};

const url = (addr) => `redis://${addr}`;

export const UNLOCK = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
export const EXTEND = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

const parse = (parser, key, ...args) => { parser.pushKey(key); parser.push(...args.map(String)); };
const scripts = {
  unlock: defineScript({ NUMBER_OF_KEYS: 1, SCRIPT: UNLOCK, parseCommand: parse, transformReply: undefined }),
  extend: defineScript({ NUMBER_OF_KEYS: 1, SCRIPT: EXTEND, parseCommand: parse, transformReply: undefined }),
};

export const nodeRedis = {
  plain: async (addrs, options = {}) => quiet(createClient({ url: url(addrs.plain[0]), scripts, ...options })).connect(),
  sentinel: async (addrs) => quiet(createSentinel({ name: MASTER, sentinelRootNodes: addrs.sentinel.map(split), scripts })).connect(),
  cluster: async (addrs) => quiet(createCluster({ rootNodes: addrs.cluster.map((a) => ({ url: url(a) })), scripts })).connect(),
};

/** node-redlock 5: the client must be ioredis. */
class NodeRedlock5 {
  constructor(client) {
    this.redis = client;
    this.redlock = new Redlock5([client]);
  }

  async acquire(name, ttl, wait = 0) {
    try {
      return await this.redlock.acquire([name], ttl, { retryCount: Math.ceil(wait / 200) });
    } catch (fault) {
      if (fault.name === 'ExecutionError' && await onlyLocked(fault)) return null;
      throw fault;
    }
  }

  release(lock) { return lock.release(); }
  extend(lock, ttl) { return lock.extend(ttl); }
  foreign(name) {
    return { resources: [name], value: 'somebody else', expiration: Date.now() + 60000,
      release: () => this.redlock.release({ resources: [name], value: 'somebody else' }, { retryCount: 0 }) };
  }

  async close() { this.redis.disconnect(); }
}

/** Whether the last vote against was for no other reason than that the lock is taken. */
async function onlyLocked(fault) {
  const votes = await fault.attempts.at(-1);
  return [...votes.votesAgainst.values()].every((e) => e.name === 'ResourceLockedError');
}

/**
 * node-redlock 4: callbacks, so it takes ioredis and node-redis 3. It calls
 * `evalsha`, which node-redis has not had since 4, not even in legacy().
 */
class NodeRedlock4 {
  constructor(client, close) {
    this.end = close;
    this.redlock = new Redlock4([client]);
    // Its way to tell of errors that it retries; a LockError does not say its cause.
    this.redlock.on('clientError', (fault) => { this.last = fault; });
  }

  async acquire(name, ttl, wait = 0) {
    this.redlock.retryCount = Math.ceil(wait / 200);
    try {
      return await this.redlock.lock(name, ttl);
    } catch (fault) {
      if (fault.name === 'LockError') return null;
      throw fault;
    }
  }

  async release(lock) {
    this.last = undefined;
    try {
      await lock.unlock();
    } catch (fault) {
      fault.cause = this.last;
      throw fault;
    }
  }

  extend(lock, ttl) { return lock.extend(ttl); }
  foreign(name) {
    return new Redlock4.Lock(this.redlock, [name], 'somebody else', Date.now() + 60000, 1);
  }

  async close() { await this.end(); }
}

/** SET NX PX with a token and the two scripts, as tutorials write it. */
class Recipe {
  constructor(client, kind) {
    this.redis = client;
    this.kind = kind;
  }

  async acquire(name, ttl, wait = 0) {
    const token = randomUUID();
    for (const end = Date.now() + wait; ;) {
      if (await this.set(name, token, ttl) === 'OK') return { name, token };
      if (Date.now() >= end) return null;
      await sleep(50);
    }
  }

  set(name, token, ttl) {
    return this.kind === 'ioredis' ? this.redis.set(name, token, 'PX', ttl, 'NX')
      : this.redis.set(name, token, { PX: ttl, NX: true });
  }

  async release(lock) {
    if (await this.redis.unlock(lock.name, lock.token) !== 1) throw new Error('not the owner');
  }

  async extend(lock, ttl) {
    if (await this.redis.extend(lock.name, lock.token, ttl) !== 1) throw new Error('not the owner');
  }

  foreign(name) { return { name, token: 'somebody else' }; }

  async close() {
    if (this.kind === 'ioredis') this.redis.disconnect();
    else await this.redis.destroy();
  }
}

const io = versionOf('ioredis');
const nr = versionOf('redis');

const redlock5 = (mode) => ({ client: 'node-redlock 5 on ioredis', version: `${versionOf('redlock')}, ${io}`, mode,
  make: async (addrs) => new NodeRedlock5(ioredis[mode](addrs)) });

const withIoredis = (mode, options) => ({ client: 'ioredis', version: io,
  mode: mode === 'plain' ? `plain RESP${options?.protocol ?? 3}` : mode,
  make: async (addrs) => {
    const client = ioredis[mode](addrs, options);
    client.defineCommand('unlock', { numberOfKeys: 1, lua: UNLOCK });
    client.defineCommand('extend', { numberOfKeys: 1, lua: EXTEND });
    return new Recipe(client, 'ioredis');
  } });

const withNodeRedis = (mode, options) => ({ client: 'node-redis', version: nr,
  mode: mode === 'plain' ? `plain RESP${options?.RESP ?? 3}` : mode,
  make: async (addrs) => new Recipe(await nodeRedis[mode](addrs, options), 'node-redis') });

export const ALL = [
  redlock5('plain'), redlock5('sentinel'), redlock5('cluster'),
  { client: 'node-redlock 4 on ioredis', version: `${versionOf('redlock-4')}, ${io}`, mode: 'plain',
    make: async (addrs) => {
      const client = ioredis.plain(addrs);
      return new NodeRedlock4(client, async () => client.disconnect());
    } },
  { client: 'node-redlock 4 on node-redis 3', version: `${versionOf('redlock-4')}, ${versionOf('redis-3')}`, mode: 'plain',
    make: async (addrs) => {
      const client = quiet(redis3.createClient(url(addrs.plain[0])));
      return new NodeRedlock4(client, async () => client.end(false));
    } },
  withIoredis('plain'), withIoredis('plain', { protocol: 2 }), withIoredis('sentinel'), withIoredis('cluster'),
  withNodeRedis('plain'), withNodeRedis('plain', { RESP: 2 }), withNodeRedis('sentinel'), withNodeRedis('cluster'),
];
