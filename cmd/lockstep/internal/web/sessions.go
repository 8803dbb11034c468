package web

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

const (
	mostSessions = 128
	mostOfUser   = 16 // beyond it, a login ends the session of the user that has been unused for longest
	idleTime     = 30 * time.Minute
	wholeTime    = 12 * time.Hour
	// checkTime is how often a session is compared with its user and its times.
	checkTime = time.Second
)

// session is a login. Its cookie is a random text; the table has only the hash of that.
type session struct {
	user, proof string // proof is the hash of the password
	form        string // what a form of this session must send back
	key         [sha256.Size]byte
	link        *link
	feed        *feed // nil if the user may not listen to the messages about locks
	born        time.Duration
	number      int64 // in the order of the logins

	ctx context.Context // cancelled when the session ends
	end context.CancelFunc

	grants grantRate
	stats  kept[object]
	events kept[[]object] // for the page of one lock

	mu      sync.Mutex
	used    time.Duration // when the user last did something; what a page does by itself does not count
	streams int
}

// sessions is the table of the logins.
type sessions struct {
	mu    sync.Mutex
	byKey map[[sha256.Size]byte]*session
	last  int64
}

func randomText() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // it never fails: it ends the process instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// cookieName names the port: browsers send a cookie to all ports of a host, and the nodes of a test share one.
func (h *Handler) cookieName(r *http.Request) string {
	port := "80"
	if at, is := r.Context().Value(http.LocalAddrContextKey).(net.Addr); is {
		if _, p, err := net.SplitHostPort(at.String()); err == nil {
			port = p
		}
	}
	if h.TLS {
		return "__Host-lockstep-" + port
	}
	return "lockstep-" + port
}

