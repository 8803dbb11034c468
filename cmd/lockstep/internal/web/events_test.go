package web

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func newReader(in []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(in)) }

func published(channel, text string) string {
	return array(bulk("message"), bulk(channel), bulk(text))
}

// streaming is an open event stream.
type streaming struct {
	end  context.CancelFunc
	over chan struct{}
	w    *httptest.ResponseRecorder
}

func (n *node) stream(cookie string) *streaming {
	r := visit{target: eventsPath, cookie: cookie}.request()
	ctx, cancel := context.WithCancel(r.Context())
	s := &streaming{cancel, make(chan struct{}), httptest.NewRecorder()}
	go func() {
		defer close(s.over)
		n.ServeHTTP(s.w, r.WithContext(ctx))
	}()
	return s
}

// text ends a stream, and returns what it has sent.
func (s *streaming) text() string {
	s.end()
	<-s.over
	return s.w.Body.String()
}

// TestStream: a stream has the state of the node, each message about locks in whatever text, and how many messages it has lost.
func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.reply = goodReply
		s := n.stream(n.logIn(t, "op"))
		synctest.Wait()
		send := func(text string) {
			if _, err := io.WriteString(n.conns[1], text); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		send(published("__lock@0__:forced", `{"key":"<script>\n\ndata: x","user":"op"}`))
		send(published("__lock@3__:forced\r\nevent: end", `{"key":`))
		send(published("__lock@0__:forced", `"`+strings.Repeat("y", mostMessage)+`"`))
		n.change(func() { n.reply = func([]string) string { return "-CLUSTERDOWN no leader\r\n" } })
		time.Sleep(2 * stateTime)
		synctest.Wait()
		text := s.text()
		for _, want := range []string{"event: state\ndata: {", `"role":"master"`, `event: lock` + "\n" + `data: {"db":"0","event":"forced","message":{"key":"\u003cscript\u003e\n\ndata: x","user":"op"}}` + "\n\n",
			`data: {"db":"3","event":"forced\r\nevent: end","unreadable":true}`, `data: {"db":"0","event":"forced","unreadable":true}`, "CLUSTERDOWN no leader", ": alive\n\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in %s", want, text)
			}
		}
		if got := s.w.Header().Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
			t.Error(got)
		}
		n.end()
		synctest.Wait()
	})
}

// TestAllMessages: a stream hears of grants only if it asks for all messages, and then not of more than a browser can show.
func TestAllMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.reply = goodReply
		cookie := n.logIn(t, "op")
		few := n.stream(cookie)
		r := visit{target: eventsPath + "?all=1", cookie: cookie}.request()
		ctx, cancel := context.WithCancel(r.Context())
		all := &streaming{cancel, make(chan struct{}), httptest.NewRecorder()}
		go func() {
			defer close(all.over)
			n.ServeHTTP(all.w, r.WithContext(ctx))
		}()
		synctest.Wait()
		if got := strings.Join(n.commands(), "\n"); !strings.Contains(got, "PSUBSCRIBE __lock@*") || !strings.Contains(got, "SUBSCRIBE __lock@0__:forced __lock@0__:revoked") {
			t.Errorf("%s", got)
		}
		for range 2 * mostTold {
			if _, err := io.WriteString(n.conns[1], array(bulk("pmessage"), bulk(allChannels), bulk("__lock@0__:granted"), bulk(`{"key":"a"}`))); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		time.Sleep(stateTime)
		synctest.Wait()
		a, b := few.text(), all.text()
		if strings.Contains(a, `"event":"granted"`) || strings.Count(b, `"event":"granted"`) != mostTold || !strings.Contains(b, fmt.Sprintf(`event: lost`+"\n"+`data: {"messages":%d}`, mostTold)) {
			t.Errorf("few: %s\nall: %s", a, b)
		}
		synctest.Wait()
		if got := strings.Join(n.commands(), "\n"); !strings.Contains(got, "PUNSUBSCRIBE __lock@*") || !strings.Contains(got, "\nUNSUBSCRIBE") {
			t.Errorf("%s", got)
		}
		n.change(func() { n.may = func(_ string, command ...string) bool { return command[0] != "psubscribe" } })
		if got := n.visit(visit{target: eventsPath + "?all=1", cookie: cookie}).Code; got != http.StatusForbidden {
			t.Errorf("without the right: %d", got)
		}
		n.end()
		synctest.Wait()
	})
}

// TestStreamEndsWithItsSession, and frees its place.
func TestStreamEndsWithItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.reply = goodReply
		s := n.stream(n.logIn(t, "op"))
		synctest.Wait()
		n.change(func() { n.right = false })
		time.Sleep(checkTime)
		<-s.over
		if text := s.w.Body.String(); !strings.Contains(text, "event: end\n") || n.streams.open != 0 {
			t.Errorf("%d open, %s", n.streams.open, text)
		}
		n.end()
		synctest.Wait()
	})
}

func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.reply = goodReply
		var all []*streaming
		for i := range mostStreams/mostStreamsOfSession + 1 {
			n.change(func() { n.now += loginEvery })
			cookie := n.logIn(t, fmt.Sprint("user", i))
			for range mostStreamsOfSession + 1 {
				all = append(all, n.stream(cookie))
				synctest.Wait()
			}
		}
		open, refused := 0, 0
		for _, s := range all {
			select {
			case <-s.over:
				if refused++; s.w.Code != http.StatusServiceUnavailable {
					t.Errorf("%d", s.w.Code)
				}
			default:
				open++
			}
		}
		if open != mostStreams || refused != len(all)-mostStreams {
			t.Errorf("%d open, %d refused", open, refused)
		}
		for _, s := range all {
			s.text()
		}
		if n.streams.open != 0 {
			t.Errorf("%d still count", n.streams.open)
		}
		n.end()
		synctest.Wait()
	})
}

// TestEarsAreBounded: a stream that reads too slowly loses messages, and holds up nobody.
func TestEarsAreBounded(t *testing.T) {
	e := &ear{messages: make(chan message, heard)}
	for range heard + 5 {
		e.hear(message{"__lock@0__:forced", "{}"})
	}
	if got, again := e.lostSince(), e.lostSince(); got != 5 || again != 0 {
		t.Errorf("lost %d, then %d", got, again)
	}
}

// TestSlowReaderIsCutOff: a client that does not read its stream is cut off, and does not keep its place.
func TestSlowReaderIsCutOff(t *testing.T) {
	n := newNode(t)
	n.reply = goodReply
	n.Wall = func() time.Time { return time.Now().Add(-sendTime + 50*time.Millisecond) } // so that a write may take 50 ms
	ended := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.ServeHTTP(w, r)
		close(ended)
	}))
	defer srv.Close()
	cookie := n.logIn(t, "op")
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nCookie: %s\r\n\r\n", eventsPath, strings.Replace(cookie, "8379", port, 1))
	big := published("__lock@0__:forced", `{"key":"`+strings.Repeat("z", mostMessage/2)+`"}`)
	late := time.After(30 * time.Second)
	for {
		select {
		case <-ended:
			return
		case <-late:
			t.Fatal("it still has its stream")
		default:
			n.mu.Lock()
			feed := n.conns[1]
			n.mu.Unlock()
			if _, err := io.WriteString(feed, big); err != nil {
				t.Fatal(err)
			}
		}
	}
}
