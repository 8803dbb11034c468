package web

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// A stream listens to the seldom messages about locks, unless it asks for all: those of grants and releases may be tens of thousands a
// second.
const allChannels = "__lock@*"

var seldomEvents = []string{"forced", "revoked", "expired"}

// seldomChannels are the channels of seldomEvents. They are listed one by one: to a user who may listen to __lock@*, the server allows
// each of them, but no other pattern.
var seldomChannels = func() (list []string) {
	for db := range store.Databases {
		for _, event := range seldomEvents {
			list = append(list, "__lock@"+strconv.Itoa(db)+"__:"+event)
		}
	}
	return list
}()

// message is a message about a lock.
type message struct {
	channel string
	text    any // a string or a cut
}

// feed is a connection that listens to the messages about locks for the open streams of a session.
type feed struct {
	*link
	orders chan []string // commands to send

	mu   sync.Mutex
	ears map[*ear]struct{}
	all  int // how many of them want all messages
}

// mostOrders is how many commands may wait to be sent. The server reads them as fast as streams come and go, or is gone.
const mostOrders = 4 * mostStreamsOfSession

// ear is what a stream listens with.
type ear struct {
	messages chan message
	all      bool
	mu       sync.Mutex
	lost     int
}

// listen makes the feed of a session; nil if the user may not listen.
func (h *Handler) listen(r *http.Request, user, password string) (*feed, error) {
	if !h.May(user, "subscribe", seldomChannels[0]) {
		return nil, nil
	}
	l := newLink(h.open(r))
	late := time.AfterFunc(askTime, l.drop)
	defer late.Stop()
	if _, err := l.exchange(mostText, "AUTH", user, password); err != nil {
		l.drop()
		return nil, loginFault(err)
	}
	l.most.Store(mostMessage)
	f := &feed{link: l, orders: make(chan []string, mostOrders), ears: map[*ear]struct{}{}}
	go f.run()
	go f.send()
	return f, nil
}

// run gives each message to the ears that want it. It never waits for one.
func (f *feed) run() {
	for {
		select {
		case v := <-f.replies:
			f.tell(v)
		case <-f.closed:
			return
		}
	}
}

func (f *feed) send() {
	for {
		select {
		case args := <-f.orders:
			if _, err := f.conn.Write(encode(args)); err != nil {
				return // run notices it, too
			}
		case <-f.closed:
			return
		}
	}
}

// tell takes what the server has sent. With both kinds of subscriptions, a message comes twice.
func (f *feed) tell(v any) {
	list, ok := v.([]any)
	if !ok || len(list) < 3 {
		return
	}
	all := list[0] == "pmessage" && len(list) == 4
	if !all && list[0] != "message" {
		return // a confirmation
	}
	channel, ok := list[len(list)-2].(string)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for e := range f.ears {
		if e.all == all {
			e.hear(message{channel, list[len(list)-1]})
		}
	}
}

func (e *ear) hear(m message) {
	select {
	case e.messages <- m:
	default:
		e.lose(1)
	}
}

func (e *ear) lose(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost += n
}

// lostSince returns how many messages were lost since the last call.
func (e *ear) lostSince() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.lost
	e.lost = 0
	return n
}

// order lets a command be sent. The caller holds mu.
func (f *feed) order(args ...string) {
	select {
	case f.orders <- args:
	default:
		f.drop()
	}
}

// add lets an ear hear. The node tells the feed only of what somebody wants to hear, because each message costs it time.
func (f *feed) add(e *ear) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ears[e] = struct{}{}
	switch {
	case e.all:
		if f.all++; f.all == 1 {
			f.order("PSUBSCRIBE", allChannels)
		}
	case len(f.ears)-f.all == 1:
		f.order(append([]string{"SUBSCRIBE"}, seldomChannels...)...)
	}
}

func (f *feed) remove(e *ear) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.ears, e)
	switch {
	case e.all:
		if f.all--; f.all == 0 {
			f.order("PUNSUBSCRIBE", allChannels)
		}
	case len(f.ears)-f.all == 0:
		f.order("UNSUBSCRIBE")
	}
}
