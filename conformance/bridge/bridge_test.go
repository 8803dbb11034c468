package bridge

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// lease is so long that no lock of these tests ends by itself.
const lease = 120_000

func needs(t *testing.T) {
	t.Helper()
	if os.Getenv("LOCKSTEP_CLIENTS") == "" {
		t.Skip("`make conformance` runs the clients of other projects")
	}
	for _, program := range []string{"redis-server", "redis-sentinel", "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%s is not installed", program)
			}
			t.Skipf("%s is not installed", program)
		}
	}
}

// startWorkers starts workers of both libraries: at each address of the old Redis, and at each node.
func startWorkers(t *testing.T, old string, list []*nodes.Node) (all []*worker) {
	t.Helper()
	holder := filepath.Join(t.TempDir(), "holder")
	if out, err := exec.Command("go", "-C", "../go", "build", "-o", holder, "./holder").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	at := []string{old, old}
	for _, n := range list {
		at = append(at, n.Addr)
	}
	for i, addr := range at {
		url := "redis://" + addr
		python := exec.Command("../run-python.sh", "holder.py", url)
		python.Env = append(os.Environ(), "LOCKSTEP_ADDRS="+addr)
		all = append(all, startWorker(t, fmt.Sprintf("redis-py-%d", i), i >= 2, python),
			startWorker(t, fmt.Sprintf("redsync-%d", i), i >= 2, exec.Command(holder, url)))
	}
	return all
}

// TestHalfOfTheClientsHaveMoved: clients of two libraries use a Redis with two replicas, half of them by way of lockstep. While the Redis
// lives, all exclude each other. Then it fails over and loses locks. Clients that have moved still exclude each other. The nodes count
// exactly the locks of their clients that the new primary lacks, and put them back.
func TestHalfOfTheClientsHaveMoved(t *testing.T) {
	needs(t)
	primary := startRedis(t, "redis-server", "--save", "", "--repl-diskless-sync-delay", "0")
	var toPrimary []*front
	var replicas []*redisServer
	for range 2 {
		f := newFront(t, primary.addr)
		host, port, _ := net.SplitHostPort(f.addr)
		replica := startRedis(t, "redis-server", "--save", "", "--replicaof", host, port)
		toPrimary, replicas = append(toPrimary, f), append(replicas, replica)
	}
	synced := func() bool { n, err := ask(primary.addr, "WAIT", "2", "1000"); return err == nil && n == int64(2) }
	until(t, "both replicas follow", synced)
	service := newFront(t, primary.addr)
	cluster := nodes.Start(t, 3, "--bridge", "redis://"+service.addr)
	workers := startWorkers(t, service.addr, cluster)

	work(t, workers)
	if t.Failed() {
		return
	}
	if lost := figure(t, cluster, "bridge_lost_locks_total"); lost != 0 {
		t.Fatalf("%d locks are called lost before the failover", lost)
	}

	// Each worker takes locks that the replicas get, and locks that they do not get.
	take := func(kind string, n int) {
		for i, w := range workers {
			for j := range n {
				if name := fmt.Sprintf("%s-%d-%d", kind, i, j); !w.do(t, false, "take %s %d", name, lease) {
					t.Fatalf("%s does not get %s", w.name, name)
				}
			}
		}
	}
	const kept, cut = 4, 5
	take("kept", kept)
	until(t, "the replicas have the locks", synced)
	for _, f := range toPrimary {
		f.lead("")
	}
	take("cut", cut)
	for i, w := range workers { // the replicas do not hear of this
		if name := fmt.Sprintf("kept-%d-0", i); !w.do(t, false, "drop %s", name) {
			t.Errorf("%s cannot drop %s", w.name, name)
		}
	}
	service.lead("")
	primary.kill()

	// While there is no primary, clients that have moved keep their locks, and may renew and release them; nobody gets one.
	for i, w := range workers {
		if !w.moved {
			continue
		}
		if !w.do(t, false, "renew kept-%d-1 %d", i, lease) || !w.do(t, false, "drop kept-%d-2", i) {
			t.Errorf("%s could not renew and drop its locks without the Redis", w.name)
		}
		if other := workers[(i+1)%len(workers)]; other.moved && other.do(t, true, "take kept-%d-1 %d", i, lease) {
			t.Errorf("%s got a lock of %s while there was no primary", other.name, w.name)
		}
		if w.do(t, true, "take fresh-%d %d", i, lease) {
			t.Errorf("%s got a new lock while there was no primary", w.name)
		}
	}

	// The judge asks the new primary itself, before anybody else can.
	replicas[0].ask(t, "REPLICAOF", "NO", "ONE")
	var lost []string
	for i, w := range workers {
		for _, kind := range []struct {
			name     string
			from, to int
		}{{"kept", 1, kept}, {"cut", 0, cut}} {
			for j := kind.from; j < kind.to; j++ {
				name := fmt.Sprintf("%s-%d-%d", kind.name, i, j)
				if w.moved && name != fmt.Sprintf("kept-%d-2", i) && replicas[0].ask(t, "EXISTS", name) == int64(0) {
					lost = append(lost, name)
				}
			}
		}
	}
	if want := cut * (len(workers) - 4); len(lost) != want {
		t.Fatalf("the new primary lacks %d locks of clients that have moved, not %d: %v", len(lost), want, lost)
	}
	replicas[0].ask(t, "SET", lost[0], "somebody else", "PX", strconv.Itoa(lease)) // who has not moved may get what Redis has lost
	service.lead(replicas[0].addr)

	for i, w := range workers {
		for j := range cut {
			name := fmt.Sprintf("cut-%d-%d", i, j)
			if other := workers[len(workers)-1-(i+j)%2]; w.moved && other != w && other.do(t, true, "take %s %d", name, lease) {
				t.Errorf("%s got %s, which %s holds", other.name, name, w.name)
			}
		}
	}
	until(t, "the nodes have counted the lost locks", func() bool { return figure(t, cluster, "bridge_lost_locks_total") >= len(lost) })
	until(t, "the nodes have put them back", func() bool { return figure(t, cluster, "bridge_restored_locks_total") >= len(lost)-1 })
	until(t, "locks released without the Redis are free there", func() bool {
		for i, w := range workers {
			if w.moved && replicas[0].ask(t, "EXISTS", fmt.Sprintf("kept-%d-2", i)) != int64(0) {
				return false
			}
		}
		return true
	})
	for _, name := range lost[1:] {
		for _, other := range workers[:4] { // these have not moved
			if other.do(t, false, "take %s %d", name, lease) {
				t.Errorf("%s got %s, which was put back", other.name, name)
			}
		}
	}
	for i, w := range workers {
		for j := range cut {
			if w.moved && !w.do(t, false, "drop cut-%d-%d", i, j) {
				t.Errorf("%s cannot drop cut-%d-%d", w.name, i, j)
			}
		}
	}
	if n := figure(t, cluster, "bridge_lost_locks_total"); n != len(lost) {
		t.Errorf("the nodes have counted %d lost locks, and the new primary lacked %d", n, len(lost))
	}
	work(t, workers)
}

