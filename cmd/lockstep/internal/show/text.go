package show

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Visible replaces everything that could control a terminal, except line breaks.
func Visible(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if r == '\n' || strconv.IsPrint(r) && r != utf8.RuneError {
			b.WriteString(text[:size])
		} else {
			quoted := strconv.Quote(text[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return b.String()
}

// Cell returns a value as one cell of a table.
func Cell(value any) string {
	if text, is := value.(string); is && len(text) > mostCell {
		return cell(text[:mostCell]) + fmt.Sprintf("… (%d bytes)", len(text))
	}
	return cell(value)
}

// mostCell is how many bytes of a text are printed: the name of an owner may have megabytes.
const mostCell = 8192

func cell(value any) string { return strings.ReplaceAll(Visible(fmt.Sprint(value)), "\n", `\n`) }

// Text returns the value of a field for people: times with their units.
func Text(f Field) string {
	n, number := f.Value.(int64)
	switch {
	case number && n < 0 && f.Name == "ttl":
		return "none"
	case number && n < 0 && f.Name == "waited":
		return "unknown"
	case number && (f.Name == "ttl" || f.Name == "waited"):
		return ms(n)
	case number && f.Name == "at":
		return time.UnixMilli(n).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	switch v := f.Value.(type) {
	case nil:
		return "-"
	case bool:
		return map[bool]string{true: "yes", false: "no"}[v]
	case Record, []Record, []any:
		return Cell(string(AppendJSON(nil, v)))
	}
	return Cell(f.Value)
}

// ms returns a number of milliseconds with units, such as 1m30s.
func ms(n int64) string {
	const longest = int64(1<<63-1) / int64(time.Millisecond)
	if n > longest {
		return strconv.FormatInt(n/1000, 10) + "s" // longer than a Duration
	}
	d := time.Duration(n) * time.Millisecond
	if d >= time.Minute {
		d = d.Round(time.Second)
	}
	return d.String()
}

// wide are the characters that take two columns of a terminal.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x1100, Hi: 0x115F, Stride: 1}, {0x2E80, 0x303E, 1}, {0x3041, 0xA4CF, 1}, {0xAC00, 0xD7A3, 1}, {0xF900, 0xFAFF, 1},
		{0xFE30, 0xFE6F, 1}, {0xFF00, 0xFF60, 1}, {0xFFE0, 0xFFE6, 1}},
	R32: []unicode.Range32{{0x1F300, 0x1F64F, 1}, {0x1F900, 0x1F9FF, 1}, {0x20000, 0x3FFFD, 1}},
}

// columns returns how many columns of a terminal a character takes.
func columns(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

func width(text string) (n int) {
	for _, r := range text {
		n += columns(r)
	}
	return n
}

// shorten cuts a text that takes more columns than it may, or has many marks that take none.
func shorten(text string, most int) string {
	if width(text) <= most && utf8.RuneCountInString(text) <= 4*most {
		return text
	}
	n, runes := 0, 0
	for i, r := range text {
		if n += columns(r); n > most-1 || runes == 4*most {
			return text[:i] + "…"
		}
		runes++
	}
	return text
}
