package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// What signals do to a node (docs/operations.md, "Signals"):
//
//	SIGTERM, SIGINT   hand leadership over, let clients finish, end
//	SIGHUP            read again the files that parts.reload names, even in a node that nohup has started
//	SIGPIPE           nothing: the reader of the log may end before the node
//	SIGQUIT, SIGABRT  print every goroutine's stack and end at once, for a node that hangs
//
// Go's runtime decides what other signals do: most do nothing (package os/signal).

// reloader reads one thing again, such as the certificates for clients or the secret of the peers.
type reloader struct {
	name string
	read func() error
}

// takeSignals makes SIGTERM and SIGINT cancel the context stop, and keeps SIGHUP and SIGPIPE from ending this process. Before that,
// the node may open nothing.
func takeSignals() (stop context.Context, cancel context.CancelFunc, hangups chan os.Signal) {
	hangups = make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	// Without this call, a SIGPIPE would end the process when it writes to a log whose reader has ended.
	signal.Ignore(syscall.SIGPIPE)
	stop, cancel = signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	return stop, cancel, hangups
}

// reloadOn calls reload at each SIGHUP, until ctx ends.
func reloadOn(ctx context.Context, hangups <-chan os.Signal, reload func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			reload()
		}
	}
}

// reload runs all reloaders in list, and logs the result in one line.
func reload(list []reloader, log *slog.Logger) {
	if len(list) == 0 {
		log.Info("SIGHUP: this node has nothing to read anew")
		return
	}
	var names []string
	var faults error
	for _, r := range list {
		if err := r.read(); err != nil {
			faults = errors.Join(faults, fmt.Errorf("%s: %w", r.name, err))
		} else {
			names = append(names, r.name)
		}
	}
	if faults != nil {
		log.Error("SIGHUP: not everything could be read anew; what could not stays as it was", "error", faults, "read", strings.Join(names, ", "))
		return
	}
	log.Info("SIGHUP: read anew", "read", strings.Join(names, ", "))
}
