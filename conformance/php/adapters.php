<?php

declare(strict_types=1);

// Each lock library on each client in each mode behind the same few words: an
// adapter is one client with a connection of its own; acquire gives something
// to release and extend with, or null when the lock was taken. All else is the
// library's default.

require 'Predis/autoload.php';
require 'Illuminate/Container/autoload.php';
require 'Illuminate/Redis/autoload.php';
require 'Illuminate/Cache/autoload.php';
require 'Symfony/Component/Lock/autoload.php';
require 'Malkusch/Lock/autoload.php';
require __DIR__ . '/where.php';
require __DIR__ . '/process.php';

use Illuminate\Cache\RedisStore as LaravelStore;
use Illuminate\Container\Container;
use Illuminate\Redis\RedisManager;
use malkusch\lock\mutex\PHPRedisMutex;
use malkusch\lock\mutex\PredisMutex;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\RedisStore as SymfonyStore;

class NotOwner extends RuntimeException
{
}

function phpredis(string $mode, array $addresses): Redis|RedisCluster
{
    if ($mode === 'cluster') {
        return new RedisCluster(null, $addresses['cluster']);
    }
    if ($mode === 'cluster TLS') {
        $seeds = array_map(fn ($address) => "tls://$address", $addresses['tls']['cluster']);

        return new RedisCluster(null, $seeds, 0, 0, false, null, trusted());
    }
    if ($mode === 'plain TLS') {
        [$host, $port] = split($addresses['tls']['plain'][0]);
        $redis = new Redis();
        $redis->connect("tls://$host", $port, 0, null, 0, 0, ['stream' => trusted()]);

        return $redis;
    }
    [$host, $port] = split($addresses['plain'][0]);
    if ($mode === 'sentinel') {
        $master = (new RedisSentinel(...split($addresses['sentinel'][0])))->getMasterAddrByName(MASTER);
        [$host, $port] = [$master[0], (int) $master[1]];
    }
    $redis = new Redis();
    $redis->connect($host, $port);

    return $redis;
}

function predis(string $mode, array $addresses): Predis\Client
{
    $tcp = fn (string $address) => "tcp://$address";
    $tls = fn (string $address) => ['scheme' => 'rediss', 'host' => split($address)[0], 'port' => split($address)[1], 'ssl' => trusted()];
    // The nodes that it is told of it connects to by these.
    $found = ['parameters' => ['scheme' => 'rediss', 'ssl' => trusted()]];

    return match ($mode) {
        'plain' => new Predis\Client($tcp($addresses['plain'][0])),
        'sentinel' => new Predis\Client(array_map($tcp, $addresses['sentinel']), ['replication' => 'sentinel', 'service' => MASTER]),
        'cluster' => new Predis\Client(array_map($tcp, $addresses['cluster']), ['cluster' => 'redis']),
        'plain TLS' => new Predis\Client($tls($addresses['tls']['plain'][0])),
        'sentinel TLS' => new Predis\Client(array_map($tls, $addresses['tls']['sentinel']), ['replication' => 'sentinel', 'service' => MASTER] + $found),
        'cluster TLS' => new Predis\Client(array_map($tls, $addresses['tls']['cluster']), ['cluster' => 'redis'] + $found),
    };
}

/** symfony/lock: a sorted set, and scripts that ask for TIME. */
class SymfonyAdapter
{
    private LockFactory $locks;

    public function __construct(string $client, string $mode, array $addresses)
    {
        // A lock is taken for the store's time to live and then refreshed to its
        // own: if a connection breaks in between, the former is what remains.
        $this->locks = new LockFactory(new SymfonyStore($client($mode, $addresses), 8.0));
    }

    public function acquire(string $name, int $seconds): ?object
    {
        $lock = $this->locks->createLock($name, $seconds, false);

        return $lock->acquire() ? $lock : null;
    }

    /** Waits as the library does. */
    public function wait(string $name, int $seconds): ?object
    {
        $lock = $this->locks->createLock($name, $seconds, false);

        return $lock->acquire(true) ? $lock : null;
    }

    /** The key of a lock, its kind, and its owner as the library has it (in a private state). */
    public function seen(string $name, object $lock): array
    {
        $key = (new ReflectionProperty($lock, 'key'))->getValue($lock);

        return ['key' => $name, 'kind' => 'symfony', 'owner' => $key->getState(SymfonyStore::class)];
    }

    public function release(object $lock): void
    {
        $lock->release();
    }

    public function extend(object $lock, int $seconds): void
    {
        try {
            $lock->refresh($seconds);
        } catch (LockConflictedException $fault) {
            throw new NotOwner($fault->getMessage());
        }
    }

    /** Its release says nothing to a stranger, and changes nothing. */
    public function foreign(string $name): object
    {
        return $this->locks->createLock($name, 30, false);
    }
}

/** Laravel's cache locks. They cannot be extended. */
class LaravelAdapter
{
    private LaravelStore $store;

    public function __construct(string $client, string $mode, array $addresses)
    {
        [$host, $port] = split($addresses['plain'][0]);
        $config = ['default' => ['host' => $host, 'port' => $port, 'database' => 0]];
        if ($mode === 'sentinel') { // Laravel hands the list to Predis
            $config = ['default' => array_map(fn ($a) => "tcp://$a", $addresses['sentinel']),
                'options' => ['replication' => 'sentinel', 'service' => MASTER]];
        }
        if ($mode === 'plain TLS') { // the one client has them as ssl, the other as context
            [$host, $port] = split($addresses['tls']['plain'][0]);
            $config = ['default' => ['scheme' => 'tls', 'host' => $host, 'port' => $port, 'database' => 0, 'ssl' => trusted(),
                'context' => ['stream' => trusted()]]];
        }
        $this->store = new LaravelStore(new RedisManager(new Container(), $client, $config), 'laravel_cache:');
    }

    public function acquire(string $name, int $seconds): ?object
    {
        $lock = $this->store->lock($name, $seconds);

        return $lock->get() ? $lock : null;
    }

    /** Waits as the library does. */
    public function wait(string $name, int $seconds): ?object
    {
        $lock = $this->store->lock($name, $seconds);

        return $lock->block(40) ? $lock : null;
    }

    public function seen(string $name, object $lock): array
    {
        return ['key' => 'laravel_cache::' . $name, 'kind' => 'plain', 'owner' => $lock->owner()];
    }

    public function release(object $lock): void
    {
        if (!$lock->release()) {
            throw new NotOwner('release');
        }
    }

    public function foreign(string $name): object
    {
        return $this->store->restoreLock($name, 'somebody else');
    }
}

/** The version of what Debian packages. */
function packaged(string $name): string
{
    return preg_replace('/[+-].*/', '', (string) exec("dpkg-query -W -f '\${Version}' $name"));
}

function versionOf(string $client): string
{
    return $client === 'predis' ? Predis\Client::VERSION : phpversion('redis');
}

/** Each library on each client in each mode. */
function libraries(): array
{
    $all = [];
    foreach (['phpredis', 'predis'] as $client) {
        // The RedisSentinel of phpredis 5.3 takes no certificates.
        $secret = $client === 'predis' ? ['plain TLS', 'sentinel TLS', 'cluster TLS'] : ['plain TLS', 'cluster TLS'];
        foreach (['plain', 'sentinel', 'cluster', ...$secret] as $mode) {
            $all[] = ['about' => ['client' => "symfony/lock on $client", 'version' => packaged('php-symfony-lock') . ', ' . versionOf($client), 'mode' => $mode],
                'make' => fn (array $addresses) => new SymfonyAdapter($client, $mode, $addresses)];
        }
        foreach ($client === 'predis' ? ['plain', 'sentinel', 'plain TLS'] : ['plain', 'plain TLS'] as $mode) {
            $all[] = ['about' => ['client' => "Laravel cache lock on $client", 'version' => packaged('php-illuminate-cache') . ', ' . versionOf($client), 'mode' => $mode],
                'make' => fn (array $addresses) => new LaravelAdapter($client, $mode, $addresses)];
        }
    }

    return $all;
}

/** malkusch/lock: only around a piece of code, so it has no adapter. */
function mutex(string $client, array $addresses, string $name): PHPRedisMutex|PredisMutex
{
    $redis = $client('plain', $addresses);

    return $client === 'predis' ? new PredisMutex([$redis], $name, 20) : new PHPRedisMutex([$redis], $name, 20);
}
