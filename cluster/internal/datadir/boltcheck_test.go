package datadir

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// damageAt changes a file as disks and operators do, in bytes that are in use.
func damageAt(r *rand.Rand, b []byte) string {
	var used []int
	for i, c := range b {
		if c != 0 {
			used = append(used, i)
		}
	}
	at := used[r.IntN(len(used))]
	part := b[at:min(len(b), at+[]int{1, 8, 512, 4096}[r.IntN(4)])]
	kind := []string{"flip", "zero", "garbage", "head", "exchange"}[r.IntN(5)]
	switch kind {
	case "flip":
		b[at] ^= 1 << r.IntN(8)
	case "zero":
		clear(part)
	case "garbage":
		for i := range part {
			part[i] = byte(r.Uint32())
		}
	case "head": // a bit in the head of a page or in its first elements
		b[at&^4095+r.IntN(128)] ^= 1 << r.IntN(8)
	case "exchange":
		other := used[r.IntN(len(used))] &^ 511
		here := at &^ 511
		was := bytes.Clone(b[here : here+512])
		copy(b[here:here+512], b[other:other+512])
		copy(b[other:other+512], was)
	}
	return fmt.Sprintf("%s of %d bytes at %d", kind, len(part), at)
}

// After random damage to a file of bbolt, a start advises in one line, or has all data. bbolt never panics.
func TestDamagedBolt(t *testing.T) {
	const last = 300 // so many that the tree of the entries has branches
	for file, kind := range map[string]string{boltFile: LogBolt, "log/wal-meta.db": LogWAL} {
		disk := SystemDisk()
		disk.Files, disk.SegmentSize = unsyncedFiles{}, 4096
		open := func(dir string) (*Dir, error) {
			return Open(dir, Options{Disk: disk, ID: "n1", LogStore: kind, Lines: hclog.NewNullLogger()})
		}
		dir := t.TempDir()
		st, err := open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(writeEntries(st, 1, last-5), writeEntries(st, last-4, last), st.Stable.SetUint64([]byte(currentTerm), last), st.Finish("", false)); err != nil {
			t.Fatal(err)
		}
		st.Close()
		whole, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		refused := 0
		for seed := range uint64(200) {
			b := bytes.Clone(whole)
			what := fmt.Sprintf("%s, seed %d: %s", file, seed, damageAt(rand.New(rand.NewPCG(seed, 1)), b))
			copied := filepath.Join(t.TempDir(), "data") // a new one, because a panic of bbolt that is recovered leaves the file locked
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			overwrite(t, filepath.Join(copied, file), b)
			st, err := open(copied)
			if err != nil {
				refused++
				if got := err.Error(); !strings.Contains(got, "is damaged (") || !strings.Contains(got, filepath.Dir(file)) || !strings.Contains(got, AdviceRejoin) || strings.Contains(got, "\n") {
					t.Errorf("%s: %v", what, err)
				}
				continue
			}
			if err := goesOn(st, last); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			st.Close()
		}
		if refused < 50 {
			t.Errorf("%s: only %d starts were refused", file, refused)
		}
	}
}

// writeEntries appends the entries from first to last in one step.
func writeEntries(d *Dir, first, last uint64) error {
	var logs []*raft.Log
	for i := first; i <= last; i++ {
		logs = append(logs, written(i))
	}
	return d.Log.StoreLogs(logs)
}

// goesOn fails if an opened directory lacks one of the entries up to last without an error, or if its log cannot be used.
func goesOn(d *Dir, last uint64) error {
	if got, err := d.Log.LastIndex(); err != nil || got != last {
		return fmt.Errorf("the log ends at entry %d, %w", got, err)
	}
	for i := uint64(1); i <= last; i++ {
		var l raft.Log
		if err := d.Log.Read(i, &l); err != nil {
			continue // it is found
		}
		if err := sameAsWritten(&l); err != nil {
			return err
		}
	}
	if err := writeEntries(d, last+1, last+1); err != nil {
		return err
	}
	return d.Log.shorten(1, last)
}

// TestSoundBolt: whatever bbolt writes passes the check.
func TestSoundBolt(t *testing.T) {
	for _, options := range []*bbolt.Options{{NoSync: true, NoFreelistSync: true}, {NoSync: true}} {
		r := rand.New(rand.NewPCG(1, 2))
		path := filepath.Join(t.TempDir(), "db")
		for range 30 {
			db, err := bbolt.Open(path, 0o600, options)
			if err != nil {
				t.Fatal(err)
			}
			err = db.Update(func(tx *bbolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte{byte(r.IntN(3))})
				for range r.IntN(500) {
					key := binary.BigEndian.AppendUint64(nil, r.Uint64N(1500))
					if r.IntN(2) == 0 {
						err = errors.Join(err, b.Put(key, make([]byte, r.IntN(200)*r.IntN(60))))
					} else {
						err = errors.Join(err, b.Delete(key))
					}
				}
				return err
			})
			if err := errors.Join(err, db.Close(), checkBolt(path)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// sparsePage has one page and then nothing but zeros. It notes how many bytes are read at once.
type sparsePage struct {
	page []byte
	most int
}

func (f *sparsePage) ReadAt(b []byte, at int64) (int, error) {
	f.most = max(f.most, len(b))
	clear(b)
	if at == 2*4096 {
		copy(b, f.page)
	}
	return len(b), nil
}

// TestDamagedPageCount: a page that has a wrong number of further pages takes no memory for them.
func TestDamagedPageCount(t *testing.T) {
	page := make([]byte, 4096)
	page[0], page[10] = 2, 1 // its number, and one element
	element := page[boltHead:]
	element[4], element[8], element[12] = boltHead, 3, 5
	binary.LittleEndian.PutUint32(page[12:], 1<<18)
	for _, kind := range []byte{boltLeaf, boltFreelist} {
		page[8] = kind
		f := &sparsePage{page: page}
		c := boltCheck{file: f, size: 4096, used: make([]bool, 1<<20)}
		b, err := c.page(2)
		if err == nil && kind == boltLeaf {
			err = c.elements(2, b, nil, nil)
		}
		if err != nil || f.most > 4096 {
			t.Errorf("kind %d: read %d bytes at once, %v", kind, f.most, err)
		}
	}
}

// chain is a file in which each page is a branch with one element, the next page.
type chain struct{}

func (chain) ReadAt(b []byte, at int64) (int, error) {
	page := make([]byte, 4096)
	number := uint64(at / 4096)
	binary.LittleEndian.PutUint64(page, number)
	page[8], page[10] = boltBranch, 1
	element := page[boltHead:]
	element[0], element[4], element[boltHead] = boltHead, 1, 'k'
	binary.LittleEndian.PutUint64(element[8:], number+1)
	return copy(b, page), nil
}

// TestDeepBolt: a forged file has more levels than a goroutine's stack has room for.
func TestDeepBolt(t *testing.T) {
	c := boltCheck{file: chain{}, size: 4096, used: make([]bool, 1000)}
	if err := c.tree(2, nil, nil); err == nil || !strings.Contains(err.Error(), "too far from the root") {
		t.Errorf("%v after %d levels", err, c.depth)
	}
}
