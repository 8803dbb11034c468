// Command lockstep is a lock server that speaks the Redis protocol and never
// loses a lock: every write is in a Raft majority on disk before it is
// acknowledged.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
)

// version is what `lockstep version` prints.
const version = "0.1.0"

// Exit codes (docs: README.md).
const (
	exitOK      = 0
	exitRuntime = 1
	exitUsage   = 2
)

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// ballast is memory that is never touched, and so takes none. It counts as heap,
// which keeps the garbage collector from running every few megabytes while the
// keyspace is small.
var ballast = make([]byte, 64<<20)

func main() {
	code := run(os.Args[1:], os.Stdout, os.Stderr)
	runtime.KeepAlive(ballast)
	os.Exit(code)
}

// run executes a command line and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	name := "serve"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		name, args = args[0], args[1:]
	}
	err := dispatch(name, args, stdout, stderr)
	var usage usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "lockstep: %v\nSee `lockstep help`.\n", err)
		return exitUsage
	default:
		fmt.Fprintf(stderr, "lockstep: %v\n", err)
		return exitRuntime
	}
}

func dispatch(name string, args []string, stdout, stderr io.Writer) error {
	switch name {
	case "serve":
		return serve(args, stdout, stderr)
	case "status", "members", "add", "remove", "transfer", "snapshot":
		return administer(name, args, stdout)
	case "health":
		return health(args, stdout)
	case "backup":
		return backup(args, stdout)
	case "restore":
		return restore(args, stdout)
	case "bench":
		return benchmark(args, stdout, stderr)
	case "version":
		fmt.Fprintln(stdout, "lockstep", version)
		return nil
	case "help":
		fmt.Fprint(stdout, helpText())
		return nil
	default:
		return usageError{fmt.Errorf("unknown command %q: want serve, status, members, add, remove, transfer, snapshot, backup, restore, health, bench, version or help", name)}
	}
}
