package fair

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// Work that a node does by itself may be heavy from the first time on: a hash of the whole state, or a file with ten thousand
// users. A client gives way only after such work (Gate.Rest). So hundreds of clients with one such command each would all
// have their work done at once, for which the node has neither the processors nor the memory. Therefore the node does one
// piece of each kind at a time (Gate.Alone), and leaves other clients some time between two pieces (Gate.Pace).
// Clients that ask for the same result share it (Shared).

// OwnKind is a kind of heavy work that a node does by itself. No piece waits for one of another kind, because some kinds wait
// for the leader, or for a script that holds the state.
type OwnKind int

const (
	OwnList   OwnKind = iota // lists of what clients have, and of commands
	OwnFacts                 // facts about the state
	OwnFile                  // the file with the users
	OwnDigest                // digests of keys, which the leader reads one by one
	OwnHash                  // the hash of the state
	ownKinds
)

// errLeft says that nobody waits for the work any more: the client has been cut off, or the node closes.
var errLeft = errors.New("the connection ends")

func newTurns() (one [ownKinds]*semaphore.Weighted) {
	for kind := range one {
		one[kind] = semaphore.NewWeighted(1)
	}
	return one
}

// Alone waits until nobody else does work of a kind. It is for a Gate that Beside has made. ok is false if the client has been
// cut off, or the node closes; otherwise leave must be called at the end of the work. c is nil for work without a client.
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

// Pace waits until the time is over that the last piece has left to other clients (ownTimes). Unlike Rest, it is called before the
// work; done must be called at the end of the work. ok is as for Alone.
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
	begun atomic.Uint64 // number of results begun

	// Only the goroutine that Alone has let in uses these.
	number uint64 // number of last, as counted by begun
	last   T      // the last result
}

// NewShared returns a result that is made by work of a kind.
func NewShared[T any](g *Gate, kind OwnKind) *Shared[T] { return &Shared[T]{gate: g, kind: kind} }

// Get returns a result whose work began after the call. All callers that wait while work runs share the result of the next run.
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
