// Command lockstep runs and administers a lock server that speaks the Redis protocol. The server acknowledges a write
// only when a majority of the nodes has it on disk (Raft). So a lock survives the failure of any minority of the nodes.
// With --ephemeral nothing is on disk.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/lock"
	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/show"
)

// These are the exit codes (docs/operations.md).
const (
	exitOK      = 0
	exitRuntime = 1
	exitUsage   = 2
	exitNoLock  = 3 // lock-info: the name is no lock

	exitIncomplete = 4 // backup, restore: it is done, but the backup may lack acknowledged writes
)

// `lockstep lock` has codes of its own (package lock), because its command has all of these.

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// ballast takes no physical memory, but counts as heap, so that the garbage collector runs less often.
var ballast = make([]byte, 64<<20)

func main() {
	code := run(takeArgs(os.Args[1:]), os.Stdout, os.Stderr)
	runtime.KeepAlive(ballast)
	os.Exit(code)
}

// run executes a command line and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	lines := newLineQueue(stderr)
	defer lines.close()
	name := "serve"
	if len(args) == 1 && (args[0] == "--version" || args[0] == "-version" || args[0] == "-v") {
		args = []string{"version"}
	}
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		name, args = args[0], args[1:]
	}
	if name != "serve" && name != "lock" {
		lines.stall = lastWordsTime // on a busy machine the only message may take its time, and nobody waits for this process to end
	}
	err := dispatch(name, args, stdout, lines)
	var usage usageError
	var exit lock.ExitError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.As(err, &exit):
		if exit.Err != nil {
			lines.last(fmt.Sprintf("lockstep: %s\n", show.Visible(err.Error())))
		}
		return exit.Code
	case errors.As(err, &usage):
		lines.last(fmt.Sprintf("lockstep: %s\nSee `lockstep help`.\n", show.Visible(err.Error())))
		return exitUsage
	default:
		lines.last(fmt.Sprintf("lockstep: %s\n", show.Visible(err.Error())))
		return exitRuntime
	}
}

func dispatch(name string, args []string, stdout io.Writer, lines *lineQueue) error {
	switch name {
	case "serve":
		return serve(args, stdout, lines)
	case "status", "members", "add", "remove", "transfer", "snapshot":
		return administer(name, args, stdout)
	case "health":
		return health(args, stdout)
	case "backup":
		return backup(args, stdout, lines)
	case "restore":
		return restore(args, stdout)
	case "inspect":
		return inspect(args, stdout)
	case "recover":
		return recoverData(args, os.Stdin, stdout)
	case "secret":
		return secret(args, stdout)
	case "bench":
		return benchmark(args)
	case "locks":
		return listLocks(args, stdout)
	case "lock-info", "lock-waiters":
		return aboutLock(name, args, stdout)
	case "history":
		return showHistory(args, stdout)
	case "lock-stats":
		return lockStats(args, stdout)
	case "force":
		return forceLock(args, stdout)
	case "audit":
		return checkAudit(args, stdout)
	case "lock":
		return runLocked(args, stdout, lines)
	case lock.GateCommand:
		return lock.Gate(args)
	case lock.GuardCommand:
		return lock.Guard(os.Stdin, os.Stdout)
	case "completion":
		return completion(args, stdout)
	case "version":
		return tellVersion(args, stdout)
	case "help":
		return help(args, stdout)
	default:
		return usageError{fmt.Errorf("unknown command %q: want serve, lock, locks, lock-info, lock-waiters, history, lock-stats, force, audit, status, members, add, remove, transfer, snapshot, backup, restore, inspect, recover, secret, health, bench, completion, version or help", name)}
	}
}
