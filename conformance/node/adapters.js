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
import { MASTER, TRUSTED, sleep, split, versionOf } from './where.js';

// Clients tell of lost connections by events; a process that does not listen dies.
const quiet = (client) => client.on('error', () => {});

export const ioredis = {
  plain: (addrs, options = {}) => quiet(new Redis({ ...split(addrs.plain[0]), ...options })),
  sentinel: (addrs) => quiet(new Redis({ sentinels: addrs.sentinel.map(split), name: MASTER })),
  cluster: (addrs) => quiet(new Cluster(addrs.cluster.map(split))),
  'plain TLS': ({ tls }, options = {}) => quiet(new Redis({ ...split(tls.plain[0]), tls: TRUSTED, ...options })),
  'sentinel TLS': ({ tls }) => quiet(new Redis({ sentinels: tls.sentinel.map(split), name: MASTER,
    tls: TRUSTED, enableTLSForSentinelMode: true, sentinelTLS: TRUSTED })),
  'cluster TLS': ({ tls }) => quiet(new Cluster(tls.cluster.map(split), { redisOptions: { tls: TRUSTED } })),
};

const url = (addr) => `redis://${addr}`;
const secretUrl = (addr) => `rediss://${addr}`;

export const UNLOCK = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
export const EXTEND = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

const parse = (parser, key, ...args) => { parser.pushKey(key); parser.push(...args.map(String)); };
const scripts = {
  unlock: defineScript({ NUMBER_OF_KEYS: 1, SCRIPT: UNLOCK, parseCommand: parse, transformReply: undefined }),
  extend: defineScript({ NUMBER_OF_KEYS: 1, SCRIPT: EXTEND, parseCommand: parse, transformReply: undefined }),
};

const SECRET = { socket: { tls: true, ...TRUSTED } };

export const nodeRedis = {
  plain: async (addrs, options = {}) => quiet(createClient({ url: url(addrs.plain[0]), scripts, ...options })).connect(),
  sentinel: async (addrs) => quiet(createSentinel({ name: MASTER, sentinelRootNodes: addrs.sentinel.map(split), scripts })).connect(),
  cluster: async (addrs) => quiet(createCluster({ rootNodes: addrs.cluster.map((a) => ({ url: url(a) })), scripts })).connect(),
  'plain TLS': async ({ tls }, options = {}) => quiet(createClient({ url: secretUrl(tls.plain[0]), scripts, ...SECRET, ...options })).connect(),
  'sentinel TLS': async ({ tls }) => quiet(createSentinel({ name: MASTER, sentinelRootNodes: tls.sentinel.map(split), scripts,
    nodeClientOptions: SECRET, sentinelClientOptions: SECRET })).connect(),
  'cluster TLS': async ({ tls }) => quiet(createCluster({ rootNodes: tls.cluster.map((a) => ({ url: secretUrl(a) })), scripts,
    defaults: SECRET })).connect(),
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

const respOf = (mode, protocol = 3) => (mode === 'plain' ? `plain RESP${protocol}` : mode);

const redlock5 = (mode) => ({ client: 'node-redlock 5 on ioredis', version: `${versionOf('redlock')}, ${io}`, mode,
  make: async (addrs) => new NodeRedlock5(ioredis[mode](addrs)) });

const withIoredis = (mode, options) => ({ client: 'ioredis', version: io,
  mode: respOf(mode, options?.protocol),
  make: async (addrs) => {
    const client = ioredis[mode](addrs, options);
    client.defineCommand('unlock', { numberOfKeys: 1, lua: UNLOCK });
    client.defineCommand('extend', { numberOfKeys: 1, lua: EXTEND });
    return new Recipe(client, 'ioredis');
  } });

const withNodeRedis = (mode, options) => ({ client: 'node-redis', version: nr,
  mode: respOf(mode, options?.RESP),
  make: async (addrs) => new Recipe(await nodeRedis[mode](addrs, options), 'node-redis') });

const redlock4OnIoredis = (mode) => ({ client: 'node-redlock 4 on ioredis', version: `${versionOf('redlock-4')}, ${io}`, mode,
  make: async (addrs) => {
    const client = ioredis[mode](addrs);
    return new NodeRedlock4(client, async () => client.disconnect());
  } });

const redlock4OnNodeRedis3 = (mode, open) => ({ client: 'node-redlock 4 on node-redis 3', version: `${versionOf('redlock-4')}, ${versionOf('redis-3')}`, mode,
  make: async (addrs) => {
    const client = quiet(open(addrs));
    return new NodeRedlock4(client, async () => client.end(false));
  } });

export const ALL = [
  redlock5('plain'), redlock5('sentinel'), redlock5('cluster'), redlock5('plain TLS'),
  redlock4OnIoredis('plain'), redlock4OnIoredis('plain TLS'),
  redlock4OnNodeRedis3('plain', (addrs) => redis3.createClient(url(addrs.plain[0]))),
  redlock4OnNodeRedis3('plain TLS', ({ tls }) => redis3.createClient(secretUrl(tls.plain[0]), { tls: TRUSTED })),
  withIoredis('plain'), withIoredis('plain', { protocol: 2 }), withIoredis('sentinel'), withIoredis('cluster'),
  withIoredis('plain TLS'), withIoredis('sentinel TLS'), withIoredis('cluster TLS'),
  withNodeRedis('plain'), withNodeRedis('plain', { RESP: 2 }), withNodeRedis('sentinel'), withNodeRedis('cluster'),
  withNodeRedis('plain TLS'), withNodeRedis('sentinel TLS'), withNodeRedis('cluster TLS'),
];
