package show

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// AppendJSON appends a value of a Record as JSON. It escapes the characters that do not print, so that they control no terminal.
//
// JSON cannot have bytes that are not UTF-8. In a text they become U+FFFD, and the exact bytes follow in a field whose name ends in _base64.
func AppendJSON(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case string:
		return appendText(b, v)
	case Record:
		b = append(b, '{')
		for i, f := range v {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = append(appendText(b, jsonName(f.Name)), ": "...)
			b = AppendJSON(b, f.Value)
			if text, is := f.Value.(string); is && !utf8.ValidString(text) {
				b = append(appendText(append(b, ", "...), jsonName(f.Name)+"_base64"), ": "...)
				b = append(b, '"')
				b = base64.StdEncoding.AppendEncode(b, []byte(text))
				b = append(b, '"')
			}
		}
		return append(b, '}')
	case []any:
		return appendList(b, v)
	case []Record:
		return appendList(b, v)
	}
	panic(fmt.Sprintf("show: no value of a record: %T", v))
}

func appendList[T any](b []byte, list []T) []byte {
	b = append(b, '[')
	for i, elem := range list {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = AppendJSON(b, any(elem))
	}
	return append(b, ']')
}

func appendText(b []byte, text string) []byte {
	b = append(b, '"')
	for _, r := range text { // of each byte that is not UTF-8, r is U+FFFD
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case strconv.IsPrint(r) && r != utf8.RuneError:
			b = utf8.AppendRune(b, r)
		case r > 0xFFFF:
			hi, lo := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, hi, lo)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return append(b, '"')
}
