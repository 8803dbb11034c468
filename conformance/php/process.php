<?php

declare(strict_types=1);

// PHP has no threads: tests and the clients of a contention are processes.

/** Runs $do in a process; 0 when it returned. A fault is printed there. */
function fork(callable $do, string $name = ''): int
{
    $pid = pcntl_fork();
    check($pid >= 0, 'no process could be made');
    if ($pid > 0) {
        return $pid;
    }
    try {
        $do();
        $status = 0;
    } catch (Throwable $fault) {
        fwrite(STDERR, "$name: " . get_class($fault) . ": {$fault->getMessage()} ({$fault->getFile()}:{$fault->getLine()})\n");
        $status = 1;
    }
    exit($status);
}

function joined(int $pid): int
{
    pcntl_waitpid($pid, $status);

    return pcntl_wifexited($status) ? pcntl_wexitstatus($status) : 255;
}

/** Runs what must be done by one at a time; a fault if another one is at it. */
function alone(string $file, callable $do): void
{
    $handle = fopen($file, 'c');
    check(flock($handle, LOCK_EX | LOCK_NB), 'two inside');
    $do();
    flock($handle, LOCK_UN);
    fclose($handle);
}

/**
 * Runs tests, so many at once, and reports each. A test is [about, name, reason
 * to skip it or null, callable].
 */
function run(array $tests, int $atOnce): never
{
    $count = ['passed' => 0, 'failed' => 0, 'skipped' => 0];
    $running = [];
    $end = function () use (&$running, &$count) {
        $pid = pcntl_wait($status);
        [$about, $name] = $running[$pid];
        unset($running[$pid]);
        $result = pcntl_wifexited($status) && pcntl_wexitstatus($status) === 0 ? 'passed' : 'failed';
        $count[$result]++;
        report($about, $name, $result, null);
    };
    foreach ($tests as [$about, $name, $reason, $do]) {
        if ($reason !== null) {
            $count['skipped']++;
            report($about, $name, 'skipped', $reason);
            continue;
        }
        if (count($running) >= $atOnce) {
            $end();
        }
        $running[fork($do, "{$about['client']} {$about['mode']} $name")] = [$about, $name];
    }
    while ($running) {
        $end();
    }
    echo "{$count['passed']} passed, {$count['failed']} failed, {$count['skipped']} skipped\n";
    exit($count['failed'] ? 1 : 0);
}