// work lets all workers take and drop a few locks for a while, and checks that no two of them are inside.
func work(t *testing.T, workers []*worker) {
	t.Helper()
	const names, visits, most = 4, 5, 5000
	var mu sync.Mutex
	inside := map[string]string{}
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(func() {
			entered := 0
			for tries := 0; entered < visits; tries++ {
				if tries == most {
					t.Errorf("%s got in %d times only", w.name, entered)
					return
				}
				name := fmt.Sprintf("shared-%d", rand.IntN(names))
				if !w.do(t, false, "take %s %d", name, lease) {
					continue
				}
				mu.Lock()
				if other := inside[name]; other != "" {
					t.Errorf("%s and %s both have %s", w.name, other, name)
				}
				inside[name] = w.name
				mu.Unlock()
				entered++
				time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
				mu.Lock()
				delete(inside, name)
				mu.Unlock()
				if !w.do(t, false, "drop %s", name) {
					t.Errorf("%s could not drop %s", w.name, name)
				}
			}
		})
	}
	all.Wait()
}

// figure adds up a metric over all nodes.
func figure(t *testing.T, list []*nodes.Node, name string) (sum int) {
	t.Helper()
	for _, n := range list {
		resp, err := http.Get("http://" + n.HTTPAddr + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`(?m)^lockstep_` + name + ` (\d+)$`).FindSubmatch(page)
		if found == nil {
			t.Fatalf("%s has no %s", n.ID, name)
		}
		value, err := strconv.Atoi(string(found[1]))
		if err != nil {
			t.Fatal(err)
		}
		sum += value
	}
	return sum
}

