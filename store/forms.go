package store

import "math"

// Parameters of the cluster that say how large hashes, sets and sorted sets get in their
// compact forms. A node of version 0.1.0 would not act on them, so setting one is a write
// that it does not know: see WriteSet.Version.
const (
	ParamHashEntries  = "hash-max-listpack-entries"
	ParamHashValue    = "hash-max-listpack-value"
	ParamSetEntries   = "set-max-intset-entries"
	ParamScoreEntries = "zset-max-listpack-entries"
	ParamScoreValue   = "zset-max-listpack-value"
)

// MaxCompact is the most elements that a compact form has, whatever the parameters say: each
// write of one looks at them all.
const MaxCompact = 4096

// forms are the sizes up to which collections have their compact forms.
type forms struct {
	hashEntries, hashValue   int // fields; bytes of a name or value
	setEntries               int // integers
	scoreEntries, scoreValue int // members; bytes of one
}

// defaultForms are those of Redis.
var defaultForms = forms{hashEntries: 512, hashValue: 64, setEntries: 512, scoreEntries: 128, scoreValue: 64}

// anyForm keeps the form in which a value was saved.
var anyForm = forms{hashEntries: MaxCompact, hashValue: math.MaxInt, setEntries: MaxCompact, scoreEntries: MaxCompact, scoreValue: math.MaxInt}

// of returns the size that a parameter sets, nil if it sets none.
func (f *forms) of(name string) (size *int, most int) {
	switch name {
	case ParamHashEntries:
		return &f.hashEntries, MaxCompact
	case ParamHashValue:
		return &f.hashValue, math.MaxInt
	case ParamSetEntries:
		return &f.setEntries, MaxCompact
	case ParamScoreEntries:
		return &f.scoreEntries, MaxCompact
	case ParamScoreValue:
		return &f.scoreValue, math.MaxInt
	}
	return nil, 0
}

// FormParam reports whether a parameter sets one of these sizes.
func FormParam(name string) bool {
	size, _ := new(forms).of(name)
	return size != nil
}

// withForm returns the sizes with one changed. A value that is none changes nothing, on
// every node alike.
func (c config) withForm(name, value string) *forms {
	f := *c.form()
	if n, ok := ParseMemory(value); ok {
		size, most := f.of(name)
		*size = int(min(n, int64(most)))
	}
	return &f
}

// form returns the sizes in force.
func (c *config) form() *forms {
	if c.forms == nil {
		return &defaultForms
	}
	return c.forms
}

func (t *committed) form() *forms { return t.s.config.form() }
func (t *Txn) form() *forms       { return t.config.form() }
