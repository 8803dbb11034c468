<?php

declare(strict_types=1);

// Where the servers are, how a test asks for a failover, and where results go.

const MASTER = 'mymaster'; // the name that every tutorial gives it

function addresses(string $variable): array
{
    return array_values(array_filter(explode(',', (string) getenv($variable))));
}

/** The addresses with TLS. */
function secretAddresses(): array
{
    return ['plain' => addresses('LOCKSTEP_TLS_ADDRS'), 'sentinel' => addresses('LOCKSTEP_TLS_SENTINELS'), 'cluster' => addresses('LOCKSTEP_TLS_CLUSTER')];
}

/** What a program sets for TLS; PHP verifies the chain and the name. */
function trusted(): array
{
    return ['cafile' => getenv('LOCKSTEP_TLS_CA'), 'local_cert' => getenv('LOCKSTEP_TLS_CERT'), 'local_pk' => getenv('LOCKSTEP_TLS_KEY')];
}

/** @return array{string, int} */
function split(string $address): array
{
    $at = strrpos($address, ':');

    return [substr($address, 0, $at), (int) substr($address, $at + 1)];
}

/** Asks the harness; a reply that is not JSON is its error. */
function control(string $method, string $path, string $body = ''): array
{
    $context = stream_context_create(['http' => ['method' => $method, 'content' => $body, 'timeout' => 60, 'ignore_errors' => true]]);
    $reply = file_get_contents(getenv('LOCKSTEP_CONTROL') . $path, false, $context);

    return json_decode((string) $reply, true) ?? throw new RuntimeException("$method $path: $reply");
}

/** The addresses at this moment: followers first, the leader last. */
function addressesNow(): array
{
    if (getenv('LOCKSTEP_CONTROL')) {
        return control('GET', '/addrs');
    }

    return ['plain' => addresses('LOCKSTEP_ADDRS'), 'sentinel' => addresses('LOCKSTEP_SENTINELS'), 'cluster' => addresses('LOCKSTEP_CLUSTER'),
        'tls' => secretAddresses()];
}

/** Why a mode cannot be had here; null if it can. */
function missing(string $mode): ?string
{
    return match (true) {
        str_ends_with($mode, 'TLS') && !secretAddresses()['plain'] => 'no TLS listener',
        $mode === 'sentinel' && !addresses('LOCKSTEP_SENTINELS') => 'no Sentinel listener',
        $mode === 'cluster' && !addresses('LOCKSTEP_CLUSTER') => 'no Cluster listener',
        default => null,
    };
}

function report(array $about, string $test, string $result, ?string $reason): void
{
    $line = $about + ['test' => $test, 'result' => $result] + ($reason === null ? [] : ['reason' => $reason]);
    if ($file = getenv('LOCKSTEP_RESULTS')) {
        file_put_contents($file, json_encode($line, JSON_UNESCAPED_SLASHES) . "\n", FILE_APPEND | LOCK_EX);
    }
}

/** Asserts; PHP's own assert() is switched off in production. */
function check(bool $ok, string $otherwise): void
{
    if (!$ok) {
        throw new RuntimeException($otherwise);
    }
}

/** Polls until $ok says so or the time is over. */
function eventually(float $seconds, callable $ok): bool
{
    for ($end = now() + $seconds; !$ok(); usleep(10000)) {
        if (now() > $end) {
            return false;
        }
    }

    return true;
}

function now(): float
{
    return hrtime(true) / 1e9;
}
