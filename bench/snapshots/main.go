// Snapshots shows what a large state costs: whether clients notice a snapshot, how long a restart takes, and what happens while the
// state is sent to a member that was away.
//
//	go build -o lockstep ./cmd/lockstep
//	go -C bench run ./snapshots -server ../lockstep [-locks 1000000] [-nodes 3] [-clients 20] [-for 10s]
//
// It starts nodes of its own on loopback, with their data in -dir, and creates locks that last an hour. Then some clients take and
// release locks all the time, and some owners renew leases of two seconds. It prints
//
//   - the times of replies, without snapshots and while snapshots are written all the time;
//   - with three nodes, the same times while a member gets a snapshot, because it
//     was down for so long that the log no longer has the entries that it lacks;
//   - with three nodes, the same times while a fourth node without data joins;
//   - how long a killed leader takes from its start until it is ready.
//
// It fails if a lease was lost, if an error came, or if the nodes' states differ in the end.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"
)

// plan says what a run does.
type plan struct {
	server  string
	dir     string
	port    int
	locks   int
	nodes   int
	clients int
	last    time.Duration
	only    string
	rounds  int
}

func main() {
	var p plan
	flag.StringVar(&p.server, "server", "", "the lockstep program")
	flag.StringVar(&p.dir, "dir", "", "directory for the nodes' data (default: a temporary one)")
	flag.IntVar(&p.port, "port", 26100, "first of the ports")
	flag.IntVar(&p.locks, "locks", 1_000_000, "locks that are held")
	flag.IntVar(&p.nodes, "nodes", 1, "nodes, 1 or 3")
	flag.IntVar(&p.clients, "clients", 20, "clients that lock and unlock")
	flag.DurationVar(&p.last, "for", 10*time.Second, "how long each measurement lasts")
	flag.StringVar(&p.only, "only", "", "one of snapshots, install, join, restart: that measurement alone")
	flag.IntVar(&p.rounds, "rounds", 1, "how often each measurement is made")
	flag.Parse()
	if err := p.run(); err != nil {
		fmt.Fprintln(os.Stderr, "snapshots:", err)
		os.Exit(1)
	}
}

func (p *plan) run() (err error) {
	if p.server == "" {
		return errors.New("-server is missing: build cmd/lockstep first")
	}
	if p.nodes != 1 && p.nodes != 3 {
		return errors.New("-nodes must be 1 or 3")
	}
	if p.dir == "" {
		if p.dir, err = os.MkdirTemp("", "lockstep-snapshots"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(p.dir)) }()
	}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	c := newCluster(p)
	defer c.kill()
	if err := c.start(); err != nil {
		return err
	}
	began := time.Now()
	if err := c.fill(); err != nil {
		return err
	}
	fmt.Printf("%d locks on %d node(s), loaded in %v\n", p.locks, p.nodes, time.Since(began).Round(time.Millisecond))
	return p.measurements(c)
}

func (p *plan) measurements(c *cluster) error {
	for _, m := range []struct {
		name  string
		nodes int // how many nodes the measurement needs
		run   func(*cluster) error
	}{{"snapshots", 1, p.snapshots}, {"install", 3, p.install}, {"join", 3, p.join}, {"restart", 1, p.restart}} {
		if m.nodes > p.nodes || p.only != "" && p.only != m.name {
			continue
		}
		for range p.rounds {
			if err := m.run(c); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			if err := c.agree(); err != nil {
				return fmt.Errorf("after %s: %w", m.name, err)
			}
		}
	}
	return nil
}

// snapshots measures the load without snapshots, and while snapshots are written.
func (p *plan) snapshots(c *cluster) error {
	leader, err := c.leader()
	if err != nil {
		return err
	}
	if err := p.undisturbed(c); err != nil {
		return err
	}
	count, took := 0, time.Duration(0)
	with, err := c.measure(p.last, func(stop <-chan struct{}) error {
		for {
			began := time.Now()
			if err := leader.ask("LOCKSTEP", "SNAPSHOT"); err != nil {
				return err
			}
			count, took = count+1, took+time.Since(began)
			select {
			case <-stop:
				return nil
			default:
			}
		}
	})
	if err != nil {
		return err
	}
	fmt.Printf("with snapshots:          %v (%d snapshots, %v each)\n", with, count, (took / time.Duration(count)).Round(time.Millisecond))
	return nil
}

// undisturbed measures the load alone, before each measurement that is compared with it: other work may share the machine.
func (p *plan) undisturbed(c *cluster) error {
	without, err := c.measure(p.last, func(stop <-chan struct{}) error {
		<-stop
		return nil
	})
	if err == nil {
		fmt.Println("undisturbed:            ", without)
	}
	return err
}

// install measures while a follower that was away gets a snapshot.
func (p *plan) install(c *cluster) error {
	leader, err := c.leader()
	if err != nil {
		return err
	}
	away := c.nodes[0]
	if away == leader {
		away = c.nodes[1]
	}
	away.kill()
	if err := c.outgrow(leader); err != nil {
		return err
	}
	if err := p.undisturbed(c); err != nil {
		return err
	}
	var took time.Duration
	during, err := c.measure(p.last, func(stop <-chan struct{}) error {
		began := time.Now()
		if err := away.start(); err != nil {
			return err
		}
		if err := away.ready(); err != nil {
			return err
		}
		if err := c.caughtUp(away, leader); err != nil {
			return err
		}
		took = time.Since(began)
		<-stop
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Printf("while one is sent:       %v (from its start until it has caught up: %v; snapshots received: %d)\n",
		during, took.Round(time.Millisecond), away.installs())
	return nil
}

// restart kills the leader, starts it again, and prints how long it takes until it is ready. Afterwards, all locks must still be
// there.
func (p *plan) restart(c *cluster) error {
	leader, err := c.leader()
	if err != nil {
		return err
	}
	leader.kill()
	began := time.Now()
	if err := leader.start(); err != nil {
		return err
	}
	if err := leader.ready(); err != nil {
		return err
	}
	fmt.Printf("restart of the leader:   %v until Ready\n", time.Since(began).Round(time.Millisecond))
	got, err := leader.size()
	if err != nil {
		return err
	}
	if got < int64(p.locks) {
		return fmt.Errorf("%d of %d locks are left", got, p.locks)
	}
	return nil
}
