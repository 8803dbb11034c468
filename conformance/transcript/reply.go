package transcript

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Value is one reply as it came over the wire, RESP2 or RESP3.
//
//	type byte       Text                 Elems
//	+ - : , # ( _   the line             -
//	$ = !           the payload          -              Null for $-1
//	* ~ >           -                    the elements   Null for *-1
//	%               -                    key, value, key, value, ...
//	|               -                    as %, and then the value that the attributes belong to
type Value struct {
	Type  byte
	Text  string
	Null  bool
	Elems []Value
}

const (
	maxDepth = 128
	maxBulk  = 64 << 20
	maxElems = 1 << 20
)

// errWire is the error for bytes that are not RESP, or that would be ambiguous in the notation.
var errWire = errors.New("malformed reply")

// ReadValue reads exactly one value.
func ReadValue(r *bufio.Reader) (Value, error) { return readValue(r, 0) }

func readValue(r *bufio.Reader, depth int) (Value, error) {
	if depth > maxDepth {
		return Value{}, fmt.Errorf("%w: nested deeper than %d", errWire, maxDepth)
	}
	line, err := readLine(r)
	if err != nil {
		return Value{}, err
	}
	if line == "" {
		return Value{}, fmt.Errorf("%w: empty line", errWire)
	}
	v := Value{Type: line[0], Text: line[1:]}
	switch v.Type {
	case '+', '-', ':', ',':
		return v, nil
	case '#', '(', '_':
		return v, checkLine(v)
	case '$', '=', '!':
		return readBulk(r, v)
	case '*', '~', '>', '%', '|':
		return readElems(r, v, depth)
	}
	return Value{}, fmt.Errorf("%w: unknown type in %q", errWire, line)
}

// checkLine refuses a RESP3 line that would look like something else in a transcript, such as a comment.
func checkLine(v Value) error {
	ok := false
	switch v.Type {
	case '#':
		ok = v.Text == "t" || v.Text == "f"
	case '_':
		ok = v.Text == ""
	case '(':
		digits := strings.TrimPrefix(v.Text, "-")
		ok = digits != "" && strings.Trim(digits, "0123456789") == ""
	}
	if !ok {
		return fmt.Errorf("%w: %q", errWire, string(v.Type)+v.Text)
	}
	return nil
}

// readLine reads up to CRLF; a lone LF is part of the line.
func readLine(r *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, err := r.ReadBytes('\n')
		line = append(line, part...)
		if err != nil {
			if len(line) > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
		if n := len(line); n >= 2 && line[n-2] == '\r' {
			return string(line[:n-2]), nil
		}
		if len(line) > maxBulk {
			return "", fmt.Errorf("%w: line without end", errWire)
		}
	}
}

// length reads a length. It accepts only the canonical spelling, because the notation cannot show another one.
func length(text string, limit int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || strconv.Itoa(n) != text || n < 0 || n > limit {
		return 0, fmt.Errorf("%w: length %q", errWire, text)
	}
	return n, nil
}

func readBulk(r *bufio.Reader, v Value) (Value, error) {
	if v.Type == '$' && v.Text == "-1" {
		return Value{Type: '$', Null: true}, nil
	}
	n, err := length(v.Text, maxBulk)
	if err != nil {
		return Value{}, err
	}
	buf := make([]byte, n+2)
	if _, err := io.ReadFull(r, buf); err != nil {
		return Value{}, midValue(err)
	}
	if string(buf[n:]) != "\r\n" {
		return Value{}, fmt.Errorf("%w: bulk of %d bytes does not end in CRLF", errWire, n)
	}
	v.Text = string(buf[:n])
	return v, nil
}

func readElems(r *bufio.Reader, v Value, depth int) (Value, error) {
	if v.Type == '*' && v.Text == "-1" {
		return Value{Type: '*', Null: true}, nil
	}
	n, err := length(v.Text, maxElems)
	if err != nil {
		return Value{}, err
	}
	n = elemCount(v.Type, n)
	v.Text = ""
	for range n {
		e, err := readValue(r, depth+1)
		if err != nil {
			return Value{}, midValue(err)
		}
		v.Elems = append(v.Elems, e)
	}
	return v, nil
}

// elemCount returns how many values follow a header that announces n elements.
func elemCount(typ byte, n int) int {
	switch typ {
	case '%':
		return 2 * n
	case '|':
		return 2*n + 1
	}
	return n
}

