package compose

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	heldLocks     = 30
	contenders    = 6
	contendedFor  = 3
	contendMillis = "8000"
)

const unlock = `if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end`

// TestCompose: while containers are cut off, killed and restarted, no lock has two owners, and the nodes are equal in the end.
func TestCompose(t *testing.T) {
	if os.Getenv("LOCKSTEP_COMPOSE") == "" {
		t.Skip("`make compose` runs docker-compose.yml under a Docker engine")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(t)
	image := fmt.Sprint("lockstep-test-", os.Getpid())
	e.buildImage(root, image)
	e.requireContainers(image)
	p := newProject(t, e, root, image)
	t.Cleanup(func() { p.composeRun("down", "--volumes", "--timeout", "5") })
	p.up()
	p.requireNoRights()
	p.requireGuardedHTTP()
	s := &stage{project: p, inside: make([]atomic.Int32, contendedFor)}
	s.takeLocks()
	stop := s.contend()
	for _, f := range []struct {
		name  string
		short bool // make test plays it, too
		do    func()
	}{
		{"the leader is cut off", true, s.cutLeader},
		{"the followers are cut off", false, s.cutFollowers},
		{"the leader is killed", true, s.killLeader},
		{"one after the other is restarted", false, s.rolling},
		{"all are killed", false, s.killAll},
		{"down, and up with the same volumes", true, func() { p.composeRun("down"); p.up() }},
	} {
		if !f.short && !must() {
			continue
		}
		start := time.Now()
		f.do()
		p.waitHealthy(services...)
		s.checkHeld(services...)
		s.checkGoesOn(services...)
		t.Logf("%s: %v", f.name, time.Since(start).Round(time.Millisecond))
	}
	stop()
	t.Logf("%d contended locks granted, %d requests without an answer or with an error", s.granted.Load(), s.failed.Load())
	t.Logf("applied index and state hash of all three: %s", p.waitEqual())
}

// requireContainers finds out whether the kernel lets containers run.
func (e *engine) requireContainers(image string) {
	e.t.Helper()
	if out, err := e.try("docker", "run", "--rm", "--network", "none", image, "version"); err != nil {
		impossible(e.t, "containers cannot run here: "+err.Error())
	} else if !strings.HasPrefix(out, "lockstep ") {
		e.t.Fatalf("the image's lockstep version: %q", out)
	}
	network := fmt.Sprint("lockstep-probe-", os.Getpid())
	if _, err := e.try("docker", "network", "create", network); err != nil {
		impossible(e.t, "containers can have no network here: "+err.Error())
	}
	e.run("docker", "network", "rm", network)
	if user := e.run("docker", "inspect", "-f", "{{.Config.User}}", image); user == "" || strings.HasPrefix(user, "0") {
		e.t.Errorf("the image runs as user %q", user)
	}
}

// requireNoRights checks that the containers have only the rights that a node needs.
func (p *project) requireNoRights() {
	p.t.Helper()
	const want = "[ALL] [] false true [no-new-privileges:true]"
	for _, service := range services {
		if got := p.run("docker", "inspect", "-f", "{{.HostConfig.CapDrop}} {{.HostConfig.CapAdd}} {{.HostConfig.Privileged}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.SecurityOpt}}",
			p.container(service)); got != want {
			p.t.Errorf("%s: capabilities dropped, added, privileged, read-only root, options: %s; want %s", service, got, want)
		}
	}
}

// stage is the project with locks that are held all the time, and with clients that contend for other locks.
type stage struct {
	*project
	held            map[string]string
	inside          []atomic.Int32
	granted, failed atomic.Int64
}

func (s *stage) takeLocks() {
	s.t.Helper()
	s.held = map[string]string{}
	for i := range heldLocks {
		key, owner, service := fmt.Sprint("held:", i), fmt.Sprint("owner-", i), services[i%len(services)]
		if got, err := s.ask(service, "SET", key, owner, "NX", "PX", "1800000"); got != "OK" {
			s.t.Fatalf("%s through %s: %v, %v", key, service, got, err)
		}
		s.held[key] = owner
	}
}

// checkHeld asks each of the services about every lock. The lock must have its owner, and must not be granted to a thief.
func (s *stage) checkHeld(through ...string) {
	s.t.Helper()
	for _, service := range through {
		for key, owner := range s.held {
			if got, err := s.ask(service, "GET", key); got != owner {
				s.t.Errorf("%s through %s: %v, %v; want %s", key, service, got, err, owner)
			}
			if got, err := s.ask(service, "SET", key, "thief", "NX", "PX", "1000"); got != nil || err != nil {
				s.t.Errorf("%s was granted twice through %s: %v, %v", key, service, got, err)
			}
		}
	}
}

// checkGoesOn waits until each of the services grants a lock.
func (s *stage) checkGoesOn(through ...string) {
	s.t.Helper()
	for _, service := range through {
		s.eventually("no lock through "+service, func() error {
			got, err := s.ask(service, "SET", fmt.Sprint("new:", time.Now().UnixNano()), "me", "NX", "PX", "1000")
			if err == nil && got != "OK" {
				err = fmt.Errorf("%v", got)
			}
			return err
		})
	}
}

// contend starts clients at all services. The function stop ends them.
func (s *stage) contend() (stop func()) {
	var over atomic.Bool
	var wg sync.WaitGroup
	for i := range contenders {
		addr := s.addrs[services[i%len(services)]]
		wg.Go(func() {
			for !over.Load() {
				c, err := dial(addr)
				if err == nil {
					err = s.client(c, i, &over)
					c.Close()
				}
				if err != nil {
					s.failed.Add(1)
					time.Sleep(200 * time.Millisecond)
				}
			}
		})
	}
	return func() {
		over.Store(true)
		wg.Wait()
	}
}

// client takes and releases one lock until its connection fails, or until over is true.
func (s *stage) client(c conn, i int, over *atomic.Bool) error {
	lock := i % contendedFor
	key := fmt.Sprint("contended:", lock)
	for n := 0; !over.Load(); n++ {
		me := fmt.Sprintf("client-%d-%d-%d", i, n, time.Now().UnixNano())
		got, err := c.ask("SET", key, me, "NX", "PX", contendMillis)
		if err != nil {
			return err
		}
		if got == "OK" {
			s.granted.Add(1)
			if s.inside[lock].Add(1) != 1 {
				s.t.Errorf("%s has two holders", key)
			}
			time.Sleep(5 * time.Millisecond)
			s.inside[lock].Add(-1)
			if _, err := c.ask("EVAL", unlock, "1", key, me); err != nil {
				return err
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// cutLeader cuts the leader off. The other nodes elect a new leader and go on, and the old leader knows that it is alone.
func (s *stage) cutLeader() {
	leader, others := s.leader()
	s.cut(leader)
	s.checkGoesOn(others...)
	s.checkHeld(others...)
	id := s.container(leader)
	s.eventually(leader+" is healthy without a network", func() error {
		if _, err := s.try("docker", "exec", id, "/lockstep", "health"); err == nil {
			return fmt.Errorf("lockstep health succeeds")
		}
		return nil
	})
	s.mend(leader)
}

// cutFollowers cuts the followers off: a leader without a majority grants nothing.
func (s *stage) cutFollowers() {
	leader, others := s.leader()
	for _, service := range others {
		s.cut(service)
	}
	for range 3 {
		if got, err := s.ask(leader, "SET", "alone", "me", "NX", "PX", "1800000"); err == nil {
			s.t.Errorf("%s grants locks without a majority: %v", leader, got)
		}
	}
	for _, service := range others {
		s.mend(service)
	}
}

// killLeader kills the leader's container and starts it again, because Docker does not restart a container after `docker kill`.
func (s *stage) killLeader() {
	leader, others := s.leader()
	s.run("docker", "kill", s.container(leader))
	s.checkGoesOn(others...)
	s.checkHeld(others...)
	s.run("docker", "start", s.container(leader))
}

func (s *stage) rolling() {
	for _, service := range services {
		s.composeRun("restart", service)
		s.waitHealthy(service)
	}
}

func (s *stage) killAll() {
	s.composeRun("kill")
	s.up()
}
