package store

import (
	"encoding/binary"
	"slices"
	"strings"
)

// FunctionFlags are the flags that a function declares.
type FunctionFlags uint8

// The flags of functions, and of scripts that begin with "#!".
const (
	FunctionNoWrites FunctionFlags = 1 << iota
	FunctionAllowOOM
	FunctionAllowStale
	FunctionNoCluster
	FunctionAllowCrossSlotKeys
)

// functionFlags are the names of the flags, in the order of their bits.
var functionFlags = [...]string{"no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"}

// ParseFunctionFlag returns the flag with a name in lower case.
func ParseFunctionFlag(name string) (flag FunctionFlags, ok bool) {
	i := slices.Index(functionFlags[:], name)
	return 1 << max(i, 0), i >= 0
}

// Names returns the names of the flags that are set.
func (f FunctionFlags) Names() []string {
	var names []string
	for i, name := range functionFlags {
		if f>>i&1 != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Function is the declaration of a function, known without running it.
type Function struct {
	Name        string
	Description string
	Described   bool // a description was given, possibly an empty one
	Flags       FunctionFlags
}

// Library is a function library: its code, including the first line, and the functions that the
// code registered. It is immutable.
type Library struct {
	Name      string
	Code      string
	Functions []Function
}

// librarySet holds the function libraries. It is part of the replicated state, so functions exist
// on every node, after a change of leader and after a restart. A set is immutable: a change makes a
// copy, which is cheap enough for so rare a change and keeps snapshots simple.
type librarySet struct {
	libs      []*Library // by name
	functions []functionPlace
	bytes     int64 // see size
}

// functionPlace is the index entry of a function by its name in lower case, because FCALL ignores
// case.
type functionPlace struct {
	name string
	lib  *Library
	at   int
}

var noLibraries = &librarySet{}

// size returns the estimated memory of the libraries.
func (s *librarySet) size() int64 { return s.bytes }

// size returns the estimated memory of a library. Each node also holds its compiled form, which is
// about as large.
func (l *Library) size() int64 {
	n := entrySize + allocated(len(l.Name)) + 2*allocated(len(l.Code))
	for _, f := range l.Functions {
		n += entrySize + allocated(len(f.Name)) + allocated(len(f.Description))
	}
	return n
}

func (s *librarySet) find(name string) (i int, ok bool) {
	return slices.BinarySearchFunc(s.libs, name, func(l *Library, name string) int { return strings.Compare(l.Name, name) })
}

func (s *librarySet) findFunction(lower string) (i int, ok bool) {
	return slices.BinarySearchFunc(s.functions, lower, func(p functionPlace, name string) int { return strings.Compare(p.name, name) })
}

// without returns a copy of the set without a library.
func (s *librarySet) without(name string) *librarySet {
	i, ok := s.find(name)
	if !ok {
		return s
	}
	gone := s.libs[i]
	return &librarySet{
		bytes:     s.bytes - gone.size(),
		libs:      slices.Delete(slices.Clone(s.libs), i, i+1),
		functions: slices.DeleteFunc(slices.Clone(s.functions), func(p functionPlace) bool { return p.lib == gone }),
	}
}

// with returns a copy of the set with a library, which replaces one of the same name. If the names
// of two functions differ only in case, lookups find the first one.
func (s *librarySet) with(lib *Library) *librarySet {
	base := s.without(lib.Name)
	i, _ := base.find(lib.Name)
	next := &librarySet{bytes: base.bytes + lib.size(), libs: slices.Insert(slices.Clone(base.libs), i, lib), functions: slices.Clone(base.functions)}
	for at := range lib.Functions {
		name := strings.ToLower(lib.Functions[at].Name)
		if i, taken := next.findFunction(name); !taken {
			next.functions = slices.Insert(next.functions, i, functionPlace{name, lib, at})
		}
	}
	return next
}

// Libraries returns the number of function libraries and the number of functions.
func (s *Store) Libraries() (libraries, functions int) {
	return len(s.libs.libs), CountFunctions(s.libs.libs)
}

// CountFunctions returns the number of functions in libraries.
func CountFunctions(libs []*Library) (n int) {
	for _, lib := range libs {
		n += len(lib.Functions)
	}
	return n
}

// Libraries returns the function libraries, sorted by name. The caller must not change the list.
func (t *Txn) Libraries() []*Library { return t.libraries().libs }

// Library returns a function library by name, or nil.
func (t *Txn) Library(name string) *Library {
	set := t.libraries()
	if i, ok := set.find(name); ok {
		return set.libs[i]
	}
	return nil
}

// Function finds a function by its name, in any case, or returns nil.
func (t *Txn) Function(name string) (*Library, *Function) {
	set := t.libraries()
	i, ok := set.findFunction(strings.ToLower(name))
	if !ok {
		return nil, nil
	}
	p := set.functions[i]
	return p.lib, &p.lib.Functions[p.at]
}

func (t *Txn) libraries() *librarySet {
	if t.libs != nil {
		return t.libs
	}
	return t.s.libs
}

func (t *Txn) setLibraries(next *librarySet) {
	old := t.libs
	t.undo(func() { t.libs = old })
	t.size += next.size() - t.libraries().size()
	t.libs = next
}

// LoadLibrary adds a function library or replaces the one of the same name. No other library may
// have a function of the same name.
func (t *Txn) LoadLibrary(lib *Library) {
	t.ws.begin(opLibraryLoad, t.ws.db)
	t.ws.buf = appendLibrary(t.ws.buf, lib)
	t.setLibraries(t.libraries().with(lib))
}

// DeleteLibrary deletes a function library; it must exist.
func (t *Txn) DeleteLibrary(name string) {
	t.ws.begin(opLibraryDelete, t.ws.db)
	t.ws.str(name)
	t.setLibraries(t.libraries().without(name))
}

// FlushLibraries deletes all function libraries.
func (t *Txn) FlushLibraries() {
	if len(t.libraries().libs) == 0 {
		return
	}
	t.ws.begin(opLibraryFlush, t.ws.db)
	t.setLibraries(noLibraries)
}

// The primitive writes of libraries (see writeset.go).
const (
	opLibraryLoad   op = 29
	opLibraryDelete op = 30
	opLibraryFlush  op = 31
)

// applyLibrary applies a write to the function libraries. It returns false for any other operation.
func (s *Store) applyLibrary(o op, d *decoder) bool {
	switch o {
	case opLibraryLoad:
		if lib := d.library(); !d.Bad {
			s.libs = s.libs.with(lib)
		}
	case opLibraryDelete:
		if name := d.Str(); !d.Bad {
			s.libs = s.libs.without(name)
		}
	case opLibraryFlush:
		s.libs = noLibraries
	default:
		return false
	}
	return true
}

// appendLibrary encodes a library as the arguments of operation 29.
func appendLibrary(b []byte, lib *Library) []byte {
	str := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	str(lib.Name)
	str(lib.Code)
	b = binary.AppendUvarint(b, uint64(len(lib.Functions)))
	for _, f := range lib.Functions {
		str(f.Name)
		b = binary.AppendUvarint(b, uint64(Flag(f.Described).Int))
		str(f.Description)
		b = binary.AppendUvarint(b, uint64(f.Flags))
	}
	return b
}

func (d *decoder) library() *Library {
	lib := &Library{Name: strings.Clone(d.Str()), Code: strings.Clone(d.Str())}
	for n := d.int(); n != 0 && !d.Bad; n-- {
		f := Function{Name: strings.Clone(d.Str()), Described: d.int() != 0, Description: strings.Clone(d.Str())}
		flags := d.int()
		d.Bad = d.Bad || flags < 0 || flags >= 1<<len(functionFlags)
		f.Flags = FunctionFlags(flags)
		lib.Functions = append(lib.Functions, f)
	}
	d.Bad = d.Bad || len(lib.Functions) == 0
	return lib
}
