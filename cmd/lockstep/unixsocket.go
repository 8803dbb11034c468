package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

// unixOptions are the flags of the Unix socket for clients. Their names are those of Redis.
type unixOptions struct{ path, perm string }

// maxSocketPath is the longest path of a Unix socket, in bytes: the shortest limit of the systems is macOS's.
const maxSocketPath = 103

// mode returns the permissions of the socket; given is false if the umask decides, as in Redis.
func (o *unixOptions) mode() (mode fs.FileMode, given bool, err error) {
	n, err := strconv.ParseUint(cmp.Or(o.perm, "0"), 8, 32)
	if err != nil || n > 0o777 {
		return 0, false, fmt.Errorf("--unixsocketperm %q: want octal digits up to 777, such as 770; 0: the umask decides", o.perm)
	}
	return fs.FileMode(n), n != 0, nil
}

func (o *unixOptions) faults() (faults []error) {
	if len(o.path) > maxSocketPath {
		faults = append(faults, fmt.Errorf("--unixsocket: the path has %d bytes; the system allows %d", len(o.path), maxSocketPath))
	}
	if _, _, err := o.mode(); err != nil {
		faults = append(faults, err)
	}
	return faults
}

// listen opens the socket. It takes the place of a socket that a dead process has left behind, and of nothing else.
func (o *unixOptions) listen() (net.Listener, error) {
	mode, given, err := o.mode()
	if err != nil {
		return nil, err
	}
	if err := o.clear(); err != nil {
		return nil, fmt.Errorf("--unixsocket %s: %w", o.path, err)
	}
	if given {
		// Nobody may connect before the permissions are set. Only this goroutine makes files now: the client ports are opened first.
		defer syscall.Umask(syscall.Umask(0o777))
	}
	ln, err := net.Listen("unix", o.path)
	if err != nil {
		return nil, fmt.Errorf("--unixsocket %s: %w; give a path in a directory in which this user may write", o.path, err)
	}
	if given {
		if err := os.Chmod(o.path, mode); err != nil {
			return nil, errors.Join(fmt.Errorf("--unixsocketperm: %w", err), ln.Close())
		}
	}
	return ln, nil
}

// clear removes what a dead process has left at the path.
func (o *unixOptions) clear() error {
	switch info, err := os.Lstat(o.path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return errors.New("there is a file that is no socket: remove it, or give another path")
	}
	conn, err := net.DialTimeout("unix", o.path, time.Second)
	if err == nil {
		return errors.Join(errors.New("another process listens there: stop it, or give another path"), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(o.path)
}
