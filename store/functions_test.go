package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func library(name string, functions ...string) *Library {
	lib := &Library{Name: name, Code: "#!lua name=" + name + "\n-- " + strings.Join(functions, " ")}
	for i, f := range functions {
		lib.Functions = append(lib.Functions, Function{Name: f, Described: i%2 == 1, Description: strings.Repeat("d", i),
			Flags: FunctionFlags(i * 7 % (1 << len(functionFlags)))})
	}
	return lib
}

// libraryState describes the libraries of a transaction and says in which library each function is found.
func libraryState(txn *Txn) string {
	var b strings.Builder
	for _, lib := range txn.Libraries() {
		fmt.Fprintf(&b, "%s %q %v;", lib.Name, lib.Code, lib.Functions)
	}
	for _, name := range []string{"f", "F", "g", "h", "nosuch"} {
		if lib, fn := txn.Function(name); fn != nil {
			fmt.Fprintf(&b, " %s=%s.%s", name, lib.Name, fn.Name)
		}
	}
	return b.String()
}

func TestLibraries(t *testing.T) {
	d := newTestDB(t)
	txn := d.begin()
	txn.LoadLibrary(library("b", "g"))
	txn.LoadLibrary(library("a", "f", "F", "x"))
	if lib, fn := txn.Function("F"); lib.Name != "a" || fn.Name != "f" {
		t.Errorf("of two functions that differ in case the first is found, not %s.%s", lib.Name, fn.Name)
	}
	before := libraryState(txn)
	d.apply(txn)
	if got := libraryState(d.begin()); got != before {
		t.Errorf("applied:\n%s\nwas\n%s", got, before)
	}

	// After a rollback, nothing is left of the changes.
	txn = d.begin()
	sp := txn.Savepoint()
	txn.LoadLibrary(library("a", "h"))
	txn.DeleteLibrary("b")
	txn.FlushLibraries()
	txn.LoadLibrary(library("c", "f"))
	txn.Rollback(sp)
	if got := libraryState(txn); got != before || txn.Writes().Len() != 0 {
		t.Errorf("after a rollback: %d writes\n%s\nwas\n%s", txn.Writes().Len(), got, before)
	}

	// When a library is replaced, its functions are removed.
	txn.LoadLibrary(library("a", "h"))
	if _, fn := txn.Function("f"); fn != nil {
		t.Error("a function of the replaced library is still there")
	}
	if lib := d.begin().Library("a"); len(lib.Functions) != 3 {
		t.Error("a pending write has changed what is committed")
	}
	d.apply(txn)
	txn = d.begin()
	txn.DeleteLibrary("a")
	d.apply(txn)
	if got := len(d.begin().Libraries()); got != 1 {
		t.Errorf("%d libraries are left, want 1", got)
	}
	txn = d.begin()
	txn.FlushLibraries()
	txn.FlushLibraries() // the second flush writes nothing
	if n := txn.Writes().Len(); n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
	d.apply(txn)
	if got := libraryState(d.begin()); got != "" {
		t.Errorf("after a flush: %s", got)
	}
}

// TestManyFunctions: a new function or library does not move those that sort behind it.
func TestManyFunctions(t *testing.T) {
	const many, libraries = 50_000, 8_000
	large := &Library{Name: "large", Code: "code"}
	for i := range many {
		large.Functions = append(large.Functions, Function{Name: fmt.Sprint("F", 2*many-i)})
	}
	d := newTestDB(t)
	txn := d.begin()
	txn.LoadLibrary(large)
	for i := range libraries {
		txn.LoadLibrary(library(fmt.Sprint("l", libraries-i), fmt.Sprint("g", i)))
	}
	d.apply(txn)
	txn = d.begin()
	if lib, fn := txn.Function(fmt.Sprint("f", many+1)); lib == nil || lib.Name != "large" || fn.Name != fmt.Sprint("F", many+1) {
		t.Error("a function is not found")
	}
	for i := range libraries {
		txn.DeleteLibrary(fmt.Sprint("l", i+1))
	}
	txn.DeleteLibrary("large")
	d.apply(txn)
	if libs, functions := d.s.Libraries(); libs != 0 || functions != 0 || d.s.libs.functions.Len() != 0 {
		t.Errorf("%d libraries with %d functions are left", libs, functions)
	}
}

