package datadir

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// checkBolt fails if damaged pages would make bbolt panic where nobody can recover, or with errInUse if another process has locked the
// file.
func checkBolt(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if err := readHead(path); err != nil {
		return err
	}
	// With these options, bbolt reads only the two meta pages here, and these have checksums.
	var f *os.File
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second, OpenFile: func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
		f, err = os.OpenFile(name, flag, mode)
		return f, err
	}})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return inUse(path)
	}
	if err != nil {
		return err
	}
	defer db.Close() // closes f, and so releases the lock
	// bbolt's own lock is shared. Some file systems refuse an exclusive lock on a read-only file, so only EWOULDBLOCK means another
	// process.
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == syscall.EWOULDBLOCK {
		return inUse(path)
	}
	return db.View(func(tx *bbolt.Tx) error {
		if tx.Size() > info.Size() {
			return fmt.Errorf("it has %d of %d bytes", info.Size(), tx.Size())
		}
		size := db.Info().PageSize
		c := boltCheck{file: f, size: int64(size), used: make([]bool, tx.Size()/int64(size))}
		if err := c.tree(uint64(tx.Cursor().Bucket().Root()), nil, nil); err != nil {
			return err
		}
		return c.freelist(uint64(tx.ID()))
	})
}

// readHead fails if the first page cannot be read. bbolt would call such a file damaged.
func readHead(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.ReadAt(make([]byte, 4096), 0)
	if err == io.EOF {
		err = nil // bbolt says that the file is too short
	}
	return err
}

// boltCheck reads the pages of a database of bbolt. A page is
//
//	+----------------+-------------+-------------+--------------------+----------+-----------------+
//	| its own number | flags: kind | elements    | further pages that | elements | keys and values |
//	| 8 bytes        | 2 bytes     | 2 bytes     | belong to it: 4    | 16 each  |                 |
//	+----------------+-------------+-------------+--------------------+----------+-----------------+
//
// in little endian, as on all machines that lockstep runs on.
type boltCheck struct {
	file io.ReaderAt
	size int64  // of a page
	used []bool // by number of a page: it has been read, or is free

	depth int // pages and buckets above the present one
}

const (
	boltHead = 16 // bytes of a page's head, of an element, and of a bucket

	boltBranch, boltLeaf, boltFreelist = 1, 2, 16 // kinds of pages
	boltBucket                         = 1        // flag of an element whose value is a bucket
	boltNoFreelist                     = math.MaxUint64

	// boltDepth is more levels than a database can have: each page of a branch has two elements or more.
	boltDepth = 64
)

var errBolt = errors.New("bbolt's pages")

func badPage(number uint64, why string) error {
	return fmt.Errorf("%w: page %d %s", errBolt, number, why)
}

// use marks a page as used or free. use fails if the page does not exist, or is marked already.
func (c *boltCheck) use(number uint64) error {
	if number < 2 || number >= uint64(len(c.used)) {
		return badPage(number, "does not exist")
	}
	if c.used[number] {
		return badPage(number, "is used twice")
	}
	c.used[number] = true
	return nil
}

// page returns the used bytes of a page and of its further pages, and no more: a damaged page may claim gigabytes.
func (c *boltCheck) page(number uint64) ([]byte, error) {
	if err := c.use(number); err != nil {
		return nil, err
	}
	head, err := c.read(number, boltHead)
	if err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint64(head) != number {
		return nil, badPage(number, "has the number of another")
	}
	more := uint64(binary.LittleEndian.Uint32(head[12:]))
	for i := range more {
		if err := c.use(number + 1 + i); err != nil {
			return nil, err
		}
	}
	size := (1 + more) * uint64(c.size)
	kind, count := binary.LittleEndian.Uint16(head[8:]), uint64(binary.LittleEndian.Uint16(head[10:]))
	end := uint64(c.size) // of what is in use
	switch {
	case kind == boltFreelist && count == math.MaxUint16:
		if head, err = c.read(number, boltHead+8); err != nil {
			return nil, err
		}
		end = max(end, boltHead+8+8*min(binary.LittleEndian.Uint64(head[boltHead:]), size/8))
	case kind == boltFreelist:
		end = max(end, boltHead+8*count)
	default:
		if head, err = c.read(number, min(boltHead*(1+count), size)); err != nil {
			return nil, err
		}
		for at := uint64(boltHead); at < uint64(len(head)); at += boltHead {
			place, key, value := boltElement(kind, head[at:])
			end = max(end, at+place+key+value)
		}
	}
	return c.read(number, min(end, size))
}

// read returns the first n bytes of a page.
func (c *boltCheck) read(number, n uint64) ([]byte, error) {
	b := make([]byte, n)
	_, err := c.file.ReadAt(b, int64(number)*c.size)
	return b, err
}

