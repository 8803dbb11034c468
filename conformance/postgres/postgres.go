// Package postgres runs a real PostgreSQL on a loopback port, for tests of what a database does with fencing tokens.
package postgres

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/ports"
)

// How long the server may take to start and to stop. Both are far longer than it needs, because a machine may be under load.
const readyTimeout, stopTimeout = 30 * time.Second, 10 * time.Second

// ErrNotInstalled says that this machine has no PostgreSQL.
var ErrNotInstalled = errors.New("PostgreSQL is not installed")

// programs returns the directory with PostgreSQL's programs. Debian keeps most of them off the PATH.
func programs() (string, error) {
	dirs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	if initdb, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(initdb))
	}
	for _, dir := range dirs {
		complete := true
		for _, name := range []string{"initdb", "postgres", "psql"} {
			_, err := exec.LookPath(filepath.Join(dir, name))
			complete = complete && err == nil
		}
		if complete {
			return dir, nil
		}
	}
	return "", ErrNotInstalled
}

// Start runs a server with an empty database that ends with the test, carries out the statements, and returns the database's
// address: postgres://user:password@host:port/name. Without PostgreSQL, the error is ErrNotInstalled.
func Start(t testing.TB, statements string) (string, error) {
	t.Helper()
	bin, err := programs()
	if err != nil {
		return "", err
	}
	// The parent of t.TempDir() may be entered by this process's user alone, and the server may run as another user.
	dir, err := os.MkdirTemp("", "lockstep-postgres")
	if err != nil {
		return "", err
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s := &server{bin: bin, dir: dir, addr: ports.Addrs(t, 1)[0], password: rand.Text()}
	if s.as, err = unprivileged(dir); err != nil {
		return "", err
	}
	if err := s.initialize(); err != nil {
		return "", err
	}
	if err := s.run(t); err != nil {
		return "", err
	}
	return s.url(), s.await(statements)
}

// unprivileged gives dir to a user that is not root, because PostgreSQL refuses to run as root. It returns nil if this process
// itself does not run as root.
func unprivileged(dir string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		account, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, int(uid), int(gid))
}

type server struct {
	bin, dir, addr, password string
	as                       *syscall.Credential
	log                      bytes.Buffer
	done                     chan struct{} // closed when the server has ended; after that, log may be read
}

func (s *server) url() string {
	return "postgres://lockstep:" + s.password + "@" + s.addr + "/postgres"
}

func (s *server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	return cmd
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

func (s *server) initialize() error {
	secret := filepath.Join(s.dir, "password")
	if err := os.WriteFile(secret, []byte(s.password), 0o600); err != nil {
		return err
	}
	if s.as != nil {
		if err := os.Chown(secret, int(s.as.Uid), int(s.as.Gid)); err != nil {
			return err
		}
	}
	out, err := s.command("initdb", "-D", s.data(), "--username=lockstep", "--pwfile="+secret, "--auth=scram-sha-256",
		"--encoding=UTF8", "--no-locale", "--no-sync").CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

// run starts the server. pg_ctl would let it outlive this process.
func (s *server) run(t testing.TB) error {
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return err
	}
	cmd := s.command("postgres", "-D", s.data(), "-c", "listen_addresses="+host, "-c", "port="+port,
		"-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "max_connections=300")
	endWithParent(cmd)
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	if err := cmd.Start(); err != nil {
		return err
	}
	s.done = make(chan struct{})
	go func() {
		_ = cmd.Wait() // if the server ended by itself, await says so
		close(s.done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGQUIT) // the server may have ended already
		select {
		case <-s.done:
		case <-time.After(stopTimeout):
			t.Error("PostgreSQL does not stop")
			_ = cmd.Process.Kill()
			<-s.done
		}
	})
	return nil
}

// await carries out the statements as soon as the server takes connections.
func (s *server) await(statements string) error {
	for end := time.Now().Add(readyTimeout); ; time.Sleep(50 * time.Millisecond) {
		out, err := s.command("psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--single-transaction",
			"--command="+statements, s.url()).CombinedOutput()
		if err == nil {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("PostgreSQL has ended: %s", s.log.Bytes())
		default:
		}
		// psql's status is 2 if it has no connection.
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 2 || time.Now().After(end) {
			return fmt.Errorf("psql: %w: %s", err, out)
		}
	}
}