// TestLibrariesReplicate: a replica, and a store restored from a snapshot, have the same bytes.
func TestLibrariesReplicate(t *testing.T) {
	g := rand.New(rand.NewPCG(7, 7))
	d, replica := newTestDB(t), New()
	names := []string{"a", "b", "c", "d"}
	for range 300 {
		txn := d.begin()
		sp := txn.Savepoint()
		for range 1 + g.IntN(4) {
			name := names[g.IntN(len(names))]
			switch g.IntN(8) {
			case 0:
				txn.FlushLibraries()
			case 1, 2:
				if txn.Library(name) != nil {
					txn.DeleteLibrary(name)
				}
			default:
				txn.LoadLibrary(library(name, "f"+name, strings.Repeat("x", 1+g.IntN(3))+name))
			}
		}
		if g.IntN(3) == 0 {
			txn.Rollback(sp)
		} else {
			txn.Release(sp)
		}
		writes, want := bytes.Clone(txn.Writes().Bytes()), libraryState(txn)
		d.apply(txn)
		if len(writes) > 0 {
			if err := replica.Apply(writes, d.seq, nil); err != nil {
				t.Fatal(err)
			}
		}
		if got := libraryState(d.begin()); got != want {
			t.Fatalf("applied:\n%s\nevaluated:\n%s", got, want)
		}
		snap := encodeSnapshot(t, d.s)
		if !bytes.Equal(snap, encodeSnapshot(t, replica)) {
			t.Fatal("a replica differs")
		}
		again, err := Restore(bytes.NewReader(snap))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(snap, encodeSnapshot(t, again)) {
			t.Fatal("a restored store differs")
		}
	}
}

func encodeSnapshot(t *testing.T, s *Store) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Snapshot().Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestGoldenLibraries(t *testing.T) {
	d := newTestDB(t)
	txn := d.begin()
	txn.LoadLibrary(library("gone", "g"))
	txn.FlushLibraries()
	txn.LoadLibrary(library("lib", "one", "two"))
	txn.LoadLibrary(library("deleted", "three"))
	txn.DeleteLibrary("deleted")
	golden(t, "writeset-libraries.golden", txn.Writes().Bytes())
	d.apply(txn)
	golden(t, "snapshot-libraries.golden", encodeSnapshot(t, d.s))
}

func TestCorruptLibraries(t *testing.T) {
	whole := appendLibrary([]byte{byte(opLibraryLoad)}, library("lib", "one", "two"))
	for n := 1; n < len(whole); n++ {
		if err := New().Apply(whole[:n], 1, nil); err == nil {
			t.Errorf("the first %d of %d bytes are taken for a write", n, len(whole))
		}
	}
	flags := bytes.Clone(whole)
	flags[len(flags)-1] = 1 << len(functionFlags)
	for name, b := range map[string][]byte{
		"unknown flags": flags,
		"no functions":  appendLibrary([]byte{byte(opLibraryLoad)}, library("lib")),
		"many missing":  append(appendLibrary([]byte{byte(opLibraryLoad)}, library("lib"))[:len("?lib#!lua name=lib\n-- ")+2], 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1),
	} {
		if err := New().Apply(b, 1, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzReadLibraries reads arbitrary bytes as serialized libraries. If they can be read, the libraries are written, and must be the
// same when they are read again.
func FuzzReadLibraries(f *testing.F) {
	d := newTestDB(f)
	txn := d.begin()
	txn.LoadLibrary(library("a", "f"))
	txn.LoadLibrary(&Library{Name: "long", Code: "#!lua name=long\n" + strings.Repeat("abc ", 40), Functions: []Function{{Name: "l"}}})
	dump, _ := (&Ctx{Txn: txn}).DumpLibraries()
	f.Add([]byte(dump[:len(dump)-rdbFooter]))
	f.Add([]byte("\xf6\x01x\x03LUA\x00\x04code"))
	f.Add([]byte("\xf6\x01x\x03LUA\x01\x04desc\x04code"))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := txn.ReadLibraries(seal(body))
		if err != "" {
			t.Fatal(err)
		}
		w := &rdbWriter{c: &Ctx{Txn: txn}}
		var codes []string
		for {
			code, more, err := r.Next()
			if err != "" {
				return
			}
			if !more {
				break
			}
			codes = append(codes, code)
			w.b = append(w.b, rdbLibrary)
			w.string(code)
		}
		again, err := txn.ReadLibraries(seal(w.b))
		if err != "" {
			t.Fatal(err)
		}
		for i, want := range codes {
			if got, more, err := again.Next(); got != want || !more || err != "" {
				t.Fatalf("library %d is %q, %v, %s; was %q", i, got, more, err, want)
			}
		}
	})
}
