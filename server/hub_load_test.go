package server

import (
	"fmt"
	"log/slog"
	"testing"
	"time"
)

// TestWhoGetsMostIsCutOff: a node that spends most of its time on delivering messages, and falls behind, cuts off the clients
// that get most messages.
func TestWhoGetsMostIsCutOff(t *testing.T) {
	for begin, tell := range map[string]string{"SUBSCRIBE %s": "PUBLISH %s m", "CLIENT TRACKING ON BCAST PREFIX %s": "SET %s v"} {
		t.Run(begin, func(t *testing.T) {
			log := new(lines)
			ts := newTestServer(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
			sender := ts.dial(t)
			listener := func(name string) *session {
				c, known := ts.dial(t), ts.hub.listeners()
				c.send("HELLO 3\r\n" + fmt.Sprintf(begin, name) + "\r\n")
				ts.await(func() bool { return len(ts.hub.listeners()) > len(known) })
				for s := range ts.hub.listeners() {
					if _, is := known[s]; !is {
						return s
					}
				}
				return nil
			}
			much, less, little := listener("much"), listener("less"), listener("little")
			// period lasts loadPeriod: it sends the three clients 10, 5 and 1 messages, and delivering takes the time took.
			period := func(took time.Duration) {
				for s, name := range map[*session]string{much: "much", less: "less", little: "little"} {
					n := map[string]int64{"much": 10, "less": 5, "little": 1}[name]
					goal := s.messages.Load() + n
					for range n {
						sender.send(fmt.Sprintf(tell, name) + "\r\n")
					}
					ts.await(func() bool { return s.messages.Load() == goal || s.out.isOver() })
				}
				ts.fake.advance(loadPeriod)
				ts.fake.applied.Add(1)
				ts.hub.delivered(&delivery{to: little, took: took})
			}
			over := func() string { return fmt.Sprint(much.out.isOver(), less.out.isOver(), little.out.isOver()) }
			counted := func() { ts.await(func() bool { return little.messages.Load() == 0 }) } // waits until lighten has set the counts to 0
			const looks = int(loadWait / loadPeriod)
			heavy := func(looks int) {
				for range looks {
					period(loadPeriod)
				}
			}
			ts.fake.committed.Store(1)
			heavy(1)
			counted()
			heavy(2 * looks) // cuts nobody off: the node has applied all entries that it knew of
			ts.fake.committed.Store(1000)
			heavy(looks)
			period(loadPeriod / 3) // cuts nobody off: the node spends most of this period on other work
			heavy(1)
			counted()
			heavy(looks - 1)
			for range looks { // cuts nobody off: the node applies one long entry all the time
				ts.fake.advance(loadPeriod)
				ts.hub.delivered(&delivery{to: little, took: loadPeriod})
			}
			if got := over(); got != "false false false" {
				t.Errorf("cut off too early: %s", got)
			}
			heavy(1)
			ts.await(func() bool { return over() == "true false false" })
			counted()
			heavy(1)
			ts.await(func() bool { return over() == "true true false" })
			ts.fake.advance(seldomSilence)
			ts.seldom.behind.sayRest(ts.fake.clock())
			if n := log.count("fell behind"); n != 1 {
				t.Errorf("%d log lines", n)
			}
		})
	}
}
