package load

import (
	"fmt"
	"strconv"
	"time"
)

// storm has many leases that end at about the same time, while the clients work.
type storm struct {
	session Expiring
	leases  int
	before  int           // the peer's count of ended leases, before any lease of the storm ended
	from    time.Time     // when the first lease of the storm ends
	last    time.Time     // when the last lease of the storm ends
	gone    time.Duration // how long after the time "last" all of the storm's locks were deleted
}

const (
	// stormBatch leases are taken at once and end together: few compared with those that end within a millisecond.
	stormBatch = 100
	// stormPoll is the interval at which the storm counts the ended leases, until stormLimit after the end of the last lease.
	stormPoll  = 5 * time.Millisecond
	stormLimit = time.Minute
	// At the moment that is stormEarly before the end of the first lease, all leases must still be there.
	stormEarly = 100 * time.Millisecond
	// stormWindow is the least time for which the clients are measured while leases end.
	stormWindow = time.Second
)

// gather takes the leases. It decides beforehand when they end, so it must have taken all of them by a given time.
func (r *run) gather(target Target) error {
	s, err := target.Open("storm")
	if err != nil {
		return err
	}
	r.extra = s
	allowed := prepareFactor * (r.spec.Warm + r.spec.For)
	now := time.Now()
	st := &storm{session: s.(Expiring), leases: r.spec.Locks} // System.Lacks leaves out peers whose sessions cannot do it
	st.from = now.Add(allowed + r.spec.Warm + r.spec.For)
	if st.before, err = st.session.Expired(); err != nil {
		return err
	}
	for i := 0; i < st.leases; i += stormBatch {
		if time.Since(now) > allowed {
			return fmt.Errorf("only %d of %d leases were taken within %v, three times --for and --warm", i, st.leases, allowed)
		}
		st.last = st.from.Add(r.spec.Within * time.Duration(i) / time.Duration(st.leases))
		if err := st.take(i, min(i+stormBatch, st.leases)); err != nil {
			return err
		}
	}
	r.storm = st
	return nil
}

// take takes some of the leases. These end together, and later than all leases that were taken before.
func (s *storm) take(from, to int) error {
	var keys []string
	for i := from; i < to; i++ {
		keys = append(keys, "storm:"+strconv.Itoa(i))
	}
	n, err := s.session.HoldFor(keys, time.Until(s.last))
	return expect("hold", n, len(keys), err)
}

// observe measures the clients in two phases: before the first lease ends, and from then until all leases are gone.
func (s *storm) observe(r *run, done <-chan struct{}) (time.Duration, error) {
	wait(done, time.Until(s.from)-r.spec.For)
	r.phase.CompareAndSwap(warming, calm)
	wait(done, time.Until(s.from)-stormEarly)
	if n, err := s.expired(); err != nil || n != 0 {
		return 0, expect("leases that ended early", n, 0, err)
	}
	wait(done, time.Until(s.from))
	from := time.Now()
	r.phase.CompareAndSwap(calm, measuring)
	if err := s.awaitEnd(done); err != nil {
		return 0, err
	}
	wait(done, time.Until(from.Add(stormWindow)))
	return time.Since(from), nil
}

func (s *storm) awaitEnd(done <-chan struct{}) error {
	for {
		n, err := s.expired()
		if err != nil {
			return err
		}
		if n >= s.leases {
			s.gone = max(0, time.Since(s.last))
			return nil
		}
		if time.Since(s.last) > stormLimit {
			return fmt.Errorf("%d of %d leases are still there %v after their end", s.leases-n, s.leases, stormLimit)
		}
		select {
		case <-done:
			return nil
		case <-time.After(stormPoll):
		}
	}
}

// expired returns how many of the storm's leases have ended and been deleted.
func (s *storm) expired() (int, error) {
	n, err := s.session.Expired()
	return n - s.before, err
}
