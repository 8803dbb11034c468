package compatibility

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockstep-io/lockstep/conformance/transcript"
)

// Play counts how often transcripts play a command, by the kind of Redis's answer.
type Play struct {
	Replies int // answers that are no errors
	Exact   int // how many of Replies are compared byte by byte
	RESP3   int // how many of Replies came over RESP3
	Errors  int
}

// Corpus is what the transcripts play.
type Corpus struct {
	Files    int
	Commands int // commands in all files; a command in a transaction counts once
	Plays    map[string]*Play
}

// notPlayed has the folders of transcripts on which a node differs from Redis (transcript/README.md says why). They show nothing
// about a node.
var notPlayed = []string{"differs"}

// ReadCorpus reads the transcripts in the folder dir. It also reads those in the folder shapes, which contain only the shapes of
// replies (conformance/discovery).
func ReadCorpus(dir, shapes string) (*Corpus, error) {
	c := &Corpus{Plays: map[string]*Play{}}
	for line := range strings.Lines(redisCommands) {
		_, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		c.Plays[name] = &Play{}
	}
	if err := eachText(dir, c.transcript); err != nil {
		return nil, err
	}
	return c, eachText(shapes, c.shapes)
}

func eachText(dir string, read func(name string, text []byte) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains(notPlayed, d.Name()) {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".txt" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return read(path, text)
	})
}

// shapes counts the commands of a file of conformance/discovery.
func (c *Corpus) shapes(path string, text []byte) error {
	commands, resp3 := 0, strings.Contains(path, "resp3")
	lines := strings.Split(string(text), "\n")
	for i, line := range lines[:len(lines)-1] {
		if words, ok := strings.CutPrefix(line, "> "); ok {
			commands++
			c.count(c.name(strings.Fields(words)), lines[i+1:], resp3, false)
		}
	}
	if commands > 0 {
		c.Files++
	}
	return nil
}

// name returns the name of a command or subcommand.
func (c *Corpus) name(args []string) string {
	if len(args) == 0 {
		return ""
	}
	name := strings.ToLower(args[0])
	if len(args) > 1 {
		if sub := name + "|" + strings.ToLower(args[1]); c.Plays[sub] != nil {
			return sub
		}
	}
	return name
}

func (c *Corpus) count(name string, reply []string, resp3, exact bool) {
	if strings.HasPrefix(reply[0], "-BUSY ") {
		c.Commands++ // a reply BUSY says nothing about the command
		return
	}
	c.see(name, strings.HasPrefix(reply[0], "-"), resp3, exact)
}

func (c *Corpus) see(name string, isError, resp3, exact bool) {
	c.Commands++
	p := c.Plays[name]
	switch {
	case p == nil: // a command that Redis does not have
	case isError:
		p.Errors++
	default:
		p.Replies++
		if exact {
			p.Exact++
		}
		if resp3 {
			p.RESP3++
		}
	}
}

// connection is the state of one connection of a transcript.
type connection struct {
	resp3   bool
	queued  []string // names of the commands since MULTI
	waiting string   // the command whose reply comes with a later @push
}

func (c *Corpus) transcript(path string, text []byte) error {
	f, err := transcript.Parse(path, text)
	if err != nil {
		return err
	}
	c.Files++
	at := &connection{}
	all := map[string]*connection{"main": at}
	for _, s := range f.Steps {
		switch s.Kind {
		case transcript.Conn:
			if all[s.Args[0]] == nil {
				all[s.Args[0]] = &connection{}
			}
			at = all[s.Args[0]]
		case transcript.Command, transcript.Hello:
			c.step(at, s)
		case transcript.Push:
			if at.waiting != "" && len(s.Reply) > 0 {
				c.count(at.waiting, s.Reply, at.resp3, s.Literal())
				at.waiting = ""
			}
		}
	}
	return nil
}

func (c *Corpus) step(at *connection, s transcript.Step) {
	name := c.name(s.Args)
	if s.Mods.NoReply || len(s.Reply) == 0 {
		at.waiting = name
		return
	}
	if s.Reply[0] == "+QUEUED" {
		at.queued = append(at.queued, name)
		return
	}
	isError := strings.HasPrefix(s.Reply[0], "-")
	switch {
	case name == "exec":
		c.inner(at, s)
		at.queued = nil
	case name == "discard":
		at.queued = nil
	case name == "hello" && !isError && len(s.Args) > 1:
		at.resp3 = s.Args[1] == "3"
	}
	c.count(name, s.Reply, at.resp3, s.Literal() && s.Kind == transcript.Command)
	if name == "reset" {
		*at = connection{}
	}
}

// inner counts the commands of a transaction.
func (c *Corpus) inner(at *connection, s transcript.Step) {
	v, _, err := transcript.ParseReply(s.Reply)
	if err != nil || len(v.Elems) != len(at.queued) {
		return // the transaction was not executed, or its reply shows only the shape
	}
	for i, name := range at.queued {
		c.see(name, v.Elems[i].Type == '-', at.resp3, s.Literal())
	}
}
