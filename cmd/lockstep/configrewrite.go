package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/BurntSushi/toml"
)

// rewrite writes parameters into the table [parameters], and leaves all else as it is, comments too. Parameters are pairs of a name and a
// value. The file is replaced as a whole, so that a crash leaves the old one or the new one.
func (c *configFile) rewrite(pairs []string, fs *flag.FlagSet) error {
	path, err := filepath.EvalSymlinks(c.path)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var own, parameters []string
	for i := 0; i+1 < len(pairs); i += 2 {
		if fs.Lookup(pairs[i]) != nil {
			own = append(own, pairs[i], pairs[i+1])
		} else {
			parameters = append(parameters, pairs[i], pairs[i+1])
		}
	}
	if text, err = withKeys(text, "", own); err != nil {
		return err
	}
	text, err = withKeys(text, parametersTable, parameters)
	if err != nil {
		return err
	}
	if _, err := parseConfig(c.path, text, fs); err != nil {
		return fmt.Errorf("the file would not be read back: %w", err)
	}
	return replaceFile(path, text)
}

// withKeys returns the text of a file with keys in a table, "" for those above all tables.
func withKeys(text []byte, table string, pairs []string) ([]byte, error) {
	wanted := map[string]string{}
	var names []string
	for i := 0; i+1 < len(pairs); i += 2 {
		line, err := parameterLine(pairs[i], pairs[i+1])
		if err != nil {
			return nil, err
		}
		wanted[pairs[i]] = line
		names = append(names, pairs[i])
	}
	var out []string
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(text) == 0 {
		lines = nil
	}
	last, inside := -1, table == "" // last is the place behind the last line of the table
	if inside {
		last = 0
	}
	for _, line := range lines {
		if header := tableHeader([]byte(line)); header != "" {
			inside = header == table
		}
		if inside {
			if m := parameterKey.FindStringSubmatch(line); m != nil {
				if now, is := wanted[strings.ToLower(m[1])]; is {
					line = now + trailingComment(line)
					delete(wanted, strings.ToLower(m[1]))
				}
			}
		}
		out = append(out, line)
		if inside && strings.TrimSpace(line) != "" {
			last = len(out)
		}
	}
	var more []string
	for _, name := range names {
		if line, is := wanted[name]; is {
			more = append(more, line)
		}
	}
	if len(more) > 0 && last < 0 {
		out = append(out, "", "# Parameters of this node, written by CONFIG REWRITE.", "["+table+"]")
		last = len(out)
	}
	if len(more) > 0 {
		out = slices.Insert(out, last, more...)
	}
	return []byte(strings.Join(out, "\n") + "\n"), nil
}

var parameterKey = regexp.MustCompile(`^\s*["']?([\w-]+)["']?\s*=`)

var commented = regexp.MustCompile(`=\s*("[^"\\]*"|'[^']*'|[\w.+-]+)(\s*#.*)$`)

// trailingComment returns the comment behind a value, with the space in front.
func trailingComment(line string) string {
	if m := commented.FindStringSubmatch(line); m != nil {
		return m[2]
	}
	return ""
}

// parameterLine returns a line of the table.
func parameterLine(name, value string) (string, error) {
	var b bytes.Buffer
	if err := toml.NewEncoder(&b).Encode(map[string]string{name: value}); err != nil {
		return "", err
	}
	line := strings.TrimSpace(b.String())
	if strings.Contains(line, "\n") {
		return "", fmt.Errorf("the value of %s has several lines", name)
	}
	return line, nil
}

// replaceFile replaces a file, which keeps its rights.
func replaceFile(path string, text []byte) (err error) {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".lockstep-config-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if own, is := info.Sys().(*syscall.Stat_t); is && (int(own.Uid) != os.Geteuid() || int(own.Gid) != os.Getegid()) {
		if err := f.Chown(int(own.Uid), int(own.Gid)); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	_, werr := f.Write(text)
	if err := errors.Join(werr, f.Chmod(info.Mode().Perm()), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
