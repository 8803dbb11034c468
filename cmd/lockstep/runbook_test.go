package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/environ"
	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/conformance/ports"
	"github.com/lockstep-io/lockstep/conformance/s3"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// runbook runs the commands of a section of docs/recovery.md on nodes of this machine.
type runbook struct {
	t      *testing.T
	places map[string]string // what the document says, and what takes its place here
	last   string            // the address of the node that was started last
	env    []string          // further variables of the commands
}

// at names a node of the document: its addresses, and the directories that belong to it.
func (r *runbook) at(number int, n *nodes.Node, lost bool) {
	r.places[fmt.Sprintf("10.0.0.%d:6379", number)], r.places[fmt.Sprintf("10.0.0.%d:7379", number)] = n.Addr, n.PeerAddr
	if !lost {
		r.places["/var/lib/lockstep "] = n.Data + " "
	}
}

// exitCode is what the document says of the end of a command.
var exitCode = regexp.MustCompile(`# exit code (\d)$`)

// run runs a line. A line that starts a node leaves it running.
func (r *runbook) run(line string) {
	r.t.Helper()
	line += " "
	for _, said := range []string{"/var/lib/lockstep-new", "/var/lib/lockstep ", "/backup", "10.0.0.1:6379", "10.0.0.1:7379", "10.0.0.2:6379", "10.0.0.2:7379", "10.0.0.3:6379", "10.0.0.3:7379"} {
		line = strings.ReplaceAll(line, said, r.places[said])
	}
	line = strings.TrimSpace(line)
	if strings.HasPrefix(line, "lockstep --id") {
		r.start(strings.Fields(line)[1:])
		return
	}
	want := 0
	if m := exitCode.FindStringSubmatch(line); m != nil {
		want, _ = strconv.Atoi(m[1])
	}
	cmd := exec.Command("sh", "-c", line)
	cmd.Env = append(append(environ.Environ(), r.env...), "PATH="+filepath.Dir(nodes.Binary(r.t))+":/usr/bin:/bin")
	if out, err := cmd.CombinedOutput(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
		r.t.Errorf("%s: %v\n%s", line, err, out)
	}
}

// start starts a node, and waits until it serves and knows a leader.
func (r *runbook) start(args []string) {
	r.t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(nodes.Binary(r.t), append(args, "--http-listen", "")...)
	cmd.Stdout, cmd.Stderr, cmd.Env = &log, &log, environ.Environ()
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		if r.t.Failed() {
			r.t.Logf("%q:\n%s", args, log.String())
		}
	})
	for i, arg := range args {
		if arg == "--listen" {
			r.last = args[i+1]
		}
	}
	until(r.t, "the node to serve", func() bool {
		_, err := r.do("SET", "alive", "yes")
		return err == nil
	})
}

func (r *runbook) do(args ...string) (any, error) {
	c, err := respclient.Dial(r.last, 30*time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(args...)
}

// TestRecoveryRunbook runs the commands of docs/recovery.md, section by section, in the state that the section is for. In the end the last node that
// they have started has the locks.
func TestRecoveryRunbook(t *testing.T) {
	doc := sections(read(t, root+"/docs/recovery.md"))
	begin := map[string]func(t *testing.T, r *runbook){
		"Backups by schedule": func(t *testing.T, r *runbook) {
			list := nodes.Start(t, 1)
			grantLocks(t, list[0], 0, 10)
			r.at(1, list[0], false)
			r.env = []string{"AWS_ENDPOINT_URL=" + s3.Start(t).URL, "AWS_ACCESS_KEY_ID=me", "AWS_SECRET_ACCESS_KEY=" + s3Secret}
		},
		"A majority is lost": func(t *testing.T, r *runbook) {
			list, _ := loseTheMajority(t)
			for i, n := range list {
				r.at(i+1, n, i < 2)
			}
		},
		"One node is lost": func(t *testing.T, r *runbook) {
			list := nodes.Start(t, 3)
			grantLocks(t, list[0], 0, 10)
			list[1].Kill()
			for i, n := range list {
				r.at(i+1, n, i == 1)
			}
		},
		"All nodes are lost": func(t *testing.T, r *runbook) {
			list := nodes.Start(t, 1)
			grantLocks(t, list[0], 0, 10)
			if code, _, faults := command(t, "backup", filepath.Join(r.places["/backup"], "locks.backup"), "--addr", list[0].Addr); code != exitOK {
				t.Fatal(faults)
			}
			list[0].Kill()
			r.at(1, list[0], true)
		},
		"A disk is damaged": func(t *testing.T, r *runbook) {
			list := nodes.Start(t, 1)
			list[0].Kill()
			r.at(1, list[0], false)
			if err := os.WriteFile(filepath.Join(list[0].Data, "node.json"), []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	}
	ran := 0
	for _, s := range doc {
		if len(s.blocks) == 0 {
			continue
		}
		name := s.name
		if begin[name] == nil {
			t.Errorf("no test prepares the commands of %q", name)
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := &runbook{t: t, places: map[string]string{"/var/lib/lockstep-new": filepath.Join(dir, "new"), "/backup": dir}}
			for i, addr := range ports.Addrs(t, 6) {
				r.places[fmt.Sprintf("10.0.0.%d:%d379", i%3+1, 6+i/3)] = addr
			}
			begin[name](t, r)
			for _, block := range s.blocks {
				for _, line := range strings.Split(block, "\n") {
					if strings.HasPrefix(line, "lockstep ") || strings.HasPrefix(line, "gunzip ") {
						r.run(line)
					}
				}
			}
			if r.last == "" || t.Failed() {
				return
			}
			if got, err := r.do("GET", "lock:3"); err != nil || got != "owner-3" {
				t.Errorf("the lock is held by %v, %v", got, err)
			}
		})
	}
	if ran != len(begin) {
		t.Errorf("%d of %d sections have commands", ran, len(begin))
	}
}
