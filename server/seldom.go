package server

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// seldomSilence is the shortest time between two log lines of a seldomLine. Redis, too, logs once a minute that it cuts off HTTP.
const seldomSilence = time.Minute

// seldomLine is a log line about events of one kind that any stranger can cause with each connection. The first event is logged at
// once. Later there is at most one line per seldomSilence, with the number of events since the last line and the attributes of the
// last event. Otherwise a stranger could fill the disk with the log.
type seldomLine struct {
	log   *slog.Logger
	level slog.Level
	msg   string

	mu    sync.Mutex
	count int   // events since the last log line
	last  []any // attributes of the last event
	said  time.Time
}

// note counts an event. args are its attributes, as for slog.
func (l *seldomLine) note(now time.Time, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	l.last = args
	l.say(now)
}

// say logs the events since the last log line, if there are any and seldomSilence has passed. The caller holds mu.
func (l *seldomLine) say(now time.Time) {
	if l.count == 0 || now.Sub(l.said) < seldomSilence {
		return
	}
	l.log.Log(context.Background(), l.level, l.msg, append([]any{"count", l.count}, l.last...)...)
	l.count, l.last, l.said = 0, nil, now
}

// sayRest is say for a caller that does not hold mu.
func (l *seldomLine) sayRest(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.say(now)
}

// seldomLines are the lines of a server that strangers can cause. Lines about failed handshakes are in handshakes.
type seldomLines struct {
	http      seldomLine // a connection speaks HTTP
	accept    seldomLine // the listener cannot accept a connection, for example because no descriptor is free
	takeIn    seldomLine // the same after the handshake of TLS
	keepAlive seldomLine
	wait      seldomLine // an event loop cannot wait for a connection
}

func newSeldomLines(log *slog.Logger) *seldomLines {
	return &seldomLines{
		http:      seldomLine{log: log, level: slog.LevelWarn, msg: "closed a connection that speaks HTTP"},
		accept:    seldomLine{log: log, level: slog.LevelError, msg: "cannot accept a connection"},
		takeIn:    seldomLine{log: log, level: slog.LevelError, msg: "cannot take a TLS connection in"},
		keepAlive: seldomLine{log: log, level: slog.LevelWarn, msg: "cannot set TCP keep-alive"},
		wait:      seldomLine{log: log, level: slog.LevelError, msg: "cannot wait for a connection"},
	}
}

// sayRest logs the last events of all, after which no other comes. The server calls it every second.
func (ls *seldomLines) sayRest(now time.Time) {
	for _, l := range []*seldomLine{&ls.http, &ls.accept, &ls.takeIn, &ls.keepAlive, &ls.wait} {
		l.sayRest(now)
	}
}
