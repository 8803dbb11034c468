package luavm

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// testdata/cases/*.txt has the scripts of the corpus, and testdata/*.json the replies of a real redis-server 7.0.15. To add a case, write
// it into the text file and record its reply:
//
//	redis-server --port 7777 --save '' &
//	go test ./luavm -run TestCorpus -record 127.0.0.1:7777
//
// A line of dashes separates cases. Lines that begin with @ say how the script is run: "@keys a b", "@args x y", "@resp 3", "@ro"
// (EVAL_RO), "@before set k v" (a command that is run first).
var record = flag.String("record", "", "address of a Redis 7.0.15 to record the corpus from")

type corpusCase struct {
	Script string     `json:"script"`
	Keys   []string   `json:"keys,omitempty"`
	Args   []string   `json:"args,omitempty"`
	Before [][]string `json:"before,omitempty"`
	Resp   int        `json:"resp"`
	RO     bool       `json:"ro,omitempty"`
	// Reply is the raw reply, a byte per character.
	Reply string `json:"reply"`
}

func (c *corpusCase) command() []string {
	name := "eval"
	if c.RO {
		name = "eval_ro"
	}
	args := []string{name, latin1(c.Script), strconv.Itoa(len(c.Keys))}
	return append(append(args, c.Keys...), c.Args...)
}

// latin1 turns a text in which each character stands for a byte into these bytes.
func latin1(s string) string {
	var b []byte
	for _, r := range s {
		b = append(b, byte(r))
	}
	return string(b)
}

func toLatin1(s string) string {
	r := make([]rune, len(s))
	for i := range len(s) {
		r[i] = rune(s[i])
	}
	return string(r)
}

func TestCorpus(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range files {
		topic := strings.TrimSuffix(filepath.Base(file), ".txt")
		golden := filepath.Join("testdata", topic+".json")
		cases := readCases(t, file)
		if *record != "" {
			recordCases(t, cases, golden)
		}
		t.Run(topic, func(t *testing.T) { replay(t, cases, golden) })
	}
}

func replay(t *testing.T, cases []corpusCase, golden string) {
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var recorded []corpusCase
	if err := json.Unmarshal(data, &recorded); err != nil {
		t.Fatal(err)
	}
	if len(recorded) != len(cases) {
		t.Fatalf("%d cases, %d recorded: record them", len(cases), len(recorded))
	}
	w := newWorld(t, Options{})
	for i := range recorded {
		c := &recorded[i]
		if c.Script != toLatin1(cases[i].Script) {
			t.Fatalf("case %d is not the recorded one: record it\n%s", i, cases[i].Script)
		}
		w.reset()
		for _, cmd := range c.Before {
			w.do(2, cmd...)
		}
		if got := wire(w.do(c.Resp, c.command()...), c.Resp); got != latin1(c.Reply) {
			t.Errorf("case %d:\n%s\n got %q\nwant %q", i, c.Script, got, latin1(c.Reply))
		}
	}
}

func readCases(t testing.TB, file string) []corpusCase {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var cases []corpusCase
	for _, block := range strings.Split(string(data), "\n----\n") {
		c := corpusCase{Resp: 2}
		lines := strings.Split(strings.TrimSuffix(block, "\n"), "\n")
		for len(lines) > 0 && len(lines[0]) > 1 && lines[0][0] == '@' {
			word, rest, _ := strings.Cut(lines[0][1:], " ")
			switch word {
			case "keys":
				c.Keys = strings.Fields(rest)
			case "args":
				c.Args = strings.Fields(rest)
			case "before":
				c.Before = append(c.Before, strings.Fields(rest))
			case "resp":
				c.Resp, _ = strconv.Atoi(rest)
			case "ro":
				c.RO = true
			default:
				t.Fatalf("%s: unknown @%s", file, word)
			}
			lines = lines[1:]
		}
		c.Script = strings.Join(lines, "\n")
		cases = append(cases, c)
	}
	return cases
}

func recordCases(t testing.TB, cases []corpusCase, golden string) {
	conn, err := net.Dial("tcp", *record)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	do := func(args ...string) string {
		fmt.Fprintf(conn, "*%d\r\n", len(args))
		for _, a := range args {
			fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(a), a)
		}
		reply, err := readReply(in)
		if err != nil {
			t.Fatal(err, args)
		}
		return reply
	}
	out := make([]corpusCase, len(cases))
	for i, c := range cases {
		do("flushall")
		do("script", "flush", "sync") // a new Lua state: settings of cjson stay in the old one
		do("select", "0")
		do("hello", strconv.Itoa(c.Resp))
		c.Script = toLatin1(c.Script)
		for _, cmd := range c.Before {
			do(cmd...)
		}
		c.Reply = toLatin1(do(c.command()...))
		out[i] = c
	}
	data, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(golden, append(data, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// readReply reads one reply of either protocol as raw bytes.
func readReply(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	switch line[0] {
	case '$', '=':
		if n < 0 {
			return line, nil
		}
		body := make([]byte, n+2)
		if _, err := io.ReadFull(in, body); err != nil {
			return "", err
		}
		return line + string(body), nil
	case '%':
		n *= 2
	case '*', '~', '>':
	default:
		return line, nil
	}
	for range n {
		elem, err := readReply(in)
		if err != nil {
			return "", err
		}
		line += elem
	}
	return line, nil
}
