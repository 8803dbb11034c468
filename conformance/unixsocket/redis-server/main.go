// Command redis-server takes the place of the real one on the PATH of a test suite that starts a redis-server itself. It starts
// lockstep instead, at a Unix socket if there is one, else at a port. It knows the few settings that such suites use. They may be on
// the command line or, with `redis-server -`, on standard input.
//
// LOCKSTEP_BINARY names the program to start.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-io/lockstep/conformance/environ"
)

// settings has the settings that matter here. All other settings have no meaning for a server that stores nothing.
type settings struct {
	port, socket string
}

func main() {
	// This thread must live on, because lockstep may be told to end with the thread that started it.
	runtime.LockOSThread()
	s, err := read(os.Args[1:], os.Stdin)
	if err == nil {
		err = run(s)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "*** FATAL CONFIG FILE ERROR ***\n%v\n", err)
		os.Exit(1)
	}
}

// read reads settings from arguments of the form `--name value` or, after `-`, from lines of the form `name value`.
func read(args []string, stdin io.Reader) (settings, error) {
	s := settings{port: "6379"}
	if len(args) == 1 && args[0] == "-" {
		lines := bufio.NewScanner(stdin)
		for lines.Scan() {
			name, value, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
			if err := s.set(name, value); err != nil {
				return s, err
			}
		}
		return s, lines.Err()
	}
	for i := 0; i < len(args); i += 2 {
		name, ok := strings.CutPrefix(args[i], "--")
		if !ok || i+1 == len(args) {
			return s, fmt.Errorf("bad directive or wrong number of arguments: %q", args[i])
		}
		if err := s.set(name, args[i+1]); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *settings) set(name, value string) error {
	switch strings.ToLower(name) {
	case "port":
		s.port = value
	case "unixsocket":
		s.socket = value
	case "", "save", "appendonly", "dir", "loglevel", "databases":
	default:
		return fmt.Errorf("bad directive or wrong number of arguments: %q", name)
	}
	return nil
}

func run(s settings) error {
	listen, err := s.address()
	if err != nil {
		return err
	}
	network, addr := "tcp", listen
	if s.socket != "" {
		network, addr = "unix", s.socket
	}
	child := exec.Command(os.Getenv("LOCKSTEP_BINARY"), "serve", "--ephemeral", "--listen", listen, "--http-listen", "", "--unixsocket", s.socket)
	child.Stderr, child.Env = os.Stderr, environ.Environ()
	endWithParent(child)
	if err := child.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	if err := waitFor(network, addr, ended); err != nil {
		return err
	}
	fmt.Println("* Server initialized")
	fmt.Println("* The server is now ready to accept connections")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case err := <-ended:
		return err // because of SHUTDOWN, or of a failure
	case <-stop:
		if err := child.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		return <-ended
	}
}

// address returns where lockstep listens: at the given port or, if there is none or that is taken, at the socket only.
func (s settings) address() (string, error) {
	if s.port == "0" && s.socket != "" {
		return "", nil
	}
	ln, err := net.Listen("tcp", "127.0.0.1:"+s.port)
	if err != nil && s.socket != "" {
		fmt.Println("# port", s.port, "is taken, another one serves the socket:", err)
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// waitFor asks lockstep again and again until it answers.
func waitFor(network, addr string, ended <-chan error) error {
	for {
		if c, err := net.Dial(network, addr); err == nil {
			_, err = io.WriteString(c, "PING\r\n")
			if err == nil {
				_, err = io.ReadFull(c, make([]byte, len("+PONG\r\n")))
			}
			if err = errors.Join(err, c.Close()); err == nil {
				return nil
			}
		}
		select {
		case err := <-ended:
			return fmt.Errorf("lockstep ended at its start: %w", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
