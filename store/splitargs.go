package store

// SplitArgs splits a line (an inline request, the first line of a script) as Redis's sdssplitargs does: blanks
// separate; "…" knows \n \r \t \b \a \xHH and takes any other escaped byte as
// it is; '…' knows \'; a closing quote must be followed by a blank or the end.
func SplitArgs(line []byte) (args [][]byte, ok bool) {
	for i := 0; ; {
		for i < len(line) && isBlank(line[i]) {
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

// quotedPart reads the rest of a quoted part and returns where it ends, -1 if it
// does not end properly.
func quotedPart(arg, line []byte, i int, quote byte) ([]byte, int) {
	for i < len(line) {
		c := line[i]
		i++
		switch {
		case c == quote:
			if i < len(line) && !isBlank(line[i]) {
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

// unescape decodes what follows a backslash and tells how long it is.
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

// hexValue is the value of a hexadecimal digit.
func hexValue(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return (c | 0x20) - 'a' + 10
}

// endsWord tells what ends a word outside quotes: not every blank does.
func endsWord(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func isBlank(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }
