<?php

declare(strict_types=1);

// One failover in the middle of held and contended locks of every library at
// once. Each library has a process that holds a lock, and three that contend
// for another; files tell them how far the failover is.

require __DIR__ . '/adapters.php';

const WORKERS = 3;
// A grant whose reply is lost with its connection is nobody's until it ends
// (as with Redis), so leases are short.
const LEASE = 8;

/** Why a fault may be: 'unknown', 'lost', or 'fault', which may not. */
function kind(Throwable $fault, string $mode): string
{
    $texts = [];
    for ($cause = $fault; $cause; $cause = $cause->getPrevious()) {
        $texts[] = get_class($cause) . ' ' . $cause->getMessage();
    }
    $text = implode('; ', $texts);

    return match (true) {
        str_contains($text, 'INDETERMINATE') => 'unknown',
        str_starts_with($mode, 'plain') => "fault $text",
        // A client of the killed node sends it again by itself, so a release
        // that had been carried out is then refused.
        $fault instanceof NotOwner => 'unknown',
        preg_match('/went away|[Cc]onnection|read error|socket error|Can.t communicate|Timed out|processing response|MOVED|No sentinel/', $text) === 1 => 'lost',
        default => "fault $text",
    };
}

function contend(callable $make, string $mode, string $key, string $dir): void
{
    $log = fn (string $line) => file_put_contents("$dir/log", str_replace("\n", ' ', $line) . "\n", FILE_APPEND | LOCK_EX);
    for ($client = null; !file_exists(dirname($dir) . '/stop'); usleep(10000)) {
        try {
            $client ??= $make();
            $over = file_exists(dirname($dir) . '/over');
            if (($held = $client->acquire($key, LEASE)) !== null) {
                alone("$dir/inside", fn () => usleep(2000));
                $client->release($held);
                $log($over ? 'after' : 'before');
            }
        } catch (Throwable $fault) {
            $log($kind = kind($fault, $mode));
            // The next request of a PHP program connects anew.
            $client = $kind === 'lost' ? null : $client;
            usleep(100000);
        }
    }
}

/** Holds a lock over the failover. */
function hold(callable $make, string $mode, string $key, string $dir): void
{
    [$owner, $thief] = [$make(), $make()];
    check(($held = $owner->acquire($key, 120)) !== null, 'a free lock was not granted');
    touch("$dir/held");
    check(eventually(120, fn () => file_exists(dirname($dir) . '/stop')), 'no failover');
    // A connection to the killed node breaks at the first request.
    $again = function (callable $do) use ($mode) {
        try {
            return $do();
        } catch (Throwable $fault) {
            if (kind($fault, $mode) !== 'lost') {
                throw $fault;
            }

            return $do();
        }
    };
    check($again(fn () => $thief->acquire($key, 5)) === null, 'granted twice');
    $again(fn () => $owner->release($held));
    check($again(fn () => $thief->acquire($key, 5)) !== null, 'not released');
}

/** What became of a contended lock. */
function contended(array $log): void
{
    $faults = array_filter($log, fn ($line) => str_starts_with($line, 'fault'));
    check(!$faults, implode("\n", $faults));
    // Only what was in flight when the leader died may have an unknown outcome.
    check(count(array_keys($log, 'unknown')) <= WORKERS, 'too many unknown outcomes');
    check(count(array_keys($log, 'after')) >= 3, 'nobody got the lock after the failover');
}

/** The failover; returns each library's log and the status of its holder. */
function survive(array $libraries, string $dir): array
{
    $addresses = addressesNow();
    $holders = $workers = [];
    foreach ($libraries as $n => ['about' => $about, 'make' => $make]) {
        mkdir("$dir/$n");
        $key = 'php:' . bin2hex(random_bytes(12));
        $holders[$n] = fork(fn () => hold(fn () => $make($addresses), $about['mode'], "$key:held", "$dir/$n"), "{$about['client']} {$about['mode']} held");
        for ($i = 0; $i < WORKERS; $i++) {
            $workers[] = fork(fn () => contend(fn () => $make($addresses), $about['mode'], $key, "$dir/$n"));
        }
    }
    check(eventually(20, fn () => count(glob("$dir/*/held")) === count($libraries)), 'the locks are not held');
    usleep(500000);
    control('POST', '/failover');
    touch("$dir/over");
    $log = fn (int $n) => is_file("$dir/$n/log") ? file("$dir/$n/log", FILE_IGNORE_NEW_LINES) : [];
    eventually(25, fn () => min(array_map(fn ($n) => count(array_keys($log($n), 'after')), array_keys($libraries))) >= 3);
    touch("$dir/stop");
    array_map('joined', $workers);

    return array_map(fn ($n) => [$log($n), joined($holders[$n])], array_keys($libraries));
}

$impossible = !getenv('LOCKSTEP_CONTROL') ? 'nobody to ask for a failover'
    : (count(addresses('LOCKSTEP_ADDRS')) < 3 ? 'a failover needs three nodes' : null);
$all = libraries();
$there = $impossible ? [] : array_values(array_filter($all, fn ($l) => !missing($l['about']['mode'])));
$dir = sys_get_temp_dir() . '/lockstep-' . bin2hex(random_bytes(6));
mkdir($dir);
$outcomes = $there ? survive($there, $dir) : [];
exec('rm -rf ' . escapeshellarg($dir));
$tests = [];
foreach ($all as ['about' => $about]) {
    $reason = missing($about['mode']) ?? $impossible;
    [$log, $status] = $reason === null ? $outcomes[array_search($about, array_column($there, 'about'), true)] : [[], 0];
    $tests[] = [$about, 'failover_held_lock_is_still_held', $reason, fn () => check($status === 0, 'see above')];
    $tests[] = [$about, 'failover_contended_lock_goes_on', $reason, fn () => contended($log)];
}
run($tests, 1);
