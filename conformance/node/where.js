// Where the servers are, how a test asks for a failover, and where results go.
import { appendFileSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';

const list = (name) => (process.env[name] ?? '').split(',').filter(Boolean);

export const ADDRS = list('LOCKSTEP_ADDRS');
export const SENTINELS = list('LOCKSTEP_SENTINELS');
export const CLUSTER = list('LOCKSTEP_CLUSTER');
/** The same with TLS. */
export const TLS = { plain: list('LOCKSTEP_TLS_ADDRS'), sentinel: list('LOCKSTEP_TLS_SENTINELS'), cluster: list('LOCKSTEP_TLS_CLUSTER') };
export const CONTROL = process.env.LOCKSTEP_CONTROL ?? '';
export const MASTER = 'mymaster';
export { sleep };

const file = (name) => process.env[name] && readFileSync(process.env[name]);

/** What a program sets for TLS; Node verifies the chain and the name. */
export const TRUSTED = { ca: file('LOCKSTEP_TLS_CA'), cert: file('LOCKSTEP_TLS_CERT'), key: file('LOCKSTEP_TLS_KEY') };
/** An authority that has signed nothing. */
export const OTHER_CA = file('LOCKSTEP_TLS_OTHER_CA');

export const versionOf = (name) => {
  const lock = createRequire(import.meta.url)('./package-lock.json');
  return lock.packages[`node_modules/${name}`].version;
};

export const split = (addr) => {
  const at = addr.lastIndexOf(':');
  return { host: addr.slice(0, at), port: Number(addr.slice(at + 1)) };
};

/** The addresses at this moment: followers first, the leader last. */
export async function addrsNow() {
  if (!CONTROL) return { plain: ADDRS, sentinel: SENTINELS, cluster: CLUSTER, tls: TLS };
  return (await fetch(`${CONTROL}/addrs`, { signal: AbortSignal.timeout(10000) })).json();
}

/** kill -9 of the leader; resolves when another one leads and it is back. */
export async function failover() {
  const reply = await fetch(`${CONTROL}/failover`, { method: 'POST', signal: AbortSignal.timeout(60000) });
  if (!reply.ok) throw new Error(await reply.text());
}

export const canSee = CONTROL !== '';

/** Has the harness ask LOCK.LIST and its kin about a lock; rejects if they are wrong. */
export async function sight(seen) {
  const reply = await fetch(`${CONTROL}/sight`, { method: 'POST', body: JSON.stringify(seen), signal: AbortSignal.timeout(60000) });
  if (!reply.ok) throw new Error(await reply.text());
}

/** Runs a test and reports it; a body that returns a string skips for that reason. */
export async function reported(t, about, test, body) {
  const { client, version, mode } = about;
  const line = { client, version, mode, test };
  try {
    const reason = await body();
    line.result = reason ? 'skipped' : 'passed';
    if (reason) {
      line.reason = reason;
      t.skip(reason);
    }
  } catch (fault) {
    line.result = 'failed';
    throw fault;
  } finally {
    if (process.env.LOCKSTEP_RESULTS) {
      appendFileSync(process.env.LOCKSTEP_RESULTS, `${JSON.stringify(line)}\n`);
    }
  }
}

/** Why a mode cannot be had here. */
export function missing(mode) {
  if (mode.endsWith('TLS') && !TLS.plain.length) return 'no TLS listener';
  if (mode === 'sentinel' && !SENTINELS.length) return 'no Sentinel listener';
  if (mode === 'cluster' && !CLUSTER.length) return 'no Cluster listener';
  return undefined;
}

/** The sockets of this process that are connected to a server. */
const sockets = () => process._getActiveHandles().filter((handle) => handle instanceof Socket && handle.remotePort);

/**
 * node-redis 6.3.1: a client that is destroyed while it connects again (what
 * Sentinel mode does with the old master's) goes on connecting, says HELLO and
 * keeps the socket for ever; with redis-server as well. Nothing else is closed:
 * a socket on which anything was asked is not such a one.
 */
export async function closeGreetedSockets() {
  await sleep(500); // for one that is being connected
  const greeted = sockets().filter((socket) => socket.bytesWritten < 256);
  greeted.forEach((socket) => socket.destroy());
  return greeted.length;
}

/**
 * A client that leaves a socket or a timer behind keeps the process alive for
 * ever: after so long, it says what is left and fails.
 */
export function mustEnd(milliseconds) {
  setTimeout(() => {
    console.error(`the tests are over and the process does not end: ${process.getActiveResourcesInfo().join(', ')}`);
    for (const { localPort, remotePort, readyState, bytesWritten, bytesRead } of sockets()) {
      console.error(inspect({ localPort, remotePort, readyState, bytesWritten, bytesRead }));
    }
    process.exit(1);
  }, milliseconds).unref();
}