func (h *Handler) setCookie(w http.ResponseWriter, r *http.Request, value string) {
	c := &http.Cookie{Name: h.cookieName(r), Value: value, Path: "/", HttpOnly: true, Secure: h.TLS, SameSite: http.SameSiteStrictMode, MaxAge: int(wholeTime / time.Second)}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// find returns the session of a request, or nil. A request that a page makes by itself does not count as use.
func (h *Handler) find(r *http.Request) *session {
	c, err := r.Cookie(h.cookieName(r))
	if err != nil {
		return nil
	}
	s := h.byValue(c.Value)
	if s == nil || !h.alive(s) || h.needsSecret(r) && !h.HasPassword(s.user) {
		return nil
	}
	if r.Header.Get(liveHeader) == "" && r.URL.Path != eventsPath {
		s.mu.Lock()
		s.used = h.Now()
		s.mu.Unlock()
	}
	return s
}

// byValue returns the session with this value of its cookie, or nil.
func (h *Handler) byValue(value string) *session {
	h.sessions.mu.Lock()
	defer h.sessions.mu.Unlock()
	return h.sessions.byKey[sha256.Sum256([]byte(value))]
}

// liveHeader marks the requests that a page makes by itself, but for streams, to which a browser adds no header.
const liveHeader = "X-Lockstep-Live"

// alive reports whether a session goes on, and ends it otherwise.
func (h *Handler) alive(s *session) bool {
	now := h.Now()
	s.mu.Lock()
	late := now-s.used > idleTime || now-s.born > wholeTime
	s.mu.Unlock()
	if s.ctx.Err() == nil && !late && h.StillRight(s.user, s.proof) {
		return true
	}
	h.drop(s)
	return false
}

// drop ends a session.
func (h *Handler) drop(s *session) {
	h.sessions.mu.Lock()
	if h.sessions.byKey[s.key] == s {
		delete(h.sessions.byKey, s.key)
	}
	h.sessions.mu.Unlock()
	s.end()
	s.link.drop()
	if s.feed != nil {
		s.feed.drop()
	}
}

// watch ends a session when its time is over, when its user changes, or when the server ends one of its connections.
func (h *Handler) watch(s *session) {
	defer h.drop(s)
	tick := time.NewTicker(checkTime)
	defer tick.Stop()
	var ended chan struct{}
	if s.feed != nil {
		ended = s.feed.closed
	}
	for {
		select {
		case <-tick.C:
			if !h.alive(s) {
				return
			}
		case <-s.ctx.Done():
			return
		case <-s.link.gone:
			return
		case <-ended:
			return
		}
	}
}

// login makes a session, and returns the value of its cookie.
func (h *Handler) login(r *http.Request, user, password string) (value string, err error) {
	if !h.throttle.allow(h.Now(), r.RemoteAddr) {
		return "", errManyLogins
	}
	proof := store.HashPassword([]byte(password)) // as accounts keep it
	l, err := h.connect(r, user, password)
	if err != nil {
		return "", err
	}
	if h.needsSecret(r) && !h.HasPassword(user) { // only now: before, the answer would tell strangers which users there are
		l.drop()
		return "", errNeedsSecret
	}
	s := &session{user: user, proof: proof, form: randomText(), link: l, born: h.Now()}
	s.used = s.born
	s.ctx, s.end = context.WithCancel(context.Background())
	if s.feed, err = h.listen(r, user, password); err != nil {
		l.drop()
		return "", err
	}
	value = randomText()
	s.key = sha256.Sum256([]byte(value))
	if !h.enter(s) {
		h.drop(s)
		return "", errFull
	}
	go h.watch(s)
	return value, nil
}

// enter puts a session into the table, if there is room.
func (h *Handler) enter(s *session) bool {
	t := &h.sessions
	t.mu.Lock()
	gone, room := t.room(s.user)
	if room {
		if gone != nil {
			delete(t.byKey, gone.key)
		}
		t.last++
		s.number = t.last
		t.byKey[s.key] = s
	}
	t.mu.Unlock()
	if gone != nil {
		h.drop(gone)
	}
	return room
}

// room reports whether there is room for one more session of a user, and which one, if any, must go for it. In a full table, the user with
// the most sessions makes room: some users could otherwise keep out all others. The caller holds mu.
func (t *sessions) room(user string) (gone *session, ok bool) {
	count, oldest, most := map[string]int{}, map[string]*session{}, user
	for _, s := range t.byKey {
		if count[s.user]++; oldest[s.user] == nil || s.before(oldest[s.user]) {
			oldest[s.user] = s
		}
		if count[s.user] > count[most] {
			most = s.user
		}
	}
	switch same := count[user]; {
	case same >= mostOfUser:
		return oldest[user], true
	case len(t.byKey) < mostSessions:
		return nil, true
	case count[most] > same+1:
		return oldest[most], true
	}
	return nil, false
}

// before reports whether a session has been unused for longer than another.
func (s *session) before(other *session) bool {
	a, b := s.lastUse(), other.lastUse()
	return a < b || a == b && s.number < other.number
}

func (s *session) lastUse() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// open connects to the server, from the address of the browser.
func (h *Handler) open(r *http.Request) net.Conn {
	mine, its := net.Pipe()
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	h.Serve(&browser{Conn: its, remote: addrOf(r.RemoteAddr), local: local})
	return mine
}

// connect makes a connection and authenticates it.
func (h *Handler) connect(r *http.Request, user, password string) (*link, error) {
	l := newLink(h.open(r))
	go l.run()
	if _, err := l.do(r.Context(), 0, mostText, "AUTH", user, password); err != nil {
		l.drop()
		return nil, loginFault(err)
	}
	return l, nil
}

func loginFault(err error) error {
	told, is := errors.AsType[refusal](err)
	switch {
	case is && (strings.HasPrefix(string(told), "WRONGPASS") || strings.Contains(string(told), "called without any password configured")):
		return errWrongLogin
	case errors.Is(err, errGone):
		return errNoServer
	}
	return faultOf(err)
}

// browser is the server's end of a connection, with the addresses of the HTTP client.
type browser struct {
	net.Conn
	remote, local net.Addr
}

func (b *browser) RemoteAddr() net.Addr { return b.remote }

func (b *browser) LocalAddr() net.Addr {
	if b.local == nil {
		return b.Conn.LocalAddr()
	}
	return b.local
}
