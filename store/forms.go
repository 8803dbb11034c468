package store

import "math"

// Cluster parameters that limit the compact forms of hashes, sets and sorted sets. Version 0.1.0 would ignore them (WriteSet.Version).
const (
	ParamHashEntries  = "hash-max-listpack-entries"
	ParamHashValue    = "hash-max-listpack-value"
	ParamSetEntries   = "set-max-intset-entries"
	ParamScoreEntries = "zset-max-listpack-entries"
	ParamScoreValue   = "zset-max-listpack-value"
)

// MaxCompact is the largest number of elements in a compact form, whatever the parameters say: one
// write may visit or copy all of them.
const MaxCompact = 4096

// forms are the size limits of the compact forms.
type forms struct {
	hashEntries, hashValue   int // most fields; most bytes of a name or value
	setEntries               int // most integers
	scoreEntries, scoreValue int // most members; most bytes of a member
}

// defaultForms are Redis's limits.
var defaultForms = forms{hashEntries: 512, hashValue: 64, setEntries: 512, scoreEntries: 128, scoreValue: 64}

// anyForm has the highest limits: under them a collection that is read from a snapshot keeps the form that it had.
var anyForm = forms{hashEntries: MaxCompact, hashValue: math.MaxInt, setEntries: MaxCompact, scoreEntries: MaxCompact, scoreValue: math.MaxInt}

// of returns the limit that a parameter sets, or nil, and the largest value of that limit.
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

// FormParam reports whether a parameter sets a limit of the compact forms.
func FormParam(name string) bool {
	size, _ := new(forms).of(name)
	return size != nil
}

// withForm returns the limits after a change of a parameter. Every node ignores a value that is not valid.
func (c config) withForm(name, value string) *forms {
	f := *c.form()
	if n, ok := ParseMemory(value); ok {
		size, most := f.of(name)
		*size = int(min(n, int64(most)))
	}
	return &f
}

// form returns the limits in force.
func (c *config) form() *forms {
	if c.forms == nil {
		return &defaultForms
	}
	return c.forms
}

func (t *committed) form() *forms { return t.s.config.form() }
func (t *Txn) form() *forms       { return t.config.form() }
