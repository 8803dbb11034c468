package peers

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/bench/load"
	"github.com/lockstep-io/lockstep/bench/wire"
)

const zkServer = "zkServer.sh"

// sessionTimeout is the longest timeout that the servers grant: 20 ticks.
const sessionTimeout = 40 * time.Second

func startZooKeeper(s *System) error {
	clients, err := s.site.addrs(ensemble)
	if err != nil {
		return err
	}
	between, err := s.site.addrs(2 * ensemble)
	if err != nil {
		return err
	}
	server, err := lookup(zkServer)
	if err != nil {
		return err
	}
	var members strings.Builder
	for i := range ensemble {
		_, election, err := net.SplitHostPort(between[2*i+1])
		if err != nil {
			return err
		}
		fmt.Fprintf(&members, "server.%d=%s:%s\n", i+1, between[2*i], election)
	}
	for i, addr := range clients {
		name := fmt.Sprint("n", i+1)
		dir := filepath.Join(s.site.Dir, s.Name+"-"+name)
		if err := writeZooKeeper(dir, addr, i+1, members.String()); err != nil {
			return err
		}
		env := []string{"ZOOCFGDIR=" + dir, "ZOO_LOG_DIR=" + dir, "ZOOPIDFILE=" + filepath.Join(dir, "pid")}
		if err := s.launch(name, env, server, "start-foreground", filepath.Join(dir, "zoo.cfg")); err != nil {
			return err
		}
	}
	s.lacks = map[string]string{"rlock": whyNoReentrant, "herd": whyNoHerd, "renew": "one ping renews all locks of a session",
		"leased": "its locks have no leases but their sessions"}
	s.everyNode = true
	s.open = func(owner, addr string) (load.Session, error) { return openZooKeeper(s, addr, owner) }
	// A lock ends with its session, so no lock is left to delete.
	s.reset = func() ([]string, error) {
		nodes, err := leaderFirst(clients, s.leadsZooKeeper)
		if err != nil {
			return nil, err
		}
		return nodes, makeParent(s, nodes[0])
	}
	return nil
}

// writeZooKeeper writes the configuration of one server.
func writeZooKeeper(dir, addr string, id int, members string) error {
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	config := fmt.Sprintf("tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=%s\nclientPortAddress=%s\nclientPort=%s\nmaxClientCnxns=0\n"+
		"admin.enableServer=false\n4lw.commands.whitelist=srvr\n%s", data, host, port, members)
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "zoo.cfg"), []byte(config), 0o600),
		os.WriteFile(filepath.Join(data, "myid"), []byte(fmt.Sprintln(id)), 0o600))
}

// leadsZooKeeper asks a server by ZooKeeper's command srvr whether it leads.
func (s *System) leadsZooKeeper(addr string) (leads bool, err error) {
	conn, err := net.DialTimeout("tcp", addr, adminTimeout)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return false, err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return false, err
	}
	leads, s.Version = parseSrvr(string(answer))
	return leads, nil
}

func parseSrvr(answer string) (leads bool, version string) {
	for line := range strings.Lines(answer) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch name {
		case "Zookeeper version":
			version, _, _ = strings.Cut(value, "-")
		case "Mode":
			leads = value == "leader"
		}
	}
	return leads, version
}

// queueParent is the parent of the locks for which clients wait in Enter. Each lock is the parent of the nodes of its clients.
const queueParent = "/queue"

func makeParent(s *System, addr string) error {
	z, err := wire.DialZooKeeper(addr, sessionTimeout, &s.Traffic)
	if err != nil {
		return err
	}
	return errors.Join(ensure(z, queueParent), z.Close())
}

// ensure creates a persistent node if it does not exist.
func ensure(z *wire.ZooKeeper, path string) error {
	_, err := z.Create(path, "", 0)
	if errors.Is(err, wire.ErrNodeExists) {
		return nil
	}
	return err
}

// zookeeperSession is a client whose locks are ephemeral nodes.
type zookeeperSession struct {
	*wire.ZooKeeper
	owner  string
	inside string // path of the node that Enter has made
}

var (
	_ load.Session = (*zookeeperSession)(nil)
	_ load.Queued  = (*zookeeperSession)(nil)
)

func openZooKeeper(s *System, addr, owner string) (load.Session, error) {
	z, err := wire.DialZooKeeper(addr, sessionTimeout, &s.Traffic)
	if err != nil {
		return nil, err
	}
	return &zookeeperSession{ZooKeeper: z, owner: owner}, nil
}

func (z *zookeeperSession) Lock(keys []string) (int, error) {
	return tally(keys, func(key string) (bool, error) {
		_, err := z.Create("/"+key, z.owner, wire.Ephemeral)
		if errors.Is(err, wire.ErrNodeExists) {
			return false, nil
		}
		return err == nil, err
	})
}

func (z *zookeeperSession) Hold(keys []string) (int, error) { return z.Lock(keys) }

func (z *zookeeperSession) Unlock(keys []string) (int, error) {
	return tally(keys, func(key string) (bool, error) {
		err := z.Delete("/" + key)
		if errors.Is(err, wire.ErrNoNode) {
			return false, nil
		}
		return err == nil, err
	})
}

func (z *zookeeperSession) Drop(keys []string) (int, error) { return z.Unlock(keys) }

func (z *zookeeperSession) Renew([]string) (int, error) {
	return 0, errors.New("a ZooKeeper session has no renewal of single locks")
}

func (z *zookeeperSession) Held(keys []string) (int, error) {
	return tally(keys, func(key string) (bool, error) { return z.Exists("/"+key, false) })
}

// Enter follows ZooKeeper's lock recipe: the node with the lowest number holds the
// lock, and every other client watches the node before its own.
func (z *zookeeperSession) Enter(key string) error {
	lock := queueParent + "/" + key
	path, err := z.line(lock)
	if err != nil {
		return err
	}
	z.inside = path
	me := strings.TrimPrefix(path, lock+"/")
	for {
		names, err := z.Children(lock)
		if err != nil {
			return err
		}
		slices.Sort(names)
		at := slices.Index(names, me)
		if at < 0 {
			return fmt.Errorf("%s is gone", path)
		}
		if at == 0 {
			return nil
		}
		before := lock + "/" + names[at-1]
		there, err := z.Exists(before, true)
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		if err := z.AwaitDeletion(before); err != nil {
			return err
		}
	}
}

// line makes the client's node in the line of a lock. It creates the lock's own node when that is first needed, as ZooKeeper's
// client libraries do.
func (z *zookeeperSession) line(lock string) (string, error) {
	path, err := z.Create(lock+"/", z.owner, wire.Ephemeral|wire.Sequential)
	if !errors.Is(err, wire.ErrNoNode) {
		return path, err
	}
	if err := ensure(z.ZooKeeper, lock); err != nil {
		return "", err
	}
	return z.Create(lock+"/", z.owner, wire.Ephemeral|wire.Sequential)
}

func (z *zookeeperSession) Leave(string) error { return z.Delete(z.inside) }
