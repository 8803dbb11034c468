package web

import (
	"bufio"
	"encoding/base64"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// mostText is how many bytes of a text in a reply are kept.
	mostText = 4 << 10
	// mostElems is how many elements a reply may have. The longest is a page of LOCK.LIST.
	mostElems = 1 << 17
	mostDepth = 8
	mostLine  = 64 << 10
)

// cut is a text that is longer than what is kept of it.
type cut struct {
	head   string
	length int64
}

var errProtocol = errors.New("web: not a reply of the server")

// readReply reads a reply in RESP2: a string, a cut, an int64, an []any, a refusal or nil. It keeps only the first bytes of a text; most
// tells how many, when the reply has begun.
func readReply(r *bufio.Reader, most func() int) (any, error) {
	left := mostElems
	return readValue(r, most, 0, &left)
}

func readValue(r *bufio.Reader, most func() int, depth int, left *int) (any, error) {
	line, err := readLine(r)
	if err != nil {
		return nil, err
	}
	if *left--; *left < 0 || line == "" || depth > mostDepth {
		return nil, errProtocol
	}
	switch rest := line[1:]; line[0] {
	case '+':
		return rest, nil
	case '-':
		return refusal(rest), nil
	case ':', '$', '*':
		n, err := strconv.ParseInt(rest, 10, 64)
		if err != nil {
			return nil, errProtocol
		}
		switch {
		case line[0] == ':':
			return n, nil
		case n == -1:
			return nil, nil
		case n < 0:
			return nil, errProtocol
		case line[0] == '$':
			return readText(r, n, most())
		}
		list := make([]any, 0, min(n, 1024))
		for range n {
			v, err := readValue(r, most, depth+1, left)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	}
	return nil, errProtocol
}

func readLine(r *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			return strings.TrimSuffix(string(line[:len(line)-1]), "\r"), nil
		}
		if err != bufio.ErrBufferFull {
			return "", err
		}
		if len(line) > mostLine {
			return "", errProtocol
		}
	}
}

func readText(r *bufio.Reader, n int64, most int) (any, error) {
	head := make([]byte, min(n, int64(most)))
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	if _, err := io.CopyN(io.Discard, r, n-int64(len(head))+int64(len("\r\n"))); err != nil {
		return nil, err
	}
	if int64(len(head)) < n {
		return cut{string(head), n}, nil
	}
	return string(head), nil
}

// object is a reply that is a list of names and values. Its texts are bytes as the server has sent them.
type object map[string]any

func toObject(reply any) (object, error) {
	list, ok := reply.([]any)
	if !ok || len(list)%2 != 0 {
		return nil, errReply
	}
	o := make(object, len(list)/2)
	for i := 0; i < len(list); i += 2 {
		name, ok := list[i].(string)
		if !ok {
			return nil, errReply
		}
		o[name] = list[i+1]
	}
	return o, nil
}

func toObjects(reply any) ([]object, error) {
	list, ok := reply.([]any)
	if !ok {
		return nil, errReply
	}
	objects := make([]object, 0, len(list))
	for _, one := range list {
		o, err := toObject(one)
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// nested makes objects of the fields that are lists of lists of names and values, or such a list.
func (o object) nested(names ...string) object {
	for _, name := range names {
		if list, err := toObjects(o[name]); err == nil {
			o[name] = list
		} else if one, err := toObject(o[name]); err == nil {
			o[name] = one
		}
	}
	return o
}

// Text returns a field as text: what is kept of it, if it was cut.
func (o object) Text(name string) string {
	switch v := o[name].(type) {
	case string:
		return v
	case cut:
		return v.head
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}

// Number returns a field as a number; 0 if it is none.
func (o object) Number(name string) int64 {
	switch v := o[name].(type) {
	case int64:
		return v
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return n
		}
	}
	return 0
}

// forJSON returns a value that JSON can hold. A text that is not UTF-8 has its bytes beside it, in NAME_base64; of a text that was cut,
// NAME_length is how long it is.
func forJSON(v any) any {
	switch v := v.(type) {
	case object:
		o := make(map[string]any, len(v))
		for name, field := range v {
			name = strings.ToValidUTF8(name, "\uFFFD")
			o[name] = forJSON(field)
			head, length := "", int64(0)
			switch t := field.(type) {
			case string:
				head = t
			case cut:
				head, length = t.head, t.length
			}
			if length > 0 {
				o[name+"_length"] = length
			} else if !utf8.ValidString(head) {
				o[name+"_base64"] = base64.StdEncoding.EncodeToString([]byte(head))
			}
		}
		return o
	case []object:
		list := make([]any, len(v))
		for i := range v {
			list[i] = forJSON(v[i])
		}
		return list
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = forJSON(v[i])
		}
		return list
	case string:
		return strings.ToValidUTF8(v, "\uFFFD")
	case cut:
		return strings.ToValidUTF8(v.head, "\uFFFD")
	case refusal:
		return strings.ToValidUTF8(string(v), "\uFFFD")
	}
	return v
}
