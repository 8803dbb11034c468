package server

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// seldomSilence is the shortest time between two log lines of a seldomLine. Redis, too, logs at most once a minute that it
// cuts off HTTP.
const seldomSilence = time.Minute

// seldomLine is a log line about events that any client can cause: at most one per seldomSilence, so that the disk cannot fill.
type seldomLine struct {
	log   *slog.Logger
	level slog.Level
	msg   string

	mu     sync.Mutex
	events int   // since the last log line
	told   []any // the attributes of the heaviest event; if several are as heavy, of the last one
	weight int64 // the weight of the event with these attributes
	said   time.Time
}

// note counts an event. args are its attributes, as for slog.
func (l *seldomLine) note(now time.Time, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(0, args)
	l.say(now)
}

// count counts an event with a weight, and leaves the log line to sayRest. The line has the attributes of the heaviest event.
func (l *seldomLine) count(weight int64, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(weight, args)
}

// sayRest logs the events since the last line, if enough time has passed. The server calls it every second, because no later event may
// come.
func (l *seldomLine) sayRest(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.say(now)
}

// add does what count does, for a caller that holds mu.
func (l *seldomLine) add(weight int64, args []any) {
	l.events++
	if weight >= l.weight {
		l.told, l.weight = args, weight
	}
}

// say does what sayRest does, for a caller that holds mu.
func (l *seldomLine) say(now time.Time) {
	if l.events == 0 || now.Sub(l.said) < seldomSilence {
		return
	}
	l.log.Log(context.Background(), l.level, l.msg, append([]any{"count", l.events}, l.told...)...)
	l.events, l.told, l.weight, l.said = 0, nil, 0, now
}

// seldomLines are the log lines that strangers cause with connections, except for the lines about handshakes that failed.
type seldomLines struct {
	http      seldomLine // a connection speaks HTTP
	accept    seldomLine // the listener cannot accept a connection, for example because no descriptor is free
	takeIn    seldomLine // after a TLS handshake, the server cannot take the connection over, for example because no descriptor is free
	keepAlive seldomLine
	wait      seldomLine // an event loop cannot wait for a connection
	behind    seldomLine // the hub has cut off clients (lighten)
}

func newSeldomLines(log *slog.Logger) *seldomLines {
	return &seldomLines{
		http:      seldomLine{log: log, level: slog.LevelWarn, msg: "closed a connection that speaks HTTP"},
		accept:    seldomLine{log: log, level: slog.LevelError, msg: "cannot accept a connection"},
		takeIn:    seldomLine{log: log, level: slog.LevelError, msg: "cannot take a TLS connection in"},
		keepAlive: seldomLine{log: log, level: slog.LevelWarn, msg: "cannot set TCP keep-alive"},
		wait:      seldomLine{log: log, level: slog.LevelError, msg: "cannot wait for a connection"},
		behind:    seldomLine{log: log, level: slog.LevelWarn, msg: "clients were cut off: this node fell behind because it sent them many messages"},
	}
}

// seldomLines returns all seldomLine values of the server.
func (srv *Server) seldomLines() []*seldomLine {
	ls := srv.seldom
	return []*seldomLine{&ls.http, &ls.accept, &ls.takeIn, &ls.keepAlive, &ls.wait, &ls.behind, &srv.hands.failures, &srv.clientMemory.evictions}
}
