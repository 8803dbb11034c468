package transcript

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Kind says what a line of a transcript asks for.
type Kind int

const (
	Text    Kind = iota // a comment ("# ...") or a blank line
	Command             // > SET k v
	Raw                 // >> "raw\r\nbytes"
	Push                // @push: reads one more value on this connection
	Hello               // @hello 3: HELLO, whose reply shows only the type of what differs between servers
	Conn                // @conn b
	Advance             // @advance 1500ms: the server's time moves
	Sleep               // @sleep 100ms: real time passes, whatever clock the server has
	Config              // @server name=value: start the server with this setting
	Modify              // @sorted, @shape, ...: changes how the next reply is read or shown
)

// File is one transcript.
type File struct {
	Name  string // the path from which the file was read, for messages
	Steps []Step
	// Server holds the settings that the server must be started with, from @server lines: "name", "value" pairs.
	Server [][2]string
}

// Step is a line of a transcript that is not part of a reply, together with the reply that follows it.
type Step struct {
	Line   int
	Kind   Kind
	Source string // the line as written
	Args   []string
	Bytes  []byte
	Wait   time.Duration
	Mods   Mods
	Reply  []string
}

// Mods is what the modifier lines above a step say.
type Mods struct {
	NoReply bool
	Until   string // the command is sent again and again until the first line of its reply begins with this text
	Shape   bool   // only types and counts are compared
	Type    bool   // only the type of the first line is compared
	Sort    bool
	Pairs   bool // Sort moves pairs, not elements
	Depth   int  // nesting depth of the arrays to sort
	Holder  bool // of the client that holds a lock, only what does not differ from run to run is compared
	Subs    []Sub
}

// Sub is a substitution in every line of a reply.
type Sub struct {
	Pattern *regexp.Regexp
	Repl    string
}

// Replies tells whether a step of this kind is followed by a reply.
func (k Kind) Replies() bool { return k == Command || k == Raw || k == Push || k == Hello }

// Parse reads a transcript. It uses name only in its errors.
func Parse(name string, src []byte) (*File, error) {
	p := parser{file: &File{Name: name}}
	text := strings.TrimSuffix(string(src), "\n")
	for i, line := range strings.Split(text, "\n") {
		if err := p.line(i+1, line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
	}
	if p.mods != nil {
		return nil, fmt.Errorf("%s: a modifier at the end of the file modifies nothing", name)
	}
	return p.file, nil
}

// Format returns the text of the file; it is the inverse of [Parse].
func (f *File) Format() []byte {
	var b strings.Builder
	for _, s := range f.Steps {
		b.WriteString(s.Source + "\n")
		for _, r := range s.Reply {
			b.WriteString(r + "\n")
		}
	}
	return []byte(b.String())
}

type parser struct {
	file *File
	mods *Mods // the modifiers that were read for the next step with a reply
	open bool  // reply lines may follow
}

// isReply reports whether a line of a transcript belongs to a reply. It does if it is no step, no comment and not blank.
func isReply(line string) bool {
	if line == "" || line == "#" {
		return false
	}
	for _, prefix := range []string{"# ", "> ", ">> ", "@"} {
		if strings.HasPrefix(line, prefix) {
			return false
		}
	}
	return true
}

func (p *parser) line(n int, line string) error {
	if isReply(line) {
		return p.reply(line)
	}
	s := Step{Line: n, Source: line}
	var err error
	switch {
	case strings.HasPrefix(line, "> "):
		s.Kind = Command
		if s.Args, err = SplitArgs(line[2:]); err == nil && len(s.Args) == 0 {
			err = errors.New("empty command")
		}
	case strings.HasPrefix(line, ">> "):
		s.Kind = Raw
		s.Bytes, err = parseRaw(line[3:])
	case strings.HasPrefix(line, "@"):
		err = p.directive(&s, line[1:])
	}
	if err != nil {
		return err
	}
	if s.Kind.Replies() && p.mods != nil {
		s.Mods, p.mods = *p.mods, nil
	}
	if p.mods != nil && s.Kind != Modify {
		return errors.New("a modifier must stand right above the step it modifies")
	}
	if s.Mods.Until != "" && s.Kind != Command {
		return errors.New("@until modifies a command only")
	}
	p.open = s.Kind.Replies() && !s.Mods.NoReply
	p.file.Steps = append(p.file.Steps, s)
	return nil
}

func (p *parser) reply(line string) error {
	if !p.open {
		return fmt.Errorf("reply line %q belongs to no command", line)
	}
	last := &p.file.Steps[len(p.file.Steps)-1]
	last.Reply = append(last.Reply, line)
	return nil
}

func (p *parser) directive(s *Step, text string) error {
	word, rest, _ := strings.Cut(text, " ")
	var err error
	switch word {
	case "push":
		s.Kind = Push
	case "hello":
		s.Kind = Hello
		options, err := SplitArgs(rest)
		s.Args = append([]string{"HELLO"}, options...)
		return err
	case "conn":
		s.Kind, s.Args = Conn, []string{rest}
	case "advance", "sleep":
		s.Kind = Advance
		if word == "sleep" {
			s.Kind = Sleep
		}
		s.Wait, err = time.ParseDuration(rest)
		return err
	case "server":
		s.Kind = Config
		name, value, ok := strings.Cut(rest, "=")
		if !ok {
			return errors.New("want @server name=value")
		}
		p.file.Server = append(p.file.Server, [2]string{name, value})
		return nil
	default:
		s.Kind = Modify
		if p.mods == nil {
			p.mods = &Mods{}
		}
		return p.mods.set(word, rest)
	}
	if (s.Kind == Push) != (rest == "") {
		return fmt.Errorf("wrong operand in @%s", text)
	}
	return nil
}

func (m *Mods) set(word, rest string) error {
	switch word {
	case "until":
		m.Until = rest
		if rest == "" {
			return errors.New("want @until and how the reply begins")
		}
		return nil
	case "noreply":
		m.NoReply = true
	case "shape":
		m.Shape = true
	case "type":
		m.Type = true
	case "holder":
		m.Holder = true
	case "sorted", "sortedpairs":
		m.Sort, m.Pairs = true, word == "sortedpairs"
		if rest == "" {
			return nil
		}
		depth, err := strconv.Atoi(rest)
		m.Depth = depth
		return err
	case "sub":
		sub, err := parseSub(rest)
		m.Subs = append(m.Subs, sub)
		return err
	default:
		return fmt.Errorf("unknown directive @%s", word)
	}
	if rest != "" {
		return fmt.Errorf("@%s takes no operand", word)
	}
	return nil
}

// parseSub reads /pattern/replacement/. Any other character may take the place of the slash.
func parseSub(s string) (Sub, error) {
	if s == "" {
		return Sub{}, errors.New("want @sub /pattern/replacement/")
	}
	parts := strings.Split(s, s[:1])
	if len(parts) != 4 || parts[3] != "" {
		return Sub{}, errors.New("want @sub /pattern/replacement/")
	}
	re, err := regexp.Compile(parts[1])
	return Sub{Pattern: re, Repl: parts[2]}, err
}
