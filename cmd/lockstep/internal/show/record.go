package show

import (
	"fmt"
	"strings"

	"github.com/lockstep-io/lockstep/server/respclient"
)

// Field is a name and a value of a Record.
type Field struct {
	Name string
	// Value is a string, an int64, a bool, a Record, a list ([]any) of such values, or nil.
	Value any
}

// Record has names and values in the order in which a node sends them.
type Record []Field

// Get returns the value of a name, or nil.
func (r Record) Get(name string) any {
	for _, f := range r {
		if f.Name == name {
			return f.Value
		}
	}
	return nil
}

// Bounds of a reply that is a record: they are beyond those of a node, and keep an error short.
const (
	mostFields = 200
	mostName   = 64
)

// RecordOf makes a record of a reply: a list of names and values. Values that are such lists become records, too.
func RecordOf(reply any) (Record, error) {
	list, ok := reply.([]any)
	if !ok || !named(list) {
		return nil, Unlike(reply)
	}
	r := make(Record, 0, len(list)/2)
	for i := 0; i < len(list); i += 2 {
		name := list[i].(string)
		v, err := valueOf(name, list[i+1])
		if err != nil {
			return nil, err
		}
		r = append(r, Field{name, v})
	}
	return r, nil
}

// RecordsOf makes records of a reply: a list of lists of names and values.
func RecordsOf(reply any) ([]Record, error) {
	list, ok := reply.([]any)
	if !ok {
		return nil, Unlike(reply)
	}
	records := make([]Record, 0, len(list))
	for _, elem := range list {
		r, err := RecordOf(elem)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, nil
}

// Records returns the records in the value of a field.
func Records(value any) ([]Record, error) {
	list, ok := value.([]any)
	records := make([]Record, 0, len(list))
	for _, elem := range list {
		r, is := elem.(Record)
		ok = ok && is
		records = append(records, r)
	}
	if !ok {
		return nil, Unlike(value)
	}
	return records, nil
}

// FormError is a reply that has another form than those of a node.
type FormError string

func (e FormError) Error() string { return string(e) }

// Unlike is the error for a reply of another form.
func Unlike(reply any) error { return FormError(fmt.Sprintf("%.100q", brief(reply))) }

// brief returns the beginning of a reply as a text.
func brief(reply any) string {
	if text, is := reply.(string); is {
		return text
	}
	if list, is := reply.([]any); is && len(list) > 4 {
		reply = list[:4]
	}
	return fmt.Sprintf("%.400v", reply)
}

// named reports whether a list has names and values: RESP2 has no maps.
func named(list []any) bool {
	if len(list) == 0 || len(list)%2 != 0 || len(list) > 2*mostFields {
		return false
	}
	seen := make(map[string]bool, len(list)/2)
	for i := 0; i < len(list); i += 2 {
		name, ok := list[i].(string)
		if !ok || !isName(name) || seen[name] {
			return false
		}
		seen[name] = true
	}
	return true
}

func isName(text string) bool {
	if text == "" || len(text) > mostName || text[0] < 'a' || text[0] > 'z' {
		return false
	}
	for i := range len(text) {
		c := text[i]
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

// flags are the names whose values 0 and 1 stand for false and true.
var flags = map[string]bool{"leader": true, "voter": true, "up": true, "never-lead": true, "shared": true}

func valueOf(name string, reply any) (any, error) {
	switch v := reply.(type) {
	case nil, string:
		return v, nil
	case int64:
		if flags[name] && (v == 0 || v == 1) {
			return v == 1, nil
		}
		return v, nil
	case respclient.ServerError:
		return nil, FormError(fmt.Sprintf("%.100q among the values", string(v)))
	case []any:
		if named(v) {
			return RecordOf(v)
		}
		list := make([]any, 0, len(v))
		for _, elem := range v {
			e, err := valueOf("", elem)
			if err != nil {
				return nil, err
			}
			list = append(list, e)
		}
		return list, nil
	}
	return nil, Unlike(reply)
}

// jsonName is the name of a field in JSON: a hyphen in a name would have to be quoted in most languages.
func jsonName(name string) string { return strings.ReplaceAll(name, "-", "_") }
