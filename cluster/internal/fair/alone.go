package fair

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// Some commands make this node itself, and not the leader, do heavy work: it hashes the whole state, or reads a file with ten
// thousand users. Gate.Rest delays a client only after the node has done such work for that client. So if hundreds of clients
// each sent one such command, all these commands would run at once. The node has neither the processors nor the memory for that.
// Therefore the node does one piece of work of each kind at a time (Gate.Alone), and leaves other clients some time between two
// pieces (Gate.Pace). Clients that ask for the same result share it (Shared).

// OwnKind is a kind of heavy work that a node does by itself. Alone makes a piece of work wait only for a piece of the same kind. Work of
// some kinds waits for the leader, or for a script that holds the state, and must not hold up work of other kinds.
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

// Alone waits until the node does no other piece of work of the kind. It must be called only on a Gate that Beside has made. The
// result ok is false if the client has been cut off, or the node closes; otherwise the caller must call the function leave at the
// end of the work. The parameter c is nil for work without a client.
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

// Pace waits until the next piece of work may begin, but no longer than yieldLate. After a piece that took some time, the node
// waits for ownTimes times as long before it begins another one. Pace does not wait while other clients are idle. Unlike Rest,
// Pace is called before the work; the caller must call the function done at the end of the work. The result ok is false in the
// same cases as that of Alone. If c is nil, Pace does not wait.
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

// Get returns a result of work that began after the call of Get. All callers that wait while the function work runs share the
// result of its next run that succeeds. The parameter last of that function is the last result.
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
