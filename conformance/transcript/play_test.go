package transcript

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// toy is a server with just enough commands to test the player.
type toy struct {
	mu    sync.Mutex
	now   time.Duration
	asked []string
	count int // the next reply to COUNT
}

func (s *toy) Advance(d time.Duration) { s.now += d }

func (s *toy) Dial() (net.Conn, error) {
	client, server := net.Pipe()
	go s.serve(server)
	return client, nil
}

func (s *toy) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		v, err := ReadValue(r)
		if err != nil {
			return
		}
		var args []string
		for _, e := range v.Elems {
			args = append(args, e.Text)
		}
		reply, ok := s.answer(args)
		// On a pipe, even a Write of no bytes would wait for a reader.
		if reply != "" {
			if _, err := conn.Write([]byte(reply)); err != nil {
				return
			}
		}
		if !ok {
			return
		}
	}
}

// answer returns the reply and whether the connection stays.
func (s *toy) answer(args []string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, strings.Join(args, " "))
	switch args[0] {
	case "FLUSHALL", "SCRIPT", "FUNCTION":
		return "+OK\r\n", true
	case "RESET":
		return "+RESET\r\n", true
	case "NOW":
		return fmt.Sprintf(":%d\r\n", s.now.Milliseconds()), true
	case "COUNT":
		s.count++
		return fmt.Sprintf(":%d\r\n", s.count), true
	case "TWICE":
		return "+one\r\n+two\r\n", true
	case "TIME":
		return "*2\r\n$3\r\n100\r\n$4\r\n5000\r\n", true
	case "CLIENT":
		return ":7\r\n", true
	case "HASH":
		return "+# no reply line\r\n", true
	case "QUIT":
		return "+OK\r\n", false
	case "HANG UP":
		return "", false
	case "SILENCE":
		return "", true
	}
	return Value{Type: '$', Text: strings.Join(args, " ")}.text(), true
}

func (v Value) text() string { return string(v.Append(nil)) }

func check(t *testing.T, src string) ([]Mismatch, *toy, error) {
	t.Helper()
	f, err := Parse("toy.txt", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	s := &toy{}
	diffs, err := Check(f, s)
	return diffs, s, err
}

func TestCheckAccepts(t *testing.T) {
	diffs, _, err := check(t, `# a file of every kind of step
> ECHO a
$"ECHO a"
@advance 1500ms
> NOW
:1500
> TWICE
+one
@push
+two
@until :3
> COUNT
:3
@until :5
@type
> COUNT
:
@conn b
>> "*1\r\n$3\r\nNOW\r\n"*2
:1500
:1500
@noreply
> SILENCE
> SET ${unix+5} ${unixms-1} ${id:main} ${addr:b}.
$"SET 105 100004 7 pipe."
> QUIT
+OK
@push
(closed)
@conn c
> "HANG UP"
(closed)
`)
	if err != nil || len(diffs) != 0 {
		t.Errorf("diffs %v, error %v", diffs, err)
	}
}

func TestCheckStartsEmpty(t *testing.T) {
	_, s, err := check(t, "> NOW\n:0\n")
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strings.Join(s.asked, ", "); got != "FLUSHALL, SCRIPT FLUSH, FUNCTION FLUSH, NOW, RESET" {
		t.Errorf("the server was asked %s", got)
	}
}

func TestCheckReportsDifferences(t *testing.T) {
	diffs, _, err := check(t, "> ECHO a\n$\"ECHO b\"\n> NOW\n:0\n> NOW\n(closed)\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"toy.txt:1: > ECHO a\n want: $\"ECHO b\"\n  got: $\"ECHO a\"",
		"toy.txt:5: > NOW\n want: (closed)\n  got: :0",
	}
	if len(diffs) != len(want) {
		t.Fatalf("%d differences: %v", len(diffs), diffs)
	}
	for i := range want {
		if diffs[i].String() != want[i] {
			t.Errorf("got %s\nwant %s", diffs[i], want[i])
		}
	}
}

func TestCheckFails(t *testing.T) {
	for _, tt := range []struct{ src, want string }{
		{"> TWICE\n+one\n", "reply that no step asked for: +two"},
		{"> QUIT\n+OK\n@push\n(closed)\n> NOW\n:0\n", "the connection is closed"},
		{"> QUIT\n+OK\n", "no step says so"},
		{"> GET ${id:nosuch}\n+OK\n", "no such connection"},
		{"> GET ${nosuch}\n+OK\n", "unknown variable"},
		{"> GET ${unix+1\n+OK\n", "without }"},
		{"@sub /^.//\n> HASH\n+OK\n", "would not be read back"},
		{"@server x=y\n> NOW\n:0\n", "settings of its own"},
	} {
		if _, _, err := check(t, tt.src); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v; want an error with %q", tt.src, err, tt.want)
		}
	}
}

func TestRecord(t *testing.T) {
	f, err := Parse("toy.txt", []byte("# old replies go\n> ECHO a\n+stale\n>> \"*1\\r\\n$3\\r\\nNOW\\r\\n\"*2\n@shape\n> NOW\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := Record(f, &toy{}); err != nil {
		t.Fatal(err)
	}
	want := "# old replies go\n> ECHO a\n$\"ECHO a\"\n>> \"*1\\r\\n$3\\r\\nNOW\\r\\n\"*2\n:0\n:0\n@shape\n> NOW\n:\n"
	if got := string(f.Format()); got != want {
		t.Errorf("recorded\n%s\nwant\n%s", got, want)
	}
}

// spy takes the place of a *testing.T.
type spy struct{ errors, skips int }

func (s *spy) Helper()               {}
func (s *spy) Errorf(string, ...any) { s.errors++ }
func (s *spy) Skipf(string, ...any)  { s.skips++ }

func TestRun(t *testing.T) {
	for _, tt := range []struct {
		src  string
		want spy
	}{
		{"> NOW\n:0\n", spy{}},
		{"> NOW\n:1\n> NOW\n:2\n", spy{errors: 2}},
		{"> TWICE\n+two\n", spy{errors: 2}},
		{"@server x=y\n> NOW\n:1\n", spy{skips: 1}},
	} {
		f, err := Parse("toy.txt", []byte(tt.src))
		if err != nil {
			t.Fatal(err)
		}
		var got spy
		if Run(&got, f, &toy{}); got != tt.want {
			t.Errorf("%q: %+v, want %+v", tt.src, got, tt.want)
		}
	}
}

// failing is a server that cannot start with the settings of a file.
type failing struct{ toy }

func (*failing) With([][2]string) (Target, func(), error) {
	return nil, nil, errors.New("no such setting")
}

func TestServerSettings(t *testing.T) {
	f, err := Parse("toy.txt", []byte("@server x=y=z\n> NOW\n:0\n"))
	if err != nil {
		t.Fatal(err)
	}
	if f.Server[0] != [2]string{"x", "y=z"} {
		t.Errorf("settings %q", f.Server)
	}
	var got spy
	if Run(&got, f, &failing{}); got != (spy{errors: 1}) {
		t.Errorf("%+v, want one error", got)
	}
}
