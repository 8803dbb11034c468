package transcript

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var (
	errUnbalanced = errors.New("unbalanced quotes")
	errAfterQuote = errors.New("a closing quote must be followed by a space")
)

// SplitArgs cuts a command line into arguments by redis-cli's rules for blanks, quotes and escapes.
func SplitArgs(line string) ([]string, error) {
	var args []string
	for {
		line = strings.TrimLeft(line, " \t")
		if line == "" {
			return args, nil
		}
		arg, rest, err := nextArg(line)
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
		line = rest
	}
}

// nextArg takes the first argument from line, which must not begin with a blank.
func nextArg(line string) (arg, rest string, err error) {
	var out []byte
	for i := 0; i < len(line); {
		switch c := line[i]; c {
		case ' ', '\t':
			return string(out), line[i:], nil
		case '"', '\'':
			var n int
			if out, n, err = quoted(out, line[i:], c); err != nil {
				return "", "", err
			}
			i += n
			if i < len(line) && line[i] != ' ' && line[i] != '\t' {
				return "", "", errAfterQuote
			}
		default:
			out = append(out, c)
			i++
		}
	}
	return string(out), "", nil
}

// quoted appends the content of the quoted piece at the start of s. It also returns how many bytes of s the piece takes.
func quoted(out []byte, s string, quote byte) ([]byte, int, error) {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == quote:
			return out, i + 1, nil
		case quote == '\'' && strings.HasPrefix(s[i:], `\'`):
			out = append(out, '\'')
			i++
		case quote == '"' && s[i] == '\\' && i+1 < len(s):
			b, n := unescape(s[i+1:])
			out = append(out, b)
			i += n
		default:
			out = append(out, s[i])
		}
	}
	return nil, 0, errUnbalanced
}

// unescape decodes the escape whose backslash stands before s. It also returns how many bytes of s belong to the escape.
func unescape(s string) (byte, int) {
	if s[0] == 'x' && len(s) >= 3 {
		if b, err := strconv.ParseUint(s[1:3], 16, 8); err == nil {
			return byte(b), 3
		}
	}
	if i := strings.IndexByte("nrtba", s[0]); i >= 0 {
		return "\n\r\t\b\a"[i], 1
	}
	return s[0], 1
}

// maxRaw bounds how many bytes one raw step may send, so that a mistyped repeat count does not fill the memory.
const maxRaw = 64 << 20

// parseRaw reads the operand of ">>": quoted pieces in Go's syntax, each with an optional repeat count, as in "a"*65537 "\r\n".
func parseRaw(s string) ([]byte, error) {
	var out []byte
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimLeft(s, " ") {
		prefix, err := strconv.QuotedPrefix(s)
		if err != nil {
			return nil, fmt.Errorf("raw bytes must be Go-quoted pieces: %w", err)
		}
		piece, err := strconv.Unquote(prefix)
		if err != nil {
			return nil, err
		}
		s = s[len(prefix):]
		n := 1
		if strings.HasPrefix(s, "*") {
			count, rest, _ := strings.Cut(s[1:], " ")
			if n, err = strconv.Atoi(count); err != nil || n < 0 {
				return nil, fmt.Errorf("bad repeat count %q", count)
			}
			s = rest
		}
		if len(out)+n*len(piece) > maxRaw {
			return nil, fmt.Errorf("raw step longer than %d bytes", maxRaw)
		}
		out = append(out, strings.Repeat(piece, n)...)
	}
	return out, nil
}
