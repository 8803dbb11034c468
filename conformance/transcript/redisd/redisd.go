// Package redisd runs a real redis-server on a free loopback port. Transcripts are recorded from it, so its replies count as right.
package redisd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/conformance/transcript"
)

// Version is the only version of redis-server from which golden replies may come.
const Version = "7.0.15"

// Server is a running redis-server with an empty keyspace and default settings.
type Server struct {
	addr string
	bin  string
	cmd  *exec.Cmd
	dir  string
}

var _ transcript.Configurable = (*Server)(nil)

var versionPattern = regexp.MustCompile(`v=(\S+)`)

// Find returns the redis-server on PATH and its version.
func Find() (bin, version string, err error) {
	bin, err = exec.LookPath("redis-server")
	if err != nil {
		return "", "", err
	}
	out, err := exec.Command(bin, "--version").Output()
	if err != nil {
		return "", "", fmt.Errorf("%s --version: %w", bin, err)
	}
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return "", "", fmt.Errorf("%s --version says no version: %q", bin, out)
	}
	return bin, string(m[1]), nil
}

// startAttempts is how often Start tries to start the server: another process may take the free port before the server does.
const startAttempts = 3

// Start runs the program bin. The settings are pairs of name and value that replace defaults.
func Start(bin string, settings ...[2]string) (*Server, error) {
	var err error
	for range startAttempts {
		var s *Server
		if s, err = start(bin, settings); err == nil {
			return s, nil
		}
	}
	return nil, err
}

func start(bin string, settings [][2]string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redisd")
	if err != nil {
		return nil, err
	}
	// Besides the address and the directory, the server gets one setting: it must not save anything when it stops.
	args := []string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--save", ""}
	for _, kv := range settings {
		args = append(args, "--"+kv[0], kv[1])
	}
	s := &Server{
		addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		bin:  bin,
		cmd:  exec.Command(bin, args...),
		dir:  dir,
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := awaitReady(out); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// awaitReady waits until the server listens. Afterwards a goroutine reads the log, because the server would block otherwise.
func awaitReady(log io.Reader) error {
	var seen []string
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			go func() {
				// The rest of the log is of no use. It ends when the server ends, and Close waits for the end of the server.
				_, _ = io.Copy(io.Discard, log)
			}()
			return nil
		}
		seen = append(seen, lines.Text())
	}
	return fmt.Errorf("redis-server did not start: %s", strings.Join(seen, "\n"))
}

// Close ends the server and removes its directory.
func (s *Server) Close() error {
	err := s.cmd.Process.Kill()
	// The error of Wait only reports the signal that was just sent.
	_ = s.cmd.Wait()
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Addr returns host:port of the server.
func (s *Server) Addr() string { return s.addr }

// Dial opens a client connection.
func (s *Server) Dial() (net.Conn, error) { return net.Dial("tcp", s.addr) }

// Advance sleeps, because Redis has no other clock than the machine's.
func (s *Server) Advance(d time.Duration) { time.Sleep(d) }

// With starts a new server with settings, for a file with @server lines.
func (s *Server) With(settings [][2]string) (transcript.Target, func(), error) {
	own, err := Start(s.bin, settings...)
	if err != nil {
		return nil, nil, err
	}
	return own, func() {
		// If the server died while it was used, the file has failed already.
		_ = own.Close()
	}, nil
}

// Settings returns the whole configuration. It shows whether a transcript has changed the configuration.
func (s *Server) Settings() (string, error) {
	conn, err := s.Dial()
	if err != nil {
		return "", err
	}
	_, err = conn.Write(transcript.AppendCommand(nil, "CONFIG", "GET", "*"))
	if err != nil {
		return "", errors.Join(err, conn.Close())
	}
	v, err := transcript.ReadValue(bufio.NewReader(conn))
	if err == nil && v.Type == '-' {
		err = fmt.Errorf("CONFIG GET: %s", v.Text)
	}
	return pairs(v), errors.Join(err, conn.Close())
}

// pairs prints a flat array of names and values: one pair per line, in the order of the array.
func pairs(v transcript.Value) string {
	var lines []string
	for i := 0; i+1 < len(v.Elems); i += 2 {
		lines = append(lines, v.Elems[i].Text+" "+v.Elems[i+1].Text)
	}
	return strings.Join(lines, "\n")
}
