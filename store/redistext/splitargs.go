package redistext

import "bytes"

// SplitArgs splits a line (an inline request) into its words (CutArg).
func SplitArgs(line []byte) (args [][]byte, ok bool) {
	for {
		raw, rest, more, ok := CutArg(line)
		switch {
		case !ok:
			return nil, false
		case !more:
			return args, true
		}
		args, line = append(args, Unquote(raw)), rest
	}
}

// CheckArgs reports whether SplitArgs can split a line. It takes no memory.
func CheckArgs(line []byte) bool {
	for {
		_, rest, more, ok := CutArg(line)
		if !ok || !more {
			return ok
		}
		line = rest
	}
}

// CutArg cuts the first word off a line, as Redis's sdssplitargs does. raw still has quotes and escapes (Unquote). ok is false if a quoted
// part does not end, or does not end the word.
func CutArg(line []byte) (raw, rest []byte, more, ok bool) {
	from := 0
	for from < len(line) && IsBlank(line[from]) {
		from++
	}
	if from == len(line) {
		return nil, nil, false, true
	}
	i := from
	for i < len(line) && !endsWord(line[i]) {
		if c := line[i]; c != '"' && c != '\'' {
			i++
			continue
		}
		if i = quotedEnd(line, i); i < 0 || i < len(line) && !IsBlank(line[i]) {
			return nil, nil, false, false
		}
		break
	}
	return line[from:i], line[i:], true, true
}

// quotedEnd returns the index behind the quoted part that begins at index i, or -1 if the part has no end.
func quotedEnd(line []byte, i int) int {
	quote := line[i]
	for i++; i < len(line); i++ {
		switch c := line[i]; {
		case c == quote:
			return i + 1
		case c == '\\' && i+1 < len(line) && (quote == '"' || line[i+1] == '\''):
			i++ // the next byte does not end the part; nor do the two digits of \xHH
		}
	}
	return -1
}

// Unquote returns a copy of a word from CutArg without its quotes and escapes.
func Unquote(raw []byte) []byte {
	at := bytes.IndexAny(raw, `"'`)
	if at < 0 {
		return append([]byte{}, raw...)
	}
	arg := append(make([]byte, 0, len(raw)), raw[:at]...)
	quote, text := raw[at], raw[at+1:len(raw)-1]
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quote == '\'' && i+1 < len(text) && text[i+1] == '\'':
			arg = append(arg, '\'')
			i++
		case c == '\\' && quote == '"':
			b, n := unescape(text[i+1:])
			arg = append(arg, b)
			i += n
		default:
			arg = append(arg, c)
		}
	}
	return arg
}

// unescape decodes the escape at the start of s, which lacks the backslash, and returns the length of the escape in s.
func unescape(s []byte) (byte, int) {
	switch s[0] {
	case 'n':
		return '\n', 1
	case 'r':
		return '\r', 1
	case 't':
		return '\t', 1
	case 'b':
		return '\b', 1
	case 'a':
		return '\a', 1
	case 'x':
		if len(s) >= 3 {
			if hexDigit(s[1]) && hexDigit(s[2]) {
				return hexValue(s[1])<<4 | hexValue(s[2]), 3
			}
		}
	}
	return s[0], 1
}

// hexValue returns the value of a hexadecimal digit.
func hexValue(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return (c | 0x20) - 'a' + 10
}

// endsWord reports whether c ends a word outside of quotes. As in Redis, the blanks \v and \f do not end a word.
func endsWord(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// IsBlank reports whether c is a blank, as C's isspace does. CutArg skips the blanks before a word.
func IsBlank(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }
