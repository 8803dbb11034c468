package fair

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// Some commands make this node itself do heavy work, and Gate.Rest delays a client only afterwards. So the node does one piece of each
// kind at a time (Gate.Alone), with pauses for other clients (Gate.Pace). Clients that ask for the same result share it (Shared).

// OwnKind is a kind of heavy work of the node itself. Kinds do not wait for each other: some wait for the leader.
type OwnKind int

const (
	OwnList   OwnKind = iota // lists of commands, connections, subscriptions or log entries
	OwnFacts                 // figures and settings, such as the reply to INFO
	OwnFile                  // reading or writing the file with the users
	OwnDigest                // digests of keys; the leader reads the keys one by one
	OwnHash                  // the hash of the state
	ownKinds
)

// errLeft says that this caller does not wait for the work any more: its client has been cut off, or the node closes.
var errLeft = errors.New("the connection ends")

func newTurns() (one [ownKinds]*semaphore.Weighted) {
	for kind := range one {
		one[kind] = semaphore.NewWeighted(1)
	}
	return one
}

// Alone waits until the node does no other work of the kind. If ok is true, the caller must call leave; else the client or the node has
// gone.
func (g *Gate) Alone(c *Client, kind OwnKind) (leave func(), ok bool) {
	ctx, end := c.until(g.ctx)
	defer end()
	if g.one[kind].Acquire(ctx, 1) != nil {
		return nil, false
	}
	leave = func() { g.one[kind].Release(1) }
	if ctx.Err() != nil { // the turn was acquired although ctx had ended
		leave()
		return nil, false
	}
	return leave, true
}

// Pace waits until other clients have had ownTimes the time of the last piece, or are idle. If ok is true, call done after the work.
func (g *Gate) Pace(c *Client) (done func(), ok bool) {
	if c == nil {
		return func() {}, true
	}
	ctx, end := c.until(g.ctx)
	defer end()
	ended := g.enter(ctx, c, nil, 0, yieldLate)
	if ctx.Err() != nil {
		ended(0)
		return nil, false
	}
	return func() { ended(0) }, true
}

// Shared is a result of heavy work that is the same for all who ask for it at the same time.
type Shared[T any] struct {
	gate  *Gate
	kind  OwnKind
	begun atomic.Uint64 // how often the work has begun

	// Only the goroutine that Alone has let in uses these fields.
	number uint64 // value of the field begun in the run of the work whose result is in the field last
	last   T      // the last result
}

// NewShared returns a Shared for results of work of the kind.
func NewShared[T any](g *Gate, kind OwnKind) *Shared[T] { return &Shared[T]{gate: g, kind: kind} }

// Get returns a result of work that began after the call. Callers that wait share it. last is the previous result.
func (s *Shared[T]) Get(c *Client, work func(last T) (T, error)) (result T, err error) {
	asked := s.begun.Load()
	leave, ok := s.gate.Alone(c, s.kind)
	if !ok {
		return result, errLeft
	}
	defer leave()
	if s.number > asked {
		return s.last, nil
	}
	done, ok := s.gate.Pace(c)
	if !ok {
		return result, errLeft
	}
	defer done()
	number := s.begun.Add(1)
	if result, err = work(s.last); err == nil {
		s.number, s.last = number, result
	}
	return result, err
}
