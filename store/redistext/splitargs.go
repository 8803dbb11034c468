package redistext

// SplitArgs splits a line (an inline request, the first line of a script) as Redis's sdssplitargs
// does. Blanks separate arguments. In "…" the escapes \n \r \t \b \a \xHH have their meaning, and any
// other escaped byte stands for itself; in '…' only \' is an escape. A blank or the end of the line
// must follow a closing quote.
func SplitArgs(line []byte) (args [][]byte, ok bool) {
	for i := 0; ; {
		for i < len(line) && IsBlank(line[i]) {
			i++
		}
		if i == len(line) {
			return args, true
		}
		arg := []byte{}
		for i < len(line) && !endsWord(line[i]) {
			c := line[i]
			i++
			if c != '"' && c != '\'' {
				arg = append(arg, c)
				continue
			}
			if arg, i = quotedPart(arg, line, i, c); i < 0 {
				return nil, false
			}
			break
		}
		args = append(args, arg)
	}
}

// quotedPart reads a quoted part, whose first byte after the opening quote has the index i, and appends it to arg. It returns the
// index after the closing quote, or -1 if the part has no proper end.
func quotedPart(arg, line []byte, i int, quote byte) ([]byte, int) {
	for i < len(line) {
		c := line[i]
		i++
		switch {
		case c == quote:
			if i < len(line) && !IsBlank(line[i]) {
				return arg, -1
			}
			return arg, i
		case c == '\\' && quote == '\'' && i < len(line) && line[i] == '\'':
			arg = append(arg, '\'')
			i++
		case c == '\\' && quote == '"' && i < len(line):
			b, n := unescape(line[i:])
			arg = append(arg, b)
			i += n
		default:
			arg = append(arg, c)
		}
	}
	return arg, -1
}

// unescape decodes the escape at the start of s, which is the rest of the line after a backslash. It also returns the length
// of the escape without the backslash.
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

// IsBlank reports whether c is a blank, as C's isspace does. SplitArgs skips the blanks before an argument.
func IsBlank(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }
