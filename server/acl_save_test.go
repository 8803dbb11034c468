package server

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestACLSaveOfTooMuch: ACL SAVE does not write a file that a node would refuse at its start, and says why.
func TestACLSaveOfTooMuch(t *testing.T) {
	_, c, path, _ := fileServer(t, "what was there\n")
	stays := func(why string) {
		t.Helper()
		got := c.ask("ACL", "SAVE")
		if got.Type != '-' || !strings.Contains(got.Text, why) {
			t.Errorf("%c%s", got.Type, got.Text)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "what was there\n" {
			t.Errorf("the file is %.100q, %v", text, err)
		}
	}
	for i := range 5 {
		if got := c.ask("ACL", "SETUSER", fmt.Sprint("u", i), "~"+strings.Repeat("x", 900_000)); got.Type != '+' {
			t.Fatal(got.Text)
		}
	}
	stays(fmt.Sprintf("no node reads one of more than %d", maxACLFile))
	for i := range 5 {
		c.do(fmt.Sprint("ACL DELUSER u", i), ":1\r\n")
	}
	var users strings.Builder // one log entry sets all these users, because the node looks at all users for each entry
	users.WriteString(array("MULTI"))
	for i := range 10_000 {
		users.WriteString(array("ACL", "SETUSER", fmt.Sprint("u", i)))
	}
	c.send(users.String() + array("EXEC"))
	c.expect("+OK\r\n" + strings.Repeat("+QUEUED\r\n", 10_000) + "*10000\r\n" + strings.Repeat("+OK\r\n", 10_000))
	stays("more users than a node reads of an ACL file, 10000")
	c.do("ACL DELUSER u1", ":1\r\n")
	c.do("ACL SAVE", "+OK\r\n")
}
