package store

// The serialized form of function libraries (FUNCTION DUMP): for each a type byte and the code as a string, then version and checksum
// (rdb.go). LibraryReader also accepts rdbOldLibrary, from before the release of Redis 7.0.
const (
	rdbLibrary    = 245
	rdbOldLibrary = 246
)

// DumpLibraries returns the serialized form of all function libraries. ok is false if it is too large for a reply.
func (c *Ctx) DumpLibraries() (dump string, ok bool) {
	libs, size := c.Libraries(), int64(0)
	for _, lib := range libs {
		size += int64(len(lib.Code))
	}
	w := newRDBWriter(c, size)
	for _, lib := range libs {
		if w.full() {
			break
		}
		w.b = append(w.b, rdbLibrary)
		w.string(lib.Code)
	}
	return w.finish()
}

// LibraryReader reads the code of the libraries in a serialized form, one after the other.
type LibraryReader struct {
	r      rdbReader
	larger Error // the error if the libraries exceed the limit for unpacking
}

// ReadLibraries checks the version and checksum of serialized libraries and returns a reader for
// them.
func (t *Txn) ReadLibraries(dump string) (*LibraryReader, Error) {
	text, ok := payload(dump)
	if !ok {
		return nil, ErrDumpChecksum
	}
	return &LibraryReader{rdbReader{b: stringBytes(text), room: t.unpackRoom()}, t.ErrTooBig()}, ""
}

// Next returns the code of the next library; more is false at the end and after an error.
func (l *LibraryReader) Next() (code string, more bool, err Error) {
	r := &l.r
	defer func() {
		if r.room < 0 {
			code, more, err = "", false, l.larger
		}
	}()
	if len(r.b) == 0 {
		return "", false, ""
	}
	switch r.take(1)[0] {
	case rdbLibrary:
		if code = r.string(); r.bad {
			return "", false, ErrDumpLibrary
		}
		return code, true, ""
	case rdbOldLibrary:
		code, err = r.oldLibrary()
		return code, err == "", err
	}
	return "", false, ErrDumpNoFunction
}

// oldLibrary reads a library in the old format and converts it. As in Redis, the description is lost.
func (r *rdbReader) oldLibrary() (code string, err Error) {
	name := r.string()
	if r.bad {
		return "", ErrDumpLibraryName
	}
	engine := r.string()
	if r.bad {
		return "", ErrDumpEngine
	}
	if described, _ := r.length(); described != 0 {
		if r.string(); r.bad {
			return "", ErrDumpDescription
		}
	}
	body := r.string()
	if r.bad {
		return "", ErrDumpBlob
	}
	return "#!" + engine + " name=" + name + "\n" + body, ""
}
