package datadir

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// checkPlain fails if a directory has a pipe or a device, which may have no end. It follows links that replace the node's directories.
func checkPlain(dir string) error { return checkFiles(dir, ".", true) }

// checkFiles checks what is in dir at the relative path at. If follow is true, it follows links in the place of ownFiles.
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