// TestBridgeFollowsSentinels: the node finds the new primary by itself.
func TestBridgeFollowsSentinels(t *testing.T) {
	needs(t)
	primary := startRedis(t, "redis-server", "--save", "", "--repl-diskless-sync-delay", "0")
	host, port, _ := net.SplitHostPort(primary.addr)
	replica := startRedis(t, "redis-server", "--save", "", "--replicaof", host, port)
	until(t, "the replica follows", func() bool { n, err := ask(primary.addr, "WAIT", "1", "1000"); return err == nil && n == int64(1) })
	var sentinels []string
	for range 3 {
		conf := filepath.Join(t.TempDir(), "sentinel.conf")
		text := fmt.Sprintf("sentinel monitor main %s %s 2\nsentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n", host, port)
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		sentinels = append(sentinels, startRedis(t, "redis-sentinel", conf).addr)
	}
	until(t, "the Sentinels know each other", func() bool {
		for _, s := range sentinels {
			if text, err := ask(s, "INFO", "sentinel"); err != nil || !strings.Contains(fmt.Sprint(text), "slaves=1,sentinels=3") {
				return false
			}
		}
		return true
	})
	node := nodes.Start(t, 1, "--bridge", "redis://"+sentinels[0]+"?master_name=main&addr="+sentinels[1]+"&addr="+sentinels[2])[0]
	if ok, err := node.Do("SET", "lock", "owner", "NX", "PX", strconv.Itoa(lease)); err != nil || ok != "OK" {
		t.Fatalf("%v, %v", ok, err)
	}
	if owner := primary.ask(t, "GET", "lock"); owner != "owner" {
		t.Fatalf("the primary has %v", owner)
	}
	until(t, "the replica has it", func() bool { return replica.ask(t, "GET", "lock") == "owner" })
	primary.kill()
	until(t, "a lock is granted again", func() bool {
		ok, err := node.Do("SET", "after", "owner", "NX", "PX", strconv.Itoa(lease))
		return err == nil && ok == "OK"
	})
	if owner := replica.ask(t, "GET", "after"); owner != "owner" {
		t.Errorf("the new primary has %v", owner)
	}
	if lost := figure(t, []*nodes.Node{node}, "bridge_lost_locks_total"); lost != 0 {
		t.Errorf("%d locks are called lost", lost)
	}
}

// TestBridgeToCluster: the old Redis may be a Redis Cluster.
func TestBridgeToCluster(t *testing.T) {
	needs(t)
	a := startRedis(t, "redis-server", "--save", "", "--cluster-enabled", "yes")
	b := startRedis(t, "redis-server", "--save", "", "--cluster-enabled", "yes")
	a.ask(t, "CLUSTER", "ADDSLOTSRANGE", "0", "8191")
	b.ask(t, "CLUSTER", "ADDSLOTSRANGE", "8192", "16383")
	b.ask(t, "CLUSTER", "SET-CONFIG-EPOCH", "2")
	host, port, _ := net.SplitHostPort(a.addr)
	b.ask(t, "CLUSTER", "MEET", host, port)
	until(t, "the cluster is whole", func() bool {
		for _, s := range []*redisServer{a, b} {
			if text, err := ask(s.addr, "CLUSTER", "INFO"); err != nil || !strings.Contains(fmt.Sprint(text), "cluster_state:ok") {
				return false
			}
		}
		return true
	})
	node := nodes.Start(t, 1, "--bridge", "redis://"+a.addr+"?addr="+b.addr)[0]
	on := map[bool]int{}
	for i := range 20 {
		name := fmt.Sprintf("lock-%d", i)
		if ok, err := node.Do("SET", name, "owner", "NX", "PX", strconv.Itoa(lease)); err != nil || ok != "OK" {
			t.Fatalf("%s: %v, %v", name, ok, err)
		}
		n, err := ask(a.addr, "EXISTS", name)
		on[err == nil && n == int64(1)]++
	}
	if on[true] == 0 || on[false] == 0 {
		t.Errorf("the locks are on one server: %v", on)
	}
	for _, s := range []*redisServer{a, b} {
		s.ask(t, "FLUSHALL")
	}
	one := []*nodes.Node{node}
	until(t, "all are lost and put back", func() bool {
		return figure(t, one, "bridge_lost_locks_total") == 20 && figure(t, one, "bridge_restored_locks_total") == 20
	})
}
