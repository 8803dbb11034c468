package turns

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
)

// calls makes a TCP connection, and returns both of its ends.
func calls(t *testing.T) (client, server net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// say sends something.
func say(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
}

// hangUp closes the connection at the client's end, with a reset if reset is true. It returns when the server's end has
// noticed.
func hangUp(t *testing.T, client, server net.Conn, reset bool) {
	t.Helper()
	if reset {
		_ = client.(*net.TCPConn).SetLinger(0)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	for !hungUp(server) {
		time.Sleep(time.Millisecond)
	}
}

// TestWhoHangsUpTakesNoTurn: the handshake of a client that hangs up before an answer takes no turn from others.
func TestWhoHangsUpTakesNoTurn(t *testing.T) {
	turns := New(1, false)
	handshake := func(conn net.Conn) *Conn {
		return turns.Conn(context.Background(), conn, nil, netip.Addr{}, false, time.Now)
	}
	first, firstEnd := calls(t)
	say(t, first)
	busy := handshake(firstEnd)
	if _, err := busy.Read(make([]byte, 5)); err != nil || !busy.has {
		t.Fatalf("the first one has no turn: %v", err)
	}

	client, server := calls(t)
	say(t, client)
	hangUp(t, client, server, false)
	if _, err := io.ReadAll(handshake(server)); !errors.Is(err, errHungUp) {
		t.Errorf("one that had hung up: %v", err)
	}

	client, server = calls(t)
	say(t, client)
	waits, failed := handshake(server), make(chan error)
	go func() {
		_, err := io.ReadAll(waits)
		waits.Done()
		failed <- err
	}()
	for waiting := 0; waiting == 0; time.Sleep(time.Millisecond) {
		turns.mu.Lock()
		waiting = len(turns.waiting)
		turns.mu.Unlock()
	}
	hangUp(t, client, server, false)
	busy.Done()
	if err := <-failed; !errors.Is(err, errHungUp) {
		t.Errorf("one that hung up while it waited: %v", err)
	}

	client, server = calls(t)
	answered := handshake(server)
	say(t, answered)
	if _, err := io.ReadFull(client, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	say(t, client)
	hangUp(t, client, server, false)
	if got, err := io.ReadAll(answered); string(got) != "hello" || err != nil {
		t.Errorf("one that has been answered: %q, %v", got, err)
	}
	answered.Done()
	if !turns.Idle(1) {
		t.Error("a turn is left over")
	}
}

// TestHungUp: hungUp notices that a client has closed its connection, with or without a reset.
func TestHungUp(t *testing.T) {
	for _, reset := range []bool{false, true} {
		client, server := calls(t)
		if hungUp(server) {
			t.Error("an open connection")
		}
		say(t, client)
		hangUp(t, client, server, reset)
	}
	near, far := net.Pipe()
	_ = near.Close()
	if hungUp(far) {
		t.Error("what is no socket")
	}
}
