package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lockstep-io/lockstep/conformance/chaos/network"
	"github.com/lockstep-io/lockstep/conformance/environ"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// Every node has these ports, on an address of its own.
const (
	plainPort    = "6379"
	clusterPort  = "6380"
	peerPort     = "7379"
	httpPort     = "8379"
	sentinelPort = "26379"
)

// node is a member of the cluster: a host and the process on it.
type node struct {
	id   string
	addr netip.Addr
	host *network.Host
	dir  string // its data, its log, its clock
	args []string
	f    *fleet
	disk *disk // nil: the machine's disk

	mu      sync.Mutex
	cmd     *exec.Cmd
	done    chan struct{} // closed when the process has ended
	wanted  bool          // the process is meant to run
	paused  bool
	excused bool     // its disk was broken, so the process may end itself and blame the disk
	crashes []string // how the process ended when nobody had asked it to
}

// at returns one of the node's addresses.
func (n *node) at(port string) string { return n.addr.String() + ":" + port }

// start starts the process, with the same command every time.
func (n *node) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil && !ended(n.done) {
		return nil
	}
	n.noteEnd()
	if n.disk != nil {
		if err := n.disk.repair(); err != nil {
			return fmt.Errorf("%s: %w", n.id, err)
		}
	}
	log, err := os.OpenFile(n.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(n.f.binary, n.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(environ.Environ(), clockVariable+"="+n.clockPath())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.host.Do(cmd.Start); err != nil {
		return fmt.Errorf("%s: %w", n.id, err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(done)
	}()
	n.cmd, n.done, n.wanted, n.paused = cmd, done, true, false
	return nil
}

func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func (n *node) logPath() string   { return filepath.Join(n.dir, "log") }
func (n *node) diskPath() string  { return filepath.Join(n.dir, "disk") }
func (n *node) clockPath() string { return filepath.Join(n.dir, "clock") }

// gaveUp is the exit code of a node that ends because it could not go on without breaking a promise.
const gaveUp = 1

// noteEnd records how the process ended, unless somebody asked it to end, or it was excused and blames its disk. The caller must
// hold n.mu.
func (n *node) noteEnd() {
	if !n.wanted || !ended(n.done) {
		return
	}
	n.wanted = false
	if state := n.cmd.ProcessState; !n.excused || state.ExitCode() != gaveUp || !blamesDisk(n.lastWords()) {
		n.crashes = append(n.crashes, fmt.Sprintf("%s ended by itself: %v: %s", n.id, state, n.lastWords()))
	}
}

// blamesDisk reports whether a node gave up because its disk is full or fails, not because of damaged data.
func blamesDisk(words string) bool {
	words = words[strings.LastIndex(words, "lockstep: ")+1:] // the words of the process that ended last
	for _, why := range []syscall.Errno{syscall.ENOSPC, syscall.EIO, syscall.EROFS} {
		if strings.Contains(words, why.Error()) {
			return !strings.Contains(words, "damaged")
		}
	}
	return false
}

// lastWords returns the end of the node's log.
func (n *node) lastWords() string {
	text, err := os.ReadFile(n.logPath())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(len(lines)-5, 0):], "\n\t")
}

// excuse allows the process to give up because of its disk, for the rest of the epoch.
func (n *node) excuse() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.excused = true
}

// crashed returns how the process has ended by itself since the last call of crashed.
func (n *node) crashed() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		n.noteEnd()
	}
	list := n.crashes
	n.crashes, n.excused = nil, false
	return list
}

// kill ends the process as kill -9 does, at once.
func (n *node) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return
	}
	n.noteEnd()
	n.wanted = false
	n.reap()
}

// reap kills the process, and thaws its disk so that the process can end. n.mu must be held.
func (n *node) reap() {
	n.signal(syscall.SIGKILL)
	if n.disk != nil {
		if err := n.disk.thaw(); err != nil {
			panic(fmt.Sprintf("chaos: %s: %v; its process cannot be ended", n.id, err))
		}
	}
	<-n.done
}

