<?php

declare(strict_types=1);

// What every lock promises, in every mode it has. PHP has no threads: each
// test is a process of its own, and a contention's clients are processes, too.

require __DIR__ . '/adapters.php';
require __DIR__ . '/acquire.php';

function acquire_and_release(callable $make, string $key): void
{
    [$a, $b] = [$make(), $make()];
    check(($held = $a->acquire($key, 30)) !== null, 'a free lock was not granted');
    check($b->acquire($key, 30) === null, 'granted twice');
    $a->release($held);
    check(($again = $b->acquire($key, 30)) !== null, 'a released lock was not granted');
    $b->release($again);
}

function contention(callable $make, string $key): void
{
    fourTimesFour(function () use ($make, $key) {
        $client = $make();

        return function (callable $do) use ($client, $key) {
            check(eventually(20, function () use ($client, $key, &$held) {
                return ($held = $client->acquire($key, 20)) !== null;
            }), 'waited in vain');
            $do();
            $client->release($held);
        };
    });
}

/** Four processes enter four times each; $open gives each its way in. */
function fourTimesFour(callable $open): void
{
    $file = tempnam(sys_get_temp_dir(), 'lockstep');
    $children = [];
    for ($n = 0; $n < 4; $n++) {
        $children[] = fork(function () use ($open, $file) {
            $enter = $open();
            for ($i = 0; $i < 4; $i++) {
                $enter(fn () => alone($file, fn () => usleep(2000)));
            }
        }, 'contention');
    }
    $failed = array_sum(array_map('joined', $children));
    unlink($file);
    check($failed === 0, 'a process failed');
}

function extend(callable $make, string $key): void
{
    [$a, $b] = [$make(), $make()];
    $held = $a->acquire($key, 5);
    sleep(3);
    $a->extend($held, 5);
    sleep(3);
    check($b->acquire($key, 5) === null, 'the lease ended before its extension');
    $a->release($held);
}

function expiry(callable $make, string $key): void
{
    [$a, $b] = [$make(), $make()];
    $start = now();
    check($a->acquire($key, 3) !== null && $b->acquire($key, 3) === null, 'not granted once');
    check(eventually(15, fn () => $b->acquire($key, 3) !== null), 'the lease never ended');
    check(now() - $start >= 3, 'the lease ended early');
}

function release_by_non_owner_is_refused(callable $make, string $key): void
{
    [$a, $b] = [$make(), $make()];
    check(($held = $a->acquire($key, 30)) !== null, 'a free lock was not granted');
    $stranger = $b->foreign($key);
    foreach (['release' => [$stranger], 'extend' => [$stranger, 30]] as $method => $arguments) {
        if (!method_exists($b, $method)) {
            continue;
        }
        try {
            $b->$method(...$arguments);
            check($b instanceof SymfonyAdapter && $method === 'release', "a stranger's $method was not refused");
        } catch (NotOwner) {
            // as it must be
        }
    }
    check($b->acquire($key, 30) === null, 'a stranger released the lock');
    $a->release($held);
}

function waiter_gets_the_lock_when_it_is_released(callable $make, string $key): void
{
    $a = $make();
    $held = $a->acquire($key, 60);
    $waiter = fork(function () use ($make, $key) {
        $b = $make();
        check(eventually(30, function () use ($b, $key, &$got) {
            return ($got = $b->acquire($key, 60)) !== null;
        }), 'the waiter did not get the lock');
        $b->release($got);
    }, 'waiter');
    usleep(300000);
    check(pcntl_waitpid($waiter, $status, WNOHANG) === 0, 'the waiter did not wait');
    $released = now();
    $a->release($held);
    check(joined($waiter) === 0, 'the waiter did not get the lock');
    check(now() - $released < 15, 'the waiter waited for its timeout');
}

/** A lock that is held, and that another client wants, as LOCK.LIST and its kin show it. */
function sight(callable $make, string $key, array $about): void
{
    $a = $make();
    check(($held = $a->acquire($key, 60)) !== null, 'a free lock was not granted');
    $waiter = fork(function () use ($make, $key) {
        $b = $make();
        check(($got = $b->wait($key, 60)) !== null, 'the waiter did not get the lock');
        $b->release($got);
    }, 'waiter');
    try {
        control('POST', '/sight', json_encode($about + $a->seen($key, $held) + ['holds' => 1, 'queue' => 'poller']));
    } finally {
        $a->release($held);
    }
    check(joined($waiter) === 0, 'the waiter did not get the lock');
}