// headerCount is the inverse of elemCount: it returns the number in the header of v.
func headerCount(v Value) int {
	switch v.Type {
	case '%', '|':
		return len(v.Elems) / 2
	}
	return len(v.Elems)
}

// midValue turns the end of the stream inside a value into an error of its own. Only between two values is that end a clean close.
func midValue(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Append appends v in its form on the wire.
func (v Value) Append(b []byte) []byte {
	b = append(b, v.Type)
	switch {
	case v.Null:
		return append(b, "-1\r\n"...)
	case isBulk(v.Type):
		b = strconv.AppendInt(b, int64(len(v.Text)), 10)
		b = append(append(b, "\r\n"...), v.Text...)
	case isAggregate(v.Type):
		b = strconv.AppendInt(b, int64(headerCount(v)), 10)
		b = append(b, "\r\n"...)
		for _, e := range v.Elems {
			b = e.Append(b)
		}
		return b
	default:
		b = append(b, v.Text...)
	}
	return append(b, "\r\n"...)
}

func isBulk(typ byte) bool      { return typ == '$' || typ == '=' || typ == '!' }
func isAggregate(typ byte) bool { return strings.IndexByte("*~>%|", typ) >= 0 }

// AppendCommand appends a command in the form in which clients send it: an array of bulk strings.
func AppendCommand(b []byte, args ...string) []byte {
	v := Value{Type: '*'}
	for _, a := range args {
		v.Elems = append(v.Elems, Value{Type: '$', Text: a})
	}
	return v.Append(b)
}

// Lines renders v with one line for each element. Elements are indented by two spaces below their header.
func (v Value) Lines() []string { return v.lines("", false) }

// ShapeLines renders only types, counts and nulls, for values that differ from run to run.
func (v Value) ShapeLines() []string { return v.lines("", true) }

func (v Value) lines(indent string, shape bool) []string {
	head := indent + string(v.Type)
	switch {
	case v.Null:
		return []string{head + "-1"}
	case isAggregate(v.Type):
		out := []string{head + strconv.Itoa(headerCount(v))}
		for _, e := range v.Elems {
			out = append(out, e.lines(indent+"  ", shape)...)
		}
		return out
	case shape:
		return []string{head}
	case isBulk(v.Type):
		return []string{head + strconv.Quote(v.Text)}
	case isPlain(v.Text):
		return []string{head + v.Text}
	}
	return []string{head + strconv.Quote(v.Text)}
}

// isPlain reports whether a line needs no quotes in a file, even if an editor strips blanks.
func isPlain(s string) bool {
	if strings.HasPrefix(s, `"`) || strings.TrimSpace(s) != s || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return false
		}
	}
	return true
}

// ParseReply reads one value from the notation that [Value.Lines] writes. It also returns the lines after the value.
func ParseReply(lines []string) (Value, []string, error) { return parseReply(lines, "") }

func parseReply(lines []string, indent string) (Value, []string, error) {
	if len(lines) == 0 {
		return Value{}, nil, errors.New("reply ends too early")
	}
	body, ok := strings.CutPrefix(lines[0], indent)
	if !ok || body == "" || body[0] == ' ' {
		return Value{}, nil, fmt.Errorf("wrong indentation: %q", lines[0])
	}
	v := Value{Type: body[0], Text: body[1:]}
	rest := lines[1:]
	switch {
	case (v.Type == '$' || v.Type == '*') && v.Text == "-1":
		return Value{Type: v.Type, Null: true}, rest, nil
	case isAggregate(v.Type):
		n, err := length(v.Text, maxElems)
		if err != nil {
			return Value{}, nil, err
		}
		v.Text = ""
		for range elemCount(v.Type, n) {
			var e Value
			if e, rest, err = parseReply(rest, indent+"  "); err != nil {
				return Value{}, nil, err
			}
			v.Elems = append(v.Elems, e)
		}
		return v, rest, nil
	case isBulk(v.Type) || strings.HasPrefix(v.Text, `"`):
		text, err := strconv.Unquote(v.Text)
		if err != nil {
			return Value{}, nil, fmt.Errorf("%q: %w", lines[0], err)
		}
		v.Text = text
		return v, rest, nil
	case strings.IndexByte("+-:,#(_", v.Type) >= 0:
		return v, rest, nil
	}
	return Value{}, nil, fmt.Errorf("not a reply: %q", lines[0])
}
