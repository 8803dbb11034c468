// Package systemd takes the sockets that a service manager has opened for a node, and tells the manager about the node. Without such a manager
// it does nothing.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
)

// Sockets returns the listeners that the manager has opened, by their names (FileDescriptorName=). Each must have one of the known names. It
// can be called once: the environment and the descriptors are taken.
func Sockets(known []string) (map[string]net.Listener, error) {
	list, faults := map[string]net.Listener{}, []error(nil)
	for _, f := range activation.Files(true) {
		name := f.Name()
		ln, err := net.FileListener(f) // has a descriptor of its own
		switch {
		case !slices.Contains(known, name):
			err = errors.Join(err, fmt.Errorf("the service manager passes a socket with the name %q: give it one of these by FileDescriptorName=: %s", name, strings.Join(known, ", ")))
		case err == nil && list[name] != nil:
			err = fmt.Errorf("the service manager passes two sockets with the name %s: lockstep listens on one", name)
		case err != nil:
			err = fmt.Errorf("the service manager's socket %s accepts no connections: %w; want a ListenStream= with Accept=no", name, err)
		}
		faults = append(faults, err, f.Close())
		if err == nil {
			list[name] = ln
		} else if ln != nil {
			faults = append(faults, ln.Close())
		}
	}
	if err := errors.Join(faults...); err != nil {
		for _, ln := range list {
			err = errors.Join(err, ln.Close())
		}
		return nil, err
	}
	return list, nil
}

// Manager tells a service manager about a node (Type=notify). Its methods do nothing without one.
type Manager struct {
	log      *slog.Logger
	is       bool          // there is a manager
	watchdog time.Duration // 0: the manager does not watch the node
	said     atomic.Bool   // a failure has been logged
}

const (
	// patience is how much longer a start may take, from each time that the manager is told so.
	patience = time.Minute
	// period is how often the manager is told what has changed.
	period = time.Second
	// stopping bounds how long a node that stops waits for a manager that reads nothing.
	stopping = 100 * time.Millisecond
)

// New returns the Manager of this process.
func New(log *slog.Logger) *Manager {
	m := &Manager{log: log}
	if m.is = os.Getenv("NOTIFY_SOCKET") != ""; !m.is {
		return m
	}
	var err error
	if m.watchdog, err = daemon.SdWatchdogEnabled(true); err != nil {
		log.Warn("the service manager's watchdog is not served", "error", err)
	}
	return m
}

// tell sends lines to the manager.
func (m *Manager) tell(lines ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(lines, "\n")); err != nil && !m.said.Swap(true) {
		m.log.Warn("the service manager could not be told", "error", err)
	}
}

// Starting asks the manager for patience until the function ready is called: a large log takes long to read.
func (m *Manager) Starting() (ready func()) {
	if !m.is {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		again := time.NewTicker(patience / 3)
		defer again.Stop()
		for {
			m.tell(fmt.Sprint("EXTEND_TIMEOUT_USEC=", patience.Microseconds()), "STATUS=reads its log")
			select {
			case <-ctx.Done():
				return
			case <-again.C:
			}
		}
	}()
	return func() {
		cancel()
		<-over
	}
}

// Run says that the node has started, and what it is from then on, until ctx ends. A manager that watches the node hears from it only as long
// as status returns: a node that hangs is to be killed and started anew.
func (m *Manager) Run(ctx context.Context, status func() string) {
	if !m.is {
		return
	}
	every := period
	if m.watchdog > 0 {
		every = min(every, m.watchdog/3)
	}
	again := time.NewTicker(every)
	defer again.Stop()
	last := ""
	m.tell(daemon.SdNotifyReady)
	for {
		lines := []string(nil)
		if now := status(); now != last {
			last = now
			lines = append(lines, "STATUS="+strings.Join(strings.Fields(now), " ")) // a line break would begin another message
		}
		if m.watchdog > 0 {
			lines = append(lines, daemon.SdNotifyWatchdog)
		}
		if lines != nil {
			m.tell(lines...)
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// Stopping says that the node stops.
func (m *Manager) Stopping() {
	told := make(chan struct{})
	go func() {
		defer close(told)
		m.tell(daemon.SdNotifyStopping, "STATUS=hands over and lets clients finish")
	}()
	select {
	case <-told:
	case <-time.After(stopping):
	}
}

// Reload tells the manager that the node reads its files again, while it runs read (Type=notify-reload).
func (m *Manager) Reload(read func()) {
	m.tell(daemon.SdNotifyReloading, strings.TrimSuffix(daemon.SdNotifyMonotonicUsec(), "\n"))
	read()
	m.tell(daemon.SdNotifyReady)
}