// boltElement returns the offset of an element's key, and the lengths of the key and of the value behind it (0 in a branch).
func boltElement(kind uint16, e []byte) (place, key, value uint64) {
	if kind == boltLeaf {
		e = e[4:]
		value = uint64(binary.LittleEndian.Uint32(e[8:]))
	}
	return uint64(binary.LittleEndian.Uint32(e)), uint64(binary.LittleEndian.Uint32(e[4:])), value
}

// tree checks a page and all pages below. The argument first is their first key; all keys are less than beyond. nil is not checked.
func (c *boltCheck) tree(number uint64, first, beyond []byte) error {
	b, err := c.page(number)
	if err != nil {
		return err
	}
	return c.elements(number, b, first, beyond)
}

// elements checks the elements of a page whose bytes are b, and all pages below these elements.
func (c *boltCheck) elements(number uint64, b, first, beyond []byte) error {
	if c.depth++; c.depth > boltDepth {
		return badPage(number, "is too far from the root")
	}
	defer func() { c.depth-- }()
	kind, count := binary.LittleEndian.Uint16(b[8:]), int(binary.LittleEndian.Uint16(b[10:]))
	if kind != boltBranch && kind != boltLeaf {
		return badPage(number, "is of another kind")
	}
	if count == 0 && (kind == boltBranch || first != nil) {
		return badPage(number, "has no elements")
	}
	if len(b) < boltHead*(1+count) {
		return badPage(number, "has too many elements")
	}
	var keys, values [][]byte // of a branch, the values are the numbers of pages
	for i := range count {
		at := boltHead * (1 + i)
		e := b[at : at+boltHead]
		place, length, rest := boltElement(kind, e)
		begin := uint64(at) + place
		end := begin + length
		if end+rest > uint64(len(b)) {
			return badPage(number, "has an element beyond its end")
		}
		key := b[begin:end]
		if i == 0 && first != nil && !bytes.Equal(key, first) || i > 0 && bytes.Compare(key, keys[i-1]) <= 0 || beyond != nil && bytes.Compare(key, beyond) >= 0 {
			return badPage(number, "has keys in the wrong order")
		}
		value := e[8:]
		if kind == boltLeaf {
			value = b[end : end+rest]
		}
		keys, values = append(keys, key), append(values, value)
	}
	for i, value := range values {
		var err error
		if kind == boltBranch {
			next := beyond
			if i+1 < count {
				next = keys[i+1]
			}
			err = c.tree(binary.LittleEndian.Uint64(value), keys[i], next)
		} else if flags := binary.LittleEndian.Uint32(b[boltHead*(1+i):]); flags == boltBucket {
			err = c.bucket(number, value)
		} else if flags != 0 {
			err = badPage(number, "has an element of another kind")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket checks a bucket in a page. b has the number of its first page, a counter and, if that number is 0, its elements.
func (c *boltCheck) bucket(number uint64, b []byte) error {
	if len(b) < boltHead {
		return badPage(number, "has a bucket that is cut short")
	}
	if root := binary.LittleEndian.Uint64(b); root != 0 {
		return c.tree(root, nil, nil)
	}
	if b = b[boltHead:]; len(b) < boltHead || binary.LittleEndian.Uint16(b[8:]) != boltLeaf {
		return badPage(number, "has a bucket that is cut short")
	}
	return c.elements(number, b, nil, nil)
}

// freelist checks the list of free pages, if the transaction with this number has written one.
func (c *boltCheck) freelist(transaction uint64) error {
	meta := make([]byte, 9*8)
	if _, err := c.file.ReadAt(meta, int64(transaction%2)*c.size); err != nil {
		return err
	}
	if binary.LittleEndian.Uint64(meta[boltHead+48:]) != transaction {
		return badPage(transaction%2, "is of another transaction")
	}
	number := binary.LittleEndian.Uint64(meta[boltHead+32:])
	if number == boltNoFreelist {
		return nil
	}
	b, err := c.page(number)
	if err != nil {
		return err
	}
	if binary.LittleEndian.Uint16(b[8:]) != boltFreelist {
		return badPage(number, "is of another kind")
	}
	count, list := uint64(binary.LittleEndian.Uint16(b[10:])), b[boltHead:]
	if count == math.MaxUint16 { // there are more: their number comes first
		count, list = binary.LittleEndian.Uint64(list), list[8:]
	}
	if count > uint64(len(list)/8) {
		return badPage(number, "has too many elements")
	}
	for i := range count {
		if err := c.use(binary.LittleEndian.Uint64(list[8*i:])); err != nil {
			return err
		}
	}
	return nil
}
