package datadir

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// checkPlain fails if a directory or a subdirectory has a pipe or a device, or a link to one. A node that opens a pipe waits for
// its writer, and a device may have no end. checkPlain skips lost+found, and what this process has no right to read. An operator
// may have moved the log or the snapshots to another disk, and left a link to them; checkPlain follows such a link.
func checkPlain(dir string) error { return checkFiles(dir, ".", true) }

// checkFiles checks the part of the directory dir whose path within dir is the argument at. The argument follow says whether
// checkFiles follows a link that stands in the place of a directory of a node (ownFiles).
func checkFiles(dir, at string, follow bool) error {
	return fs.WalkDir(os.DirFS(filepath.Join(dir, at)), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // who opens the file reports the error, and what to do
		case e.IsDir() && e.Name() == lostAndFound:
			return fs.SkipDir
		}
		name = filepath.Join(at, name)
		info, err := os.Stat(filepath.Join(dir, name)) // follows links
		switch {
		case err != nil:
		case info.Mode()&(fs.ModeNamedPipe|fs.ModeDevice|fs.ModeIrregular) != 0:
			return fmt.Errorf("data directory %s: %s is no regular file: no node has made it; remove it, or name another directory with --data", dir, name)
		case follow && info.IsDir() && e.Type() == fs.ModeSymlink && slices.Contains(ownFiles, name):
			return checkFiles(dir, name, false)
		}
		return nil
	})
}

// maxSmall is the largest size in bytes of a file that readSmall reads. The files that nodes write have about a hundredth of this
// size.
const maxSmall = 1 << 20

// readSmall returns the content of a file that a node writes in one piece. It refuses a file of more than maxSmall bytes.
func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSmall+1))
	if err == nil && len(b) > maxSmall {
		return nil, fmt.Errorf("%s has more than %d bytes: a node writes less", path, maxSmall)
	}
	return b, err
}