/** malkusch/lock: only around a piece of code. */
function synchronized(string $client, string $key): void
{
    fourTimesFour(function () use ($client, $key) {
        $mutex = mutex($client, addressesNow(), $key);

        return fn (callable $do) => $mutex->synchronized($do);
    });
}

/** symfony/lock's readers share a lock, and keep a writer out. */
function readers_and_writer(callable $make, string $key): void
{
    [$a, $b, $c] = [$make(), $make(), $make()];
    [$reader, $other] = [$a->foreign($key), $b->foreign($key)];
    check($reader->acquireRead() && $other->acquireRead(), 'two readers were not let in');
    check($c->acquire($key, 30) === null, 'a writer was let in beside readers');
    $reader->release();
    check($c->acquire($key, 30) === null, 'a writer was let in beside a reader');
    $other->release();
    check(($writer = $c->acquire($key, 30)) !== null, 'no reader is left, and the writer is kept out');
    check(!$reader->acquireRead(), 'a reader was let in beside a writer');
    $writer->release();
}

$tests = [];
$contract = ['acquire_and_release', 'contention', 'extend', 'expiry', 'release_by_non_owner_is_refused', 'waiter_gets_the_lock_when_it_is_released'];
foreach (libraries() as ['about' => $about, 'make' => $make]) {
    $symfony = str_starts_with($about['client'], 'symfony');
    foreach ([...$contract, ...$symfony ? ['readers_and_writer'] : []] as $name) {
        $reason = missing($about['mode']) ?? ($name === 'extend' && !$symfony ? 'the library cannot extend' : null);
        $tests[] = [$about, $name, $reason, fn () => $name(fn () => $make(addressesNow()), 'php:' . bin2hex(random_bytes(12)))];
    }
}
foreach (libraries() as ['about' => $about, 'make' => $make]) {
    $reason = missing($about['mode']) ?? (getenv('LOCKSTEP_CONTROL') ? null : 'nobody to ask: LOCKSTEP_CONTROL is not set');
    $tests[] = [$about, 'sight', $reason, fn () => sight(fn () => $make(addressesNow()), 'php:' . bin2hex(random_bytes(12)), $about)];
}
foreach (['phpredis', 'predis'] as $client) {
    $about = ['client' => "malkusch/lock on $client", 'version' => packaged('php-malkusch-lock') . ', ' . versionOf($client), 'mode' => 'plain'];
    $tests[] = [$about, 'contention', null, fn () => synchronized($client, 'php:' . bin2hex(random_bytes(12)))];
}
/** That TLS is what it says: who is not to be trusted is refused, on either side. */
function refused(string $client, array $ssl): void
{
    [$host, $port] = split(addressesNow()['tls']['plain'][0]);
    try {
        if ($client === 'predis') {
            @(new Predis\Client(['scheme' => 'rediss', 'host' => $host, 'port' => $port, 'ssl' => $ssl]))->ping();
        } else {
            $redis = new Redis();
            @$redis->connect("tls://$host", $port, 0, null, 0, 0, ['stream' => $ssl]);
            @$redis->ping();
        }
    } catch (Predis\Connection\ConnectionException | RedisException) {
        return;
    }
    check(false, 'not refused');
}

foreach (['phpredis', 'predis'] as $client) {
    $about = ['client' => $client, 'version' => versionOf($client), 'mode' => 'plain TLS'];
    foreach (['nodes_of_another_authority_are_refused' => ['cafile' => getenv('LOCKSTEP_TLS_OTHER_CA')] + trusted(),
        'a_client_without_a_certificate_is_refused' => ['cafile' => getenv('LOCKSTEP_TLS_CA')]] as $name => $ssl) {
        $tests[] = [$about, $name, missing('plain TLS'), fn () => refused($client, $ssl)];
    }
}
// LOCKSTEP_TESTS names the tests to run, if not all.
$wanted = getenv('LOCKSTEP_TESTS') ?: '';
run(array_filter([...$tests, ...acquireTests()], fn ($test) => str_contains($test[1], $wanted)), 24);
