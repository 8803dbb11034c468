package cluster

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/store"
)

// waitLine is a command that waits for many keys.
func waitLine(name string, keys int) string {
	var b strings.Builder
	b.WriteString("BLPOP")
	for i := range keys {
		fmt.Fprintf(&b, " %s:%d", name, i)
	}
	return b.String() + " 0"
}

// The leader bounds the memory of another node's blocked clients. It refuses the clients of the most keys.
func TestGuestsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.guests.limit = 1 << 20
		_, own := p.wait(p.Node, waitLine("own", 3000)) // of a client of the leader itself
		_, early := p.wait(p.b, "BLPOP early 0")
		var large []<-chan string
		for i := range 60 {
			_, done := p.block(p.b, waitLine(fmt.Sprint("large", i), 500+i))
			large = append(large, done)
		}
		_, late := p.wait(p.b, "BLPOP late 0")
		refused := 0
		for _, done := range large {
			select {
			case got := <-done:
				refused++
				if got != "-ERR" {
					t.Errorf("got %q", got)
				}
			default:
			}
		}
		if p.guests.size > 1<<20 || p.guests.all != p.guests.size || refused < 50 || refused > 54 {
			t.Errorf("%d of %d are refused, %d and %d bytes are held", refused, len(large), p.guests.size, p.guests.all)
		}
		p.expect("1 1 1", "RPUSH early a", "RPUSH late b", "RPUSH own:2999 c")
		p.got(early, "[early a]")
		p.got(late, "[late b]")
		p.got(own, "[own:2999 c]")
		p.expect("1 x", "RPUSH large59:0 x", "LPOP large59:0") // nobody waits for this list any more
		p.cut()
		synctest.Wait()
		if p.guests.size != 0 || p.guests.all != 0 || len(p.guests.list) != 0 {
			t.Errorf("%d and %d bytes of %d are held for nobody", p.guests.size, p.guests.all, len(p.guests.list))
		}
	})
}

// While the disk stands still, refused clients take no more bytes than the limit, besides the others.
func TestGuestsOfAStalledLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.guests.limit = 1 << 20
		var w []*blockedClient
		refused, turnedAway := 0, 0
		for i := range 100 {
			s := &blockedClient{req: &request{calls: p.call(waitLine(fmt.Sprint(i), 300))}}
			out, at := p.guests.arrive(s)
			refused += len(out)
			if !at {
				turnedAway++
				continue
			}
			w = append(w, s)
		}
		if p.guests.size > 1<<20 || p.guests.all > 2<<20 || refused == 0 || turnedAway < 50 {
			t.Errorf("%d and %d bytes are held, %d refused, %d turned away", p.guests.size, p.guests.all, refused, turnedAway)
		}
		for _, s := range w {
			p.guests.left(s)
		}
		if p.guests.size != 0 || p.guests.all != 0 {
			t.Errorf("%d and %d bytes are held for nobody", p.guests.size, p.guests.all)
		}
	})
}

// BlockedSize is no less than what a blocking command takes on the leader, with few keys and with many.
func TestBlockedSize(t *testing.T) {
	table := store.NewTable(store.Commands())
	for keys, many := range map[int]int{1: 20_000, 100: 500, 5000: 20} {
		heap := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		ws, counted, before := newBlockedClients(), int64(0), heap()
		for i := range many {
			line := waitLine(fmt.Sprintf("name-of-a-queue-%d", i), keys)
			var args [][]byte
			for _, a := range strings.Fields(line) {
				args = append(args, []byte(a))
			}
			cmd, _ := table.Resolve(args)
			calls, err := call.Read(call.Append(nil, []Call{{Cmd: cmd, Args: args, RESP: 2, User: store.SystemUser}}, forward.Minor), table)
			if err != nil {
				t.Fatal(err)
			}
			counted += BlockedSize(args)
			w := &blockedClient{req: &request{calls: calls}}
			ws.join(w, &store.Wait{Keys: calls[0].Args[1 : keys+1], Type: store.TypeList}, 0)
		}
		if took := heap() - before; took > counted || took < counted/4 {
			t.Errorf("%d commands of %d keys take %d bytes and count as %d", many, keys, took, counted)
		}
		runtime.KeepAlive(ws)
	}
}
