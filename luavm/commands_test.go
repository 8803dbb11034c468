package luavm

import (
	"fmt"
	"strings"
	"testing"
)

func TestScriptCommands(t *testing.T) {
	w := newWorld(t, Options{})
	sha := scriptSHA("return 1")
	upper := strings.ToUpper(sha)
	missing := strings.Repeat("f", 40)
	bad := "-NOSCRIPT No matching script. Please use EVAL.\r\n"
	for _, c := range []struct{ args, want string }{
		{"evalsha " + sha + " 0", bad},
		{"script exists " + sha + " " + missing, "*2\r\n:0\r\n:0\r\n"},
		{"script load return§1", "$40\r\n" + sha + "\r\n"},
		{"script exists " + upper + " " + missing, "*2\r\n:1\r\n:0\r\n"},
		{"evalsha " + sha + " 0", ":1\r\n"},
		{"EVALSHA " + upper + " 0", ":1\r\n"},
		{"evalsha_ro " + sha + " 0", ":1\r\n"},
		{"evalsha x 0", bad},
		{"evalsha x x", bad},
		{"evalsha " + missing + " x", "-ERR value is not an integer or out of range\r\n"},
		{"evalsha " + missing + " -1", "-ERR Number of keys can't be negative\r\n"},
		{"evalsha " + missing + " 1", "-ERR Number of keys can't be greater than number of args\r\n"},
		{"eval return§1 x", "-ERR value is not an integer or out of range\r\n"},
		{"eval return§1 -1", "-ERR Number of keys can't be negative\r\n"},
		{"eval return§1 1", "-ERR Number of keys can't be greater than number of args\r\n"},
		{"eval return§1 9223372036854775807", "-ERR Number of keys can't be greater than number of args\r\n"},
		{"eval x§= 0", "-ERR Error compiling script (new function): user_script:1: unexpected symbol near '<eof>'\r\n"},
		{"script exists " + scriptSHA("x ="), "*1\r\n:0\r\n"},
		{"script load x=\x00", "-ERR Error compiling script (new function): user_script:1: unexpected symbol\r\n"},
		{"script load x§=", "-ERR Error compiling script (new function): user_script:1: unexpected symbol near '<eof>'\r\n"},
		{"script flush x", "-ERR SCRIPT FLUSH only support SYNC|ASYNC option\r\n"},
		{"script flush sync sync", "-ERR SCRIPT FLUSH only support SYNC|ASYNC option\r\n"},
		{"script flush ASYNC", "+OK\r\n"},
		{"script exists " + sha, "*1\r\n:0\r\n"},
		{"evalsha " + sha + " 0", bad},
		{"eval return§1 0", ":1\r\n"},
		{"evalsha " + sha + " 0", ":1\r\n"},
		{"script flush", "+OK\r\n"},
		{"script kill", "-NOTBUSY No scripts in execution right now.\r\n"},
		{"script debug no", "+OK\r\n"},
		{"script debug x", "-ERR Use SCRIPT DEBUG YES/SYNC/NO\r\n"},
		{"script debug yes", "-ERR the script debugger is not supported\r\n"},
	} {
		args := strings.Fields(c.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "§", " ")
		}
		if got := wire(w.do(2, args...), 2); got != c.want {
			t.Errorf("%s: got %q, want %q", c.args, got, c.want)
		}
	}
}

// TestCompiledScriptsAreBounded: a client that sends ever new texts must not
// fill the memory.
func TestCompiledScriptsAreBounded(t *testing.T) {
	w := newWorld(t, Options{})
	for i := range 3 * maxChunks {
		if r := w.eval(fmt.Sprintf("return %d", i)); r.Int != int64(i) {
			t.Fatal(i, r)
		}
	}
	if len(w.e.bySHA) > maxChunks || len(w.e.byBody) > maxChunks {
		t.Fatal(len(w.e.bySHA), len(w.e.byBody))
	}
}

func TestScriptsAreReplicated(t *testing.T) {
	w := newWorld(t, Options{})
	if w.txn.Writes().Len() != 0 {
		t.Fatal("a new transaction has writes")
	}
	w.eval("return 1")
	if w.txn.Writes().Len() != 1 {
		t.Fatal("EVAL of a new script is one write, got", w.txn.Writes().Len())
	}
	w.eval("return 1")
	if w.txn.Writes().Len() != 1 {
		t.Fatal("EVAL of a known script is no write")
	}
}

// TestRowsAreComplete: everything that clients can ask about a command is in
// its row.
func TestRowsAreComplete(t *testing.T) {
	for _, row := range New(Options{}).Commands() {
		rows := append(row.Sub, row)
		for _, c := range rows {
			if c.Name == "" || c.Arity == 0 || c.Group != "scripting" || c.Since == "" || c.Summary == "" || c.Run == nil && len(c.Sub) == 0 {
				t.Errorf("%s %s is incomplete", row.Name, c.Name)
			}
		}
	}
}
