package store

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync"
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

// ParseFunctionFlag returns the flag with the given name, which must be in lower case.
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

// Function is the declaration of a function, without the code that Lua runs.
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

// librarySet holds the function libraries, a part of the replicated state. A change makes a copy, which shares the rest.
type librarySet struct {
	libs      *tree[*Library]
	functions *tree[functionPlace]
	list      func() []*Library // returns the libraries, sorted by name

	bytes      int64 // estimated memory of the libraries
	registered int   // the number of functions of all libraries
}

// functionPlace says in which library a function is. It has the name in lower case, because FCALL ignores
// case.
type functionPlace struct {
	name string
	lib  *Library
	at   int
}

var noLibraries = newLibrarySet()

func newLibrarySet() *librarySet {
	return librariesOf(
		newTree(func(a, b *Library) bool { return a.Name < b.Name }),
		newTree(func(a, b functionPlace) bool { return a.name < b.name }))
}

func librariesOf(libs *tree[*Library], functions *tree[functionPlace]) *librarySet {
	return &librarySet{libs: libs, functions: functions, list: sync.OnceValue(libs.Items)}
}

// copy returns a copy that the caller may change before it publishes the copy.
func (s *librarySet) copy() *librarySet {
	if s.libs.Len() == 0 {
		return newLibrarySet() // all stores share noLibraries, which must not change; but tree.Copy writes to the tree that it copies
	}
	next := librariesOf(s.libs.Copy(), s.functions.Copy())
	next.bytes, next.registered = s.bytes, s.registered
	return next
}

// size returns the estimated memory of the libraries.
func (s *librarySet) size() int64 { return s.bytes }

// size returns the estimated memory of a library. It counts the code twice, because each node also has the compiled code, which is
// about as large.
func (l *Library) size() int64 {
	n := entrySize + allocated(len(l.Name)) + 2*allocated(len(l.Code))
	for _, f := range l.Functions {
		n += entrySize + allocated(len(f.Name)) + allocated(len(f.Description))
	}
	return n
}

// count returns the numbers of libraries and functions.
func (s *librarySet) count() (libraries, functions int) { return s.libs.Len(), s.registered }

// find returns the library with the given name, or nil.
func (s *librarySet) find(name string) *Library {
	lib, _ := s.libs.Get(&Library{Name: name})
	return lib
}

// function finds a function by its name in lower case, or returns nil.
func (s *librarySet) function(lower string) (*Library, *Function) {
	p, ok := s.functions.Get(functionPlace{name: lower})
	if !ok {
		return nil, nil
	}
	return p.lib, &p.lib.Functions[p.at]
}

// without returns a copy of the set without a library.
func (s *librarySet) without(name string) *librarySet {
	gone := s.find(name)
	if gone == nil {
		return s
	}
	next := s.copy()
	next.remove(gone)
	return next
}

func (s *librarySet) remove(gone *Library) {
	s.libs.Delete(gone)
	s.bytes -= gone.size()
	s.registered -= len(gone.Functions)
	for at := range gone.Functions {
		place := functionPlace{name: strings.ToLower(gone.Functions[at].Name)}
		if p, ok := s.functions.Get(place); ok && p.lib == gone {
			s.functions.Delete(place)
		}
	}
}

// with returns a copy of the set with lib added. If two functions differ only in case, lookups find the first.
func (s *librarySet) with(lib *Library) *librarySet {
	next := s.copy()
	if old := s.find(lib.Name); old != nil {
		next.remove(old)
	}
	next.libs.Set(lib)
	next.bytes += lib.size()
	next.registered += len(lib.Functions)
	for at := range lib.Functions {
		place := functionPlace{strings.ToLower(lib.Functions[at].Name), lib, at}
		if _, taken := next.functions.Get(place); !taken {
			next.functions.Set(place)
		}
	}
	return next
}

// Libraries returns the number of function libraries and the number of functions.
func (s *Store) Libraries() (libraries, functions int) { return s.libs.count() }

// CountLibraries is Store.Libraries with the changes of the transaction.
func (t *Txn) CountLibraries() (libraries, functions int) { return t.libraries().count() }

// Libraries returns the function libraries, sorted by name. The caller must not change the list.
func (t *Txn) Libraries() []*Library { return t.libraries().list() }

// Library returns a function library by name, or nil.
func (t *Txn) Library(name string) *Library { return t.libraries().find(name) }

// Function finds a function by its name, in any case, or returns nil.
func (t *Txn) Function(name string) (*Library, *Function) {
	return t.libraries().function(strings.ToLower(name))
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

// LoadLibrary adds a library or replaces the one of its name. No function name of another library may occur in lib.
func (t *Txn) LoadLibrary(lib *Library) {
	t.ws.begin(opLibraryLoad, t.ws.db)
	t.ws.buf = appendLibrary(t.ws.buf, lib)
	t.setLibraries(t.libraries().with(lib))
}

// HasRoomForLibraries reports whether there is room for list, which replaces libraries of the same names or, if all is true, every library.
func (t *Txn) HasRoomForLibraries(list []*Library, all bool) bool {
	grow := int64(0)
	if all {
		grow = -t.libraries().size()
	}
	for _, lib := range list {
		grow += lib.size()
		if old := t.Library(lib.Name); old != nil && !all {
			grow -= old.size()
		}
	}
	return t.hasRoomForCode(grow)
}

// NewLibraries adds up the libraries that a command has made and not written yet.
type NewLibraries struct {
	size    int64
	written int
}

// Add adds a library, or returns an error if the new ones are too many for one command. Present libraries do not count.
func (n *NewLibraries) Add(t *Txn, lib *Library) Error {
	n.size += lib.size()
	n.written += lib.written()
	switch {
	case !t.hasRoomForCode(n.size - t.libraries().size()):
		return ErrTooMuchCode
	case !t.HasRoom(n.written):
		return t.ErrTooBig()
	}
	return ""
}

// written returns how many bytes of a log entry the library takes at least.
func (l *Library) written() int {
	n := len(l.Name) + len(l.Code)
	for _, f := range l.Functions {
		n += len(f.Name) + len(f.Description)
	}
	return n
}

// DeleteLibrary deletes a function library; it must exist.
func (t *Txn) DeleteLibrary(name string) {
	t.ws.begin(opLibraryDelete, t.ws.db)
	t.ws.str(name)
	t.setLibraries(t.libraries().without(name))
}

// FlushLibraries deletes all function libraries.
func (t *Txn) FlushLibraries() {
	if t.libraries().libs.Len() == 0 {
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

// appendLibrary encodes a library as the arguments of opLibraryLoad.
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
	d.Bad = d.Bad || lib.Code == "" || len(lib.Functions) == 0
	return lib
}
