package crashdisk

import (
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
)

// Gate has the machine's files, but no sync reaches the disk. File.SyncData waits while the gate is shut.
type Gate struct {
	UnsyncedFiles
	mu    sync.Mutex
	shut  chan struct{} // closed when the gate opens; nil: the gate is open
	takes time.Duration // how long each SyncData sleeps
	fails error         // what each SyncData returns
}

// Shut makes each later SyncData wait until LetGo.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = make(chan struct{})
}

// LetGo opens the gate, which must be shut. All waiting and later calls of SyncData return err.
func (g *Gate) LetGo(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fails = err
	close(g.shut)
	g.shut = nil
}

// Slow makes each SyncData take at least d.
func (g *Gate) Slow(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.takes = d
}

func (g *Gate) pass() error {
	g.mu.Lock()
	shut, takes := g.shut, g.takes
	g.mu.Unlock()
	time.Sleep(takes)
	if shut != nil {
		<-shut
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fails
}

func (g *Gate) Create(path string) (datadir.File, error) {
	return g.gated(g.UnsyncedFiles.Create(path))
}
func (g *Gate) Open(path string) (datadir.File, error) { return g.gated(g.UnsyncedFiles.Open(path)) }
func (g *Gate) gated(f datadir.File, err error) (datadir.File, error) {
	return gatedFile{f, g}, err
}

type gatedFile struct {
	datadir.File
	g *Gate
}

func (f gatedFile) SyncData() error { return f.g.pass() }

// UnsyncedFiles are files without syncs, for bubbles of testing/synctest: no power fails there, and a sync would take real time.
type UnsyncedFiles struct{ SystemFiles }

func (f UnsyncedFiles) Create(path string) (datadir.File, error) {
	return unsynced(f.SystemFiles.Create(path))
}
func (f UnsyncedFiles) Open(path string) (datadir.File, error) {
	return unsynced(f.SystemFiles.Open(path))
}
func (UnsyncedFiles) SyncDir(string) error { return nil }

type unsyncedFile struct{ datadir.File }

func (unsyncedFile) Sync() error     { return nil }
func (unsyncedFile) SyncData() error { return nil }

func unsynced(f datadir.File, err error) (datadir.File, error) { return unsyncedFile{f}, err }

// SystemFiles are the machine's files.
type SystemFiles struct{}

func (SystemFiles) Create(path string) (datadir.File, error) {
	return datadir.SystemDisk().Create(path)
}
func (SystemFiles) Open(path string) (datadir.File, error) { return datadir.SystemDisk().Open(path) }
func (SystemFiles) Mkdir(path string) error                { return datadir.SystemDisk().Mkdir(path) }
func (SystemFiles) Rename(from, to string) error           { return datadir.SystemDisk().Rename(from, to) }
func (SystemFiles) Remove(path string) error               { return datadir.SystemDisk().Remove(path) }
func (SystemFiles) SyncDir(path string) error              { return datadir.SystemDisk().SyncDir(path) }
func (SystemFiles) Free(dir string) (int64, error)         { return datadir.SystemDisk().Free(dir) }
