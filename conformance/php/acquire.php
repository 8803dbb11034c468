<?php

declare(strict_types=1);

// docs/locks.md on phpredis and on Predis: LOCK.ACQUIRE and LOCK.RELEASE by
// each client's generic call. locks.php runs these tests among its own.

use Predis\Command\RawCommand;
use Predis\Response\ServerException;

const WAITS = 20; // seconds, for a lock that the test is to get

class PhpredisQueue
{
    private Redis $redis;

    public function __construct(string $host, int $port)
    {
        $wait = WAITS;
        $redis = new Redis();
        $redis->connect($host, $port);
        $redis->setOption(Redis::OPT_READ_TIMEOUT, $wait + 5);
        $this->redis = $redis;
    }

    /** An empty array if the owner does not get the lock. */
    public function acquire(string $key, string $owner, float $wait = 0): ?array
    {
        $redis = $this->redis;
        $reply = $redis->rawCommand('LOCK.ACQUIRE', $key, $owner, 'PX', 30000, 'WAIT', (int) ($wait * 1000));

        return $reply ?: null;
    }

    /** False if the owner does not hold the lock. */
    public function release(string $key, string $owner): ?int
    {
        $redis = $this->redis;
        $holds = $redis->rawCommand('LOCK.RELEASE', $key, $owner);

        return $holds === false ? null : $holds;
    }

    /** What the server said when it refused, null if it did not. */
    public function refusal(callable $do): ?string
    {
        try {
            $do();
        } catch (RedisException $fault) {
            return $fault->getMessage();
        }

        return $this->redis->getLastError();
    }
}

class PredisQueue
{
    private Predis\Client $redis;

    public function __construct(string $host, int $port)
    {
        $wait = WAITS;
        $redis = new Predis\Client(['host' => $host, 'port' => $port, 'read_write_timeout' => $wait + 5]);
        $this->redis = $redis;
    }

    public function acquire(string $key, string $owner, float $wait = 0): ?array
    {
        $redis = $this->redis;
        $reply = $redis->executeCommand(RawCommand::create('LOCK.ACQUIRE', $key, $owner, 'PX', 30000, 'WAIT', (int) ($wait * 1000)));

        return $reply;
    }

    public function release(string $key, string $owner): ?int
    {
        $redis = $this->redis;
        $holds = $redis->executeCommand(RawCommand::create('LOCK.RELEASE', $key, $owner));

        return $holds;
    }

    public function refusal(callable $do): ?string
    {
        try {
            $do();
        } catch (ServerException $fault) {
            return $fault->getMessage();
        }

        return null;
    }
}

function granted(object $client, string $key, string $owner, float $wait = 0): void
{
    $reply = $client->acquire($key, $owner, $wait);
    check(is_array($reply) && count($reply) === 3 && array_filter($reply, 'is_int') === $reply, 'the reply is ' . json_encode($reply));
    [$token, $ttl, $holds] = $reply;
    check($token > 0 && $ttl > 0 && $ttl <= 30000 && $holds === 1, 'the reply is ' . json_encode($reply));
}

function lock_acquire_replies_three_integers(callable $make, string $key): void
{
    $client = $make();
    granted($client, $key, 'me');
    check($client->release($key, 'me') === 0, 'not released');
}

function lock_acquire_waits_for_the_release(callable $make, string $key): void
{
    $first = $make();
    granted($first, $key, 'first');
    $start = now();
    $waiter = fork(function () use ($make, $key) {
        $second = $make();
        granted($second, $key, 'second', WAITS);
        check($second->release($key, 'second') === 0, 'not released');
    }, 'waiter');
    usleep(250000);
    check(pcntl_waitpid($waiter, $status, WNOHANG) === 0, 'the waiter did not wait');
    check($first->release($key, 'first') === 0, 'not released');
    check(joined($waiter) === 0, 'the waiter did not get the lock');
    check(now() - $start < WAITS, 'the waiter waited for its timeout');
}

function lock_acquire_in_vain_replies_null(callable $make, string $key): void
{
    [$first, $second] = [$make(), $make()];
    granted($first, $key, 'first');
    $start = now();
    check($second->acquire($key, 'second', 0.2) === null, 'granted twice');
    check(now() - $start >= 0.2, 'waited too short');
    check($second->release($key, 'second') === null, 'a stranger released the lock');
    check($first->release($key, 'first') === 0, 'not released');
}

function lock_acquire_refuses_a_deadlock(callable $make, string $key): void
{
    $client = $make();
    granted($client, $key, 'me');
    $refusal = $client->refusal(fn () => $client->acquire($key, 'me', WAITS));
    check(str_starts_with((string) $refusal, 'DEADLOCK '), "refused by $refusal");
    check($client->release($key, 'me') === 0, 'not released');
}

/** The tests, as run() takes them. */
function acquireTests(): array
{
    $tests = [];
    foreach (['phpredis' => PhpredisQueue::class, 'predis' => PredisQueue::class] as $client => $class) {
        $about = ['client' => "$client LOCK.ACQUIRE", 'version' => versionOf($client), 'mode' => 'plain'];
        $make = fn () => new $class(...split(addressesNow()['plain'][0]));
        $reason = null;
        if (!getenv('LOCKSTEP_CONTROL')) {
            $probe = $make();
            $refusal = $probe->refusal(fn () => $probe->release('none', 'nobody'));
            $reason = str_contains((string) $refusal, 'unknown command') ? 'the server has no LOCK.ACQUIRE' : null;
        }
        foreach (['lock_acquire_replies_three_integers', 'lock_acquire_waits_for_the_release', 'lock_acquire_in_vain_replies_null',
            'lock_acquire_refuses_a_deadlock'] as $name) {
            $tests[] = [$about, $name, $reason, fn () => $name($make, 'php:' . bin2hex(random_bytes(12)))];
        }
    }

    return $tests;
}