// signal sends a signal, unless the process has ended. The caller must hold n.mu.
func (n *node) signal(s syscall.Signal) {
	if n.cmd != nil && !ended(n.done) {
		// The process may end at this very moment. Then whoever waits for the process learns that it has ended.
		_ = n.cmd.Process.Signal(s)
	}
}

func (n *node) pause() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.signal(syscall.SIGSTOP)
	// The signal reaches one thread after the other. On a busy machine, some threads go on for a while, and could still answer a
	// client.
	for !n.stands() {
		time.Sleep(time.Millisecond)
	}
	n.paused = true
}

// stands reports whether the process has stopped or ended. A thread that waits for a disk stops when the disk answers.
func (n *node) stands() bool {
	if n.cmd == nil || ended(n.done) {
		return true
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", n.cmd.Process.Pid))
	if err != nil {
		return true // Glob fails only for a bad pattern, and this pattern is good
	}
	stopped := false
	for _, path := range tasks {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		// The state follows the name, which is in parentheses.
		_, state, _ := strings.Cut(string(stat), ") ")
		switch state[:min(1, len(state))] {
		case "T":
			stopped = true
		case "D", "Z", "X":
		default:
			return false
		}
	}
	return stopped // the first thread to stop makes the others stop
}

func (n *node) resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.signal(syscall.SIGCONT)
	n.paused = false
}

// stopTimeout is how long a node may take to stop when it is asked to.
const stopTimeout = 20 * time.Second

// stop ends the process as SIGTERM does.
func (n *node) stop() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil || ended(n.done) {
		return nil
	}
	n.wanted = false
	n.signal(syscall.SIGTERM)
	select {
	case <-n.done:
		if n.excused {
			return nil
		}
		if code := n.cmd.ProcessState.ExitCode(); code != 0 {
			return fmt.Errorf("%s: exit code %d after SIGTERM", n.id, code)
		}
		return nil
	case <-time.After(stopTimeout):
		n.reap()
		return fmt.Errorf("%s: still there %v after SIGTERM", n.id, stopTimeout)
	}
}

// died reports whether the process has ended without being asked to.
func (n *node) died() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.wanted && ended(n.done)
}

// mendDisk makes a stalled or full disk usable. It leaves a failed disk to start, and kills the process.
func (n *node) mendDisk() error {
	if n.disk == nil {
		return nil
	}
	if n.disk.failed() {
		n.kill()
		return nil // start mounts it again
	}
	return errors.Join(n.disk.thaw(), n.disk.empty())
}

// setClock sets how far the node's wall clock is from the machine's.
func (n *node) setClock(offset time.Duration) error {
	next := n.clockPath() + ".next"
	if err := os.WriteFile(next, []byte(offset.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(next, n.clockPath())
}

// statusTimeout is how long a node may take to report its status.
const statusTimeout = 2 * time.Second

// ask sends the node one command from the control host, whose links are never broken.
func (n *node) ask(args ...string) (any, error) {
	conn, err := n.f.control.Dial(n.at(plainPort), statusTimeout)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(statusTimeout)); err != nil {
		return nil, err
	}
	return respclient.NewConn(conn).Do(args...)
}

// status returns what `lockstep status` shows.
func (n *node) status() (map[string]string, error) {
	reply, err := n.ask("LOCKSTEP", "STATUS")
	if err != nil {
		return nil, err
	}
	m, err := respclient.Pairs(reply)
	if err != nil {
		return nil, err
	}
	if m["id"] != n.id {
		return nil, fmt.Errorf("%s: status of %q", n.id, m["id"])
	}
	return m, nil
}

// ready requests /readyz without an HTTP client: it sends a request, and reads the first line of the answer.
func (n *node) ready() error {
	conn, err := n.f.control.Dial(n.at(httpPort), statusTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(statusTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("GET /readyz HTTP/1.0\r\n\r\n")); err != nil {
		return err
	}
	head := make([]byte, 64)
	got, err := conn.Read(head)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(head[:got]), "HTTP/1.0 200") {
		return errors.New(strings.TrimSpace(string(head[:got])))
	}
	return nil
}
