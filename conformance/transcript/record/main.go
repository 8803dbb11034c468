// Command record writes the golden replies of the transcripts. It plays every file against a redis-server of its own and puts the
// replies into the file. With -check it only compares the replies.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/conformance/transcript"
	"github.com/lockstep-io/lockstep/conformance/transcript/redisd"
)

const usage = `usage: record [-check] [-dir DIR] [file.txt ...]

Plays the transcripts (all under DIR if none is named) against redis-server %s, which must be on PATH, and writes
its replies into them. Run it from the module's root:

    go run ./conformance/transcript/record

With -addr it compares with the server that listens there, whatever it is. THAT SERVER IS EMPTIED.

`

func main() {
	check := flag.Bool("check", false, "compare only; change no file")
	dir := flag.String("dir", "conformance/transcript/testdata", "directory of the transcripts")
	workers := flag.Int("servers", 4, "number of redis-servers to use at once")
	addr := flag.String("addr", "", "compare with the server at this address, and empty it")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), usage, redisd.Version)
		flag.PrintDefaults()
	}
	flag.Parse()
	var err error
	if *addr != "" {
		err = compare(*addr, *dir, flag.Args())
	} else {
		err = run(*check, *dir, *workers, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func run(check bool, dir string, workers int, files []string) error {
	bin, version, err := redisd.Find()
	if err != nil {
		return err
	}
	fmt.Printf("redis-server %s\n", version)
	if version != redisd.Version {
		return fmt.Errorf("golden replies come from redis-server %s only, not from %s", redisd.Version, version)
	}
	if len(files) == 0 {
		if files, err = find(dir); err != nil {
			return err
		}
	}
	return each(bin, files, workers, func(s *redisd.Server, path string) error {
		if check {
			return checkFile(s, path)
		}
		return recordFile(s, path)
	})
}

// elsewhere is the address of a server that somebody else has started.
type elsewhere string

func (addr elsewhere) Dial() (net.Conn, error) { return net.Dial("tcp", string(addr)) }
func (elsewhere) Advance(d time.Duration)      { time.Sleep(d) }

// compare plays the files against the server at addr, one after the other, and prints what differs.
func compare(addr, dir string, files []string) (err error) {
	if len(files) == 0 {
		if files, err = find(dir); err != nil {
			return err
		}
	}
	failed := 0
	for _, path := range files {
		switch err := checkFile(elsewhere(addr), path); {
		case errors.Is(err, transcript.ErrNotConfigurable):
			fmt.Println("skipped", path)
		case err != nil:
			failed++
			fmt.Println(err)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d files differ", failed, len(files))
	}
	return nil
}

// find lists the transcripts under dir.
func find(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".txt" {
			files = append(files, path)
		}
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no transcripts under %s", dir)
	}
	return files, err
}

// each distributes the files over several workers, each with its own redis-server. It joins the errors of the workers.
func each(bin string, files []string, workers int, do func(*redisd.Server, string) error) error {
	var (
		mu   sync.Mutex
		errs []error
		wg   sync.WaitGroup
	)
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	}
	queue := make(chan string, len(files))
	for _, f := range files {
		queue <- f
	}
	close(queue)
	for range min(workers, len(files)) {
		wg.Go(func() {
			s, err := redisd.Start(bin)
			if err != nil {
				fail(err)
				return
			}
			for path := range queue {
				if err := do(s, path); err != nil {
					fail(err)
				}
			}
			if err := s.Close(); err != nil {
				fail(err)
			}
		})
	}
	wg.Wait()
	if len(errs) == 0 && len(queue) > 0 {
		return fmt.Errorf("%d files were not played", len(queue))
	}
	return errors.Join(errs...)
}

func load(path string) (*transcript.File, []byte, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	f, err := transcript.Parse(path, src)
	return f, src, err
}

func recordFile(s *redisd.Server, path string) error {
	f, src, err := load(path)
	if err != nil {
		return err
	}
	before, err := s.Settings()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := transcript.Record(f, s); err != nil {
		return err
	}
	after, err := s.Settings()
	if err != nil {
		return fmt.Errorf("%s leaves a server that does not show its settings: %w", path, err)
	}
	if before != after {
		return fmt.Errorf("%s leaves changed settings behind", path)
	}
	out := f.Format()
	if bytes.Equal(src, out) {
		return nil
	}
	fmt.Println("wrote", path)
	return os.WriteFile(path, out, 0o644)
}

func checkFile(s transcript.Target, path string) error {
	f, _, err := load(path)
	if err != nil {
		return err
	}
	diffs, err := transcript.Check(f, s)
	for _, d := range diffs {
		err = errors.Join(err, errors.New(d.String()))
	}
	return err
}
