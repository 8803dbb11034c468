package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// stranger listens in the place of a node. To each piece that it reads it answers with the next of the answers; after the last one it closes
// the connection, or says nothing more if there are none.
func stranger(t *testing.T, answers ...string) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for conn, err := ln.Accept(); err == nil; conn, err = ln.Accept() {
			go func() {
				defer conn.Close()
				for piece := make([]byte, 4096); len(answers) > 0; answers = answers[1:] {
					if _, err := conn.Read(piece); err != nil {
						return
					}
					if _, err := io.WriteString(conn, answers[0]); err != nil {
						return
					}
				}
				_, _ = io.Copy(io.Discard, conn) // until the client has had enough
			}()
		}
	}()
	return ln.Addr().String()
}

// bulk is a text in the Redis protocol.
func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

// asking are the command lines that ask a node.
func asking(t *testing.T) map[string][]string {
	return map[string][]string{
		"status": nil, "members": nil, "add": {"n4", "127.0.0.1:7379"}, "remove": {"n3"}, "transfer": nil, "snapshot": nil,
		"backup": {filepath.Join(t.TempDir(), "b")},
		"locks":  nil, "lock-info": {"a"}, "lock-waiters": {"a"}, "force": {"a", "--reason", "x"}, "history": {"--since", "1h"}, "lock-stats": nil,
	}
}

// TestStrangersAnswers: whatever answers in the place of a node, each command ends, in time, with one message or a result that controls no
// terminal.
func TestStrangersAnswers(t *testing.T) {
	const evil = "\x1b]0;owned\a\x1b[2J\x9b2J\u009b2J\u202e"
	for what, answer := range map[string]string{
		"HTTP":                 "HTTP/1.1 400 Bad Request\r\nServer: " + evil + "\r\n\r\n",
		"an escape":            "+" + evil + "\r\n",
		"an error":             "-ERR " + evil + "\r\n",
		"an escape as a value": "*2\r\n" + bulk("role") + bulk(evil),
		"an escape as a name":  "*2\r\n" + bulk(evil) + bulk(evil),
		"rows":                 "*2\r\n" + bulk("0") + "*2\r\n*2\r\n" + bulk("key") + bulk(evil) + "*2\r\n" + bulk("key") + bulk(evil),
		"other rows":           "*2\r\n" + bulk("0") + "*2\r\n*2\r\n" + bulk("key") + bulk("a") + "*2\r\n" + bulk("other") + bulk("b"),
		"members":              "*1\r\n*2\r\n" + bulk("id") + bulk(evil),
		"an error in a list":   "*2\r\n" + bulk("role") + "-ERR " + evil + "\r\n",
		"nil":                  "$-1\r\n",
		"no list":              "*-1\r\n",
		"an empty list":        "*0\r\n",
		"a number":             ":7\r\n",
		"a count":              "*2000000000\r\n",
		"a length":             "$600000000\r\n",
		"depth":                strings.Repeat("*1\r\n", 100_000),
		"a long line":          "+" + strings.Repeat("x", 3<<20) + "\r\n",
		"a large list":         "*100000\r\n" + strings.Repeat(":1\r\n", 100_000),
		"RESP3":                "%1\r\n+role\r\n+leader\r\n",
		"an empty line":        "\r\n",
		"bytes":                evil + evil,
	} {
		for command, args := range asking(t) {
			for _, form := range []string{"text", "json"} {
				line := append([]string{command, "--addr", stranger(t, answer), "--timeout", "50ms", "--output", form}, args...)
				code, out, faults := ran(line...)
				for _, r := range out + faults {
					if r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 || r == '\u202e' || r == '\ufffd' {
						t.Errorf("%s to %s as %s controls the terminal: %.300q %.300q", what, command, form, out, faults)
						break
					}
				}
				switch {
				case len(out)+len(faults) > 100_000:
					t.Errorf("%s to %s as %s: %d bytes", what, command, form, len(out)+len(faults))
				case code == exitOK && faults != "", code != exitOK && strings.Count(faults, "lockstep: ") != 1, code == exitUsage:
					t.Errorf("%s to %s as %s: exit code %d: %.300q", what, command, form, code, faults)
				case code == exitOK && form == "json" && !json.Valid([]byte(out)):
					t.Errorf("%s to %s: %.300q", what, command, out)
				}
			}
		}
	}
}

// TestSilentStranger: each command gives up after --timeout if nothing answers, or only a part of a reply.
func TestSilentStranger(t *testing.T) {
	for command, args := range asking(t) {
		for _, answers := range [][]string{nil, {"*2\r\n$4\r\nro"}} {
			begun := time.Now()
			code, out, faults := ran(append([]string{command, "--addr", stranger(t, answers...), "--timeout", "100ms", "--output", "json"}, args...)...)
			if took := time.Since(begun); code == exitOK || code == exitUsage || out != "" || !strings.Contains(faults, "did not answer") || took > 20*time.Second {
				t.Errorf("%s after %v: exit code %d: %q %q", command, took, code, out, faults)
			}
		}
	}
}
