package cluster

import (
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
)

// SlowRequest is a request that has taken longer than Config.SlowFrom, and where the time went. If it came from another node, both nodes
// tell of it.
type SlowRequest struct {
	Command string // the name of its first command; the arguments may be secret
	Calls   int    // commands of the pipeline
	Node    string // on the leader: the node of the client; "" for the own one
	Origin  uint64 // Origin and Number are the same on both nodes; Number is 0 for a request that only reads
	Number  uint64
	Leads   bool // this node has evaluated it
	Stages  []Stage
}

// Stage is a part of the time that a request has taken, one after the other.
type Stage struct {
	Name     string
	From, To time.Time
}

// The stages of a request.
const (
	StageForward  = "forward"  // from the node of the client to the leader, and back, the election of a leader included
	StageQueue    = "queue"    // until the leader evaluates it
	StageEvaluate = "evaluate" // the evaluation, and that of the requests behind it in its batch
	StageCommit   = "commit"   // until a majority has the entry on disk, or has confirmed that this node still leads
)

// suspect is a request of the present batch, copied because its session may use it again as soon as it is answered.
type suspect struct {
	said           SlowRequest
	arrived, began time.Duration
}

// arrives notes when a request has come.
func (s *sequencer) arrives(r *request) {
	if s.node.cfg.Slow != nil {
		r.arrived = s.node.cfg.Time.Monotonic()
	}
}

// suspects returns the requests of a batch, before they are answered.
func (s *sequencer) suspects(b *batch) []suspect {
	if s.node.cfg.Slow == nil {
		return nil
	}
	list := s.slow[:0]
	for _, r := range b.requests {
		if r.blockedClient != nil || r.claim != nil || r.arrived == 0 {
			continue // a blocking command waits as long as its client wants
		}
		said := slowRequest(r.calls, r.from)
		said.Leads = true
		if r.peer != nil {
			said.Node = r.peer.id
		}
		list = append(list, suspect{said, r.arrived, r.began})
	}
	s.slow = list
	return list
}

func slowRequest(calls []Call, from forward.Ticket) SlowRequest {
	name := "unknown"
	switch c := &calls[0]; {
	case c.Txn != nil:
		name = "exec"
	case c.Cmd == call.Confirm:
		name = "confirm" // the node of an owner lets a lease begin anew
	case c.Cmd != nil:
		name = c.Cmd.FullName()
	}
	return SlowRequest{Command: name, Calls: len(calls), Origin: from.Origin, Number: from.ID}
}

// tellSlow tells of the requests that were slow. Their batch was evaluated at a monotonic time, and has just been answered.
func (s *sequencer) tellSlow(list []suspect, evaluated time.Duration) {
	if len(list) == 0 {
		return
	}
	answered := s.node.cfg.Time.Monotonic()
	for i := range list {
		if x := &list[i]; answered-x.arrived >= s.node.cfg.SlowFrom {
			x.said.Stages = s.node.stages(answered, mark{x.arrived, StageQueue}, mark{x.began, StageEvaluate}, mark{evaluated, StageCommit})
			s.node.cfg.Slow(x.said)
		}
	}
	clear(list)
}

// tellSlow tells of a forwarded submission that was slow. It began at the monotonic time began.
func (c *carried) tellSlow(began time.Duration) {
	n := c.n
	if now := n.cfg.Time.Monotonic(); now-began >= n.cfg.SlowFrom {
		said := slowRequest(c.calls, c.from)
		said.Stages = n.stages(now, mark{began, StageForward})
		n.cfg.Slow(said)
	}
}

// mark is a stage that begins at a monotonic time.
type mark struct {
	from time.Duration
	name string
}

// stages returns the stages that begin at marks, of which the last one ends at the monotonic time end.
func (n *Node) stages(end time.Duration, marks ...mark) (list []Stage) {
	wall, now := n.cfg.Time.Wall(), n.cfg.Time.Monotonic()
	at := func(t time.Duration) time.Time { return wall.Add(t - now) }
	for i, m := range marks {
		to := end
		if i+1 < len(marks) {
			to = marks[i+1].from
		}
		list = append(list, Stage{m.name, at(m.from), at(to)})
	}
	return list
}
