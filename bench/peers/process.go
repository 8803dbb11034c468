package peers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/lockstep-io/lockstep/conformance/environ"
)

// Site is the place where servers are started.
type Site struct {
	Dir      string // directory for their data and their output
	Lockstep string // path of the lockstep program
	Port     int    // the next port to try
}

// addr returns a free address.
func (s *Site) addr() (string, error) {
	for ; s.Port < 1<<16; s.Port++ {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port))
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			continue // another process has the port
		}
		s.Port++
		return addr, ln.Close()
	}
	return "", errors.New("there is no free port left")
}

// addrs returns n free addresses.
func (s *Site) addrs(n int) ([]string, error) {
	list := make([]string, n)
	for i := range list {
		addr, err := s.addr()
		if err != nil {
			return nil, err
		}
		list[i] = addr
	}
	return list, nil
}

// process is a running server.
type process struct {
	name, dir string
	cmd       *exec.Cmd
	done      chan struct{}
}

// launch starts a server in a directory of its own.
func (s *Site) launch(name string, env []string, command ...string) (*process, error) {
	p := &process{name: name, dir: filepath.Join(s.Dir, name), done: make(chan struct{})}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	log, err := os.Create(p.log())
	if err != nil {
		return nil, err
	}
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = p.dir, log, log
	p.cmd.Env = append(environ.Environ(), env...)
	// The server gets a process group of its own, so that an interrupt from the terminal does not reach it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := startTied(p.cmd); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go func() {
		_ = p.cmd.Wait() // the server was killed, so its exit status says nothing
		log.Close()
		close(p.done)
	}()
	return p, nil
}

func (p *process) log() string { return p.dir + ".log" }

// kill ends the process, whose data are not needed any more.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// fallen returns an error if the process has ended by itself. The error has the end of the process's log.
func (p *process) fallen() error {
	select {
	case <-p.done:
		log, err := os.ReadFile(p.log())
		return errors.Join(fmt.Errorf("%s has ended: %s", p.name, log[max(0, len(log)-500):]), err)
	default:
		return nil
	}
}

// fallen returns an error for each server that has ended by itself.
func (s *System) fallen() (err error) {
	for _, p := range s.processes {
		err = errors.Join(err, p.fallen())
	}
	return err
}

const readyTimeout = time.Minute

// await calls ok again and again until it returns nil. It gives up if a server has ended, or after readyTimeout.
func (s *System) await(ok func() error) error {
	for end := time.Now().Add(readyTimeout); ; time.Sleep(20 * time.Millisecond) {
		if err := s.fallen(); err != nil {
			return err
		}
		err := ok()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("not ready after %v: %w; see %s", readyTimeout, err, s.site.Dir)
		}
	}
}

// versionOf runs a command that prints a program's version, and returns the version.
func versionOf(command ...string) string {
	out, err := exec.Command(command[0], command[1:]...).Output()
	if err != nil {
		return "unknown"
	}
	return dotted.FindString(string(out))
}

var dotted = regexp.MustCompile(`\d+(\.\d+)+`)
