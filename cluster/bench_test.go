package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/ports"
	"github.com/lockstep-io/lockstep/store"
)

// BenchmarkSubmit measures SET NX PX through the sequencer at 50 concurrent
// submitters, without sockets between client and node.
func BenchmarkSubmit(b *testing.B) {
	for _, c := range []struct {
		name  string
		nodes int
	}{{"ephemeral", 0}, {"one", 1}, {"three", 3}} {
		b.Run(c.name, func(b *testing.B) { benchmarkSubmit(b, c.nodes) })
	}
}

func benchmarkSubmit(b *testing.B, count int) {
	table := store.NewTable(store.Commands())
	cfg := Default()
	cfg.Table, cfg.Time, cfg.Logger = table, NewSystemTime(), slog.New(slog.DiscardHandler)
	cfg.Fatal = func(err error) { b.Error(err) }
	cfg.Ephemeral = count == 0
	var list []*Node
	if count > 1 {
		for i, addr := range ports.Addrs(b, count) {
			cfg.Peers = append(cfg.Peers, Peer{ID: fmt.Sprintf("n%d", i+1), Addr: addr})
		}
	}
	for i := range max(count, 1) {
		c := cfg
		c.ID, c.Data, c.PeerListen = fmt.Sprintf("n%d", i+1), b.TempDir(), "127.0.0.1:0"
		if count > 1 {
			c.PeerListen = cfg.Peers[i].Addr
		}
		n, err := Open(c)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { n.Close() })
		list = append(list, n)
	}
	leader := list[0]
	for _, n := range list {
		if err := n.WaitReady(context.Background()); err != nil {
			b.Fatal(err)
		}
		if n.Status().Role == Leader {
			leader = n
		}
	}
	set := table.Lookup([]byte("set"))
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range 50 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var replies []store.Reply
			calls := make([]Call, 1)
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				calls[0] = Call{Cmd: set, RESP: 2, Args: [][]byte{[]byte("SET"), strconv.AppendInt([]byte("key:"), i%100000, 10),
					[]byte("v"), []byte("NX"), []byte("PX"), []byte("1000")}}
				replies = leader.Submit(calls, replies)
				if replies[0].IsError() {
					b.Error(replies[0].Str)
					return
				}
			}
		}()
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(float64(b.N)/float64(leader.batches.Load()), "ops/batch")
}
