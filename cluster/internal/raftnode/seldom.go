package raftnode

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// seldom writes the first log line of each kind at once, then at most one per pause, with the number of lines left out since.
type seldom struct {
	log   *slog.Logger
	level slog.Level
	now   func() time.Duration
	pause time.Duration

	mu    sync.Mutex
	kinds map[string]*saidKind
}

type saidKind struct {
	at     time.Duration // when the last line was written
	hidden int           // lines left out since then
}

const (
	seldomPause = time.Minute
	// seldomKinds bounds the kinds. All further ones count as one kind.
	seldomKinds = 256
)

func newSeldom(log *slog.Logger, level slog.Level, now func() time.Duration) *seldom {
	return &seldom{log: log, level: level, now: now, pause: seldomPause, kinds: map[string]*saidKind{}}
}

// say writes a line, unless one of its kind was written lately.
func (s *seldom) say(kind, msg string, args ...any) { s.sayAt(s.level, kind, msg, args...) }

func (s *seldom) sayAt(level slog.Level, kind, msg string, args ...any) {
	if hidden, due := s.due(kind); due {
		if hidden > 0 {
			args = append(args, "more_since_the_last_line", hidden)
		}
		s.log.Log(context.Background(), level, msg, args...)
	}
}

func (s *seldom) due(kind string) (hidden int, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	k := s.kinds[kind]
	if k == nil && len(s.kinds) >= seldomKinds {
		k = s.kinds[""]
		kind = ""
	}
	switch {
	case k == nil:
		s.kinds[kind] = &saidKind{at: now}
		return 0, true
	case now-k.at < s.pause:
		k.hidden++
		return 0, false
	}
	hidden, k.at, k.hidden = k.hidden, now, 0
	return hidden, true
}
