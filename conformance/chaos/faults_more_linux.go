package main

import "time"

// clockFaults returns the faults that set the wall clocks of nodes. The monotonic clocks run on, so no lease may change.
func clockFaults() []*fault {
	set := func(x *breaker, n *node, d time.Duration) {
		x.note("clock of %s: %v", n.id, d)
		if err := n.setClock(d); err != nil {
			x.fail("%v", err)
		}
	}
	far := func(x *breaker) time.Duration { return x.between(-90*24*time.Hour, 90*24*time.Hour) }
	near := func(x *breaker) time.Duration { return x.between(-3*time.Second, 3*time.Second) }
	return []*fault{
		{"clock jumps", "clock", func(x *breaker) {
			n := x.mostly()
			set(x, n, far(x))
			x.wait(x.hold)
			set(x, n, 0)
		}},
		{"clocks differ", "clock", func(x *breaker) {
			for _, n := range x.s.f.nodes {
				set(x, n, far(x))
			}
			x.wait(x.hold)
		}},
		{"clock unsteady", "clock", func(x *breaker) {
			n := x.mostly()
			for end := time.Now().Add(x.hold); time.Now().Before(end) && !x.over(); {
				set(x, n, near(x))
				x.wait(x.between(10*time.Millisecond, 300*time.Millisecond))
			}
		}},
	}
}

// adminFaults returns actions of an operator. An action may fail while other things are broken, but must do no harm.
func adminFaults() []*fault {
	tell := func(x *breaker, n *node, words ...string) {
		reply, err := n.ask(append([]string{"LOCKSTEP"}, words...)...)
		x.note("%s: %v: %v, %v", n.id, words, reply, err)
	}
	return []*fault{
		{"transfer", "admin", func(x *breaker) {
			for range 3 {
				if x.rng.IntN(2) == 0 {
					tell(x, x.leading(), "TRANSFER")
				} else {
					tell(x, x.leading(), "TRANSFER", x.any().id)
				}
				x.wait(x.hold / 6)
			}
		}},
		{"snapshot", "admin", func(x *breaker) {
			for _, n := range x.s.f.nodes {
				tell(x, n, "SNAPSHOT")
				x.wait(x.hold / 6)
			}
		}},
	}
}
