package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"lockstep/cluster"
	"lockstep/cmd/lockstep/internal/bridge"
	"lockstep/luavm"
	"lockstep/server"
	"lockstep/store"
)

// The configuration file of a node (--config) is in TOML. Its keys are the names of flags, which override it, as the environment does. The
// table [parameters] has parameters of CONFIG SET that belong to the node; CONFIG REWRITE writes them there.

// mostConfig is how large a configuration file may be.
const mostConfig = 1 << 20

// parametersTable is the name of the table of parameters.
const parametersTable = "parameters"

// setting is a key of a configuration file with its value.
type setting struct {
	name, value string
	line        int
}

// configFile is what a configuration file says.
type configFile struct {
	path       string
	flags      []setting // in the order of the file
	parameters []setting
	secret     string   // a key with a secret, if others than the owner may read the file
	args       []string // the command line
}

// configPath returns the configuration file that the command line or the environment names; "" if neither does.
func configPath(args []string) string {
	path := os.Getenv(envName("config"))
	for i, arg := range args {
		name := strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-")
		if arg == "--" || name == arg {
			continue
		}
		if name, value, with := strings.Cut(name, "="); name == "config" && with {
			path = value
		} else if name == "config" && i+1 < len(args) {
			path = args[i+1]
		}
	}
	return path
}

// readConfig reads a configuration file. fs has the flags that it may set.
func readConfig(path string, fs *flag.FlagSet) (*configFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostConfig+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > mostConfig:
		return nil, fmt.Errorf("%s is larger than 1 MB: this is no configuration file", path)
	}
	c, err := parseConfig(path, text, fs)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.Mode().Perm()&0o077 != 0 {
		for _, s := range c.flags {
			if secretFlags[s.name] {
				c.secret = s.name
			}
		}
	}
	return c, nil
}

func parseConfig(path string, text []byte, fs *flag.FlagSet) (*configFile, error) {
	var values map[string]any
	meta, err := toml.Decode(string(text), &values)
	if parsing, is := errors.AsType[toml.ParseError](err); is {
		return nil, fmt.Errorf("%s:%d: %s", path, parsing.Position.Line, parsing.Message)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c := &configFile{path: path}
	var faults error
	fault := func(s setting, format string, args ...any) {
		faults = errors.Join(faults, fmt.Errorf("%s:%d: %s: %w", path, s.line, s.name, fmt.Errorf(format, args...)))
	}
	for _, key := range meta.Keys() {
		table := meta.Type(key...) == "Hash" || meta.Type(key...) == "ArrayHash"
		switch {
		case len(key) == 1 && key[0] == parametersTable:
			if meta.Type(key...) != "Hash" {
				fault(setting{name: key[0], line: lineOf(text, key)}, "want a table, [parameters]")
			}
			continue
		case table:
			fault(setting{name: key.String(), line: lineOf(text, key)}, "there are no tables but [parameters]: give flags their whole names")
			continue
		case len(key) > 1 && key[0] != parametersTable, len(key) > 2:
			continue // a part of such a table
		}
		s := setting{name: key[len(key)-1], line: lineOf(text, key)}
		in := values
		if len(key) == 2 {
			in, _ = values[parametersTable].(map[string]any)
		}
		var ok bool
		if s.value, ok = configValue(in[s.name]); !ok {
			fault(s, "want a text, a number, true or false, or a list of texts")
			continue
		}
		switch {
		case len(key) == 2:
			c.parameters = append(c.parameters, s)
		case fs.Lookup(s.name) == nil || s.name == "config" || s.name == "config-check":
			fault(s, "%s", unknownKey(s.name, fs))
		default:
			c.flags = append(c.flags, s)
		}
	}
	return c, faults
}

// unknownKey says what is wrong with a key that is no flag.
func unknownKey(name string, fs *flag.FlagSet) string {
	var names []string
	fs.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	if near := nearest(name, names); near != "" && near != name {
		return "no flag of lockstep serve has this name: did you mean " + near + "?"
	}
	return "no flag of lockstep serve has this name, or it cannot be in the file; `lockstep help` lists the flags, and parameters of CONFIG SET belong to [parameters]"
}

// configValue returns a value as a flag takes it.
func configValue(v any) (text string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case int64:
		return strconv.FormatInt(v, 10), true
	case bool:
		return strconv.FormatBool(v), true
	case []any:
		var words []string
		for _, e := range v {
			word, is := e.(string)
			if !is {
				return "", false
			}
			words = append(words, word)
		}
		return strings.Join(words, ","), true
	}
	return "", false
}

// lineOf returns the line of a key, 0 if it does not begin its line.
func lineOf(text []byte, key toml.Key) int {
	name := regexp.QuoteMeta(key[len(key)-1])
	inside := regexp.MustCompile(`^\s*(\[\[?\s*)?["']?` + name + `["']?\s*[=\].]`)
	table := len(key) == 1
	for i, line := range bytes.Split(text, []byte("\n")) {
		if header := tableHeader(line); header != "" && len(key) > 1 {
			table = header == key[0]
		}
		if table && inside.Match(line) {
			return i + 1
		}
	}
	return 0
}

var headerLine = regexp.MustCompile(`^\s*\[\s*["']?([\w.-]+)["']?\s*\]\s*(#.*)?$`)

// tableHeader returns the name of the table that begins with a line, or "".
func tableHeader(line []byte) string {
	if m := headerLine.FindSubmatch(bytes.TrimSuffix(line, []byte("\r"))); m != nil {
		return string(m[1])
	}
	return ""
}

// apply sets the flags.
func (c *configFile) apply(fs *flag.FlagSet) (faults error) {
	for _, s := range c.flags {
		if err := fs.Set(s.name, s.value); err != nil {
			// The error does not repeat the value, because it may be a password.
			faults = errors.Join(faults, fmt.Errorf("%s:%d: %s: %w", c.path, s.line, s.name, err))
		}
	}
	return faults
}

// values returns what the file says, by name; parameters have the name of their table in front.
func (c *configFile) values() map[string]string {
	all := map[string]string{}
	for _, s := range c.flags {
		all[s.name] = s.value
	}
	for _, s := range c.parameters {
		all[parametersTable+"."+s.name] = s.value
	}
	return all
}

// changedFrom returns the names of what the file says otherwise than it did, sorted.
func (c *configFile) changedFrom(before *configFile) (names []string) {
	old, now := before.values(), c.values()
	for name := range maps.Keys(now) {
		if value, was := old[name]; !was || value != now[name] {
			names = append(names, name)
		}
	}
	for name := range maps.Keys(old) {
		if _, is := now[name]; !is {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

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
	text, err = withParameters(text, pairs)
	if err != nil {
		return err
	}
	if _, err := parseConfig(c.path, text, fs); err != nil {
		return fmt.Errorf("the file would not be read back: %w", err)
	}
	return replaceFile(path, text)
}

// withParameters returns the text of a file with parameters.
func withParameters(text []byte, pairs []string) ([]byte, error) {
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
	last, inside := -1, false // last is the place behind the last line of the table
	for _, line := range lines {
		if header := tableHeader([]byte(line)); header != "" {
			inside = header == parametersTable
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
		out = append(out, "", "# Parameters of this node, written by CONFIG REWRITE.", "["+parametersTable+"]")
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

// overridden are the flags that the command line or the environment has set: for them the file does not count.
func overridden(args []string, fs *flag.FlagSet) map[string]bool {
	set := map[string]bool{}
	fs.VisitAll(func(f *flag.Flag) {
		if _, is := os.LookupEnv(envName(f.Name)); is {
			set[f.Name] = true
		}
	})
	for _, arg := range args {
		name := strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-")
		if name, _, _ = strings.Cut(name, "="); name != arg && fs.Lookup(name) != nil {
			set[name] = true
		}
	}
	return set
}

// rereading reads the configuration file again at SIGHUP. The log level and parameters follow at once. What else has changed needs a restart, and
// the log says so.
type rereading struct {
	file  *configFile
	flags *flag.FlagSet
	set   map[string]bool // by the command line or the environment
	level func(name string) error
	tell  func(names []string)

	parameters func(pairs []string) error
}

func (r *rereading) read() error {
	now, err := readConfig(r.file.path, r.flags)
	if err != nil {
		return err
	}
	var later, pairs []string
	level := ""
	for _, name := range now.changedFrom(r.file) {
		parameter, is := strings.CutPrefix(name, parametersTable+".")
		value, kept := now.values()[name]
		switch {
		case r.set[name]:
		case is && kept:
			pairs = append(pairs, parameter, value)
		case name == "log-level":
			level = cmp.Or(now.values()[name], "info")
		default:
			later = append(later, name)
		}
	}
	if len(pairs) > 0 {
		if err := r.parameters(pairs); err != nil {
			return err
		}
	}
	if level != "" {
		if err := r.level(level); err != nil {
			return err
		}
	}
	if r.file = now; len(later) > 0 {
		r.tell(later)
	}
	return nil
}

// parseWithFile parses the configuration file, the environment and the command line; each overrides the ones before it. The result file is nil if
// there is none.
func parseWithFile(fs *flag.FlagSet, args []string) (file *configFile, err error) {
	word(fs)
	if path := configPath(args); path != "" {
		if file, err = readConfig(path, fs); err != nil {
			return nil, usageError{fmt.Errorf("--config: %w", err)}
		}
		if err := file.apply(fs); err != nil {
			return nil, usageError{fmt.Errorf("--config: %w", err)}
		}
		fs.VisitAll(func(f *flag.Flag) {
			if secret, is := f.Value.(secretValue); is {
				secret.next()
			}
		})
	}
	if file != nil {
		file.args = args
	}
	return file, parse(fs, args)
}

// parameters returns the parameters of the configuration file, as pairs of a name and a value.
func (o *options) parameters() (pairs []string) {
	if o.file == nil {
		return nil
	}
	for _, s := range o.file.parameters {
		pairs = append(pairs, s.name, s.value)
	}
	return pairs
}

// inFile says in which file the cause of an error is.
func (o *options) inFile(err error) error {
	if o.file == nil {
		return err
	}
	return fmt.Errorf("--config: %s: [%s]: %w", o.file.path, parametersTable, err)
}

// rewriting lets CONFIG REWRITE write into the configuration file.
func (o *options) rewriting(sc *server.Config) {
	if o.file == nil {
		return
	}
	sc.ConfigFile = o.file.path
	if path, err := filepath.Abs(o.file.path); err == nil {
		sc.ConfigFile = path
	}
	file := &configFile{path: sc.ConfigFile}
	sc.Rewrite = func(pairs []string) error { return file.rewrite(pairs, serveFlags()) }
}

// serveFlags returns the flags of lockstep serve.
func serveFlags() *flag.FlagSet {
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	new(options).define(fs)
	return fs
}

// reread returns what reads the configuration file again.
func (o *options) reread(setParameters func(pairs []string) error, log *slog.Logger) *rereading {
	fs := serveFlags()
	level := o.level
	return &rereading{file: o.file, flags: fs, set: overridden(o.file.args, fs), parameters: setParameters,
		level: func(name string) error {
			var l slog.Level
			if err := l.UnmarshalText([]byte(name)); err != nil {
				return fmt.Errorf("log-level %q: want debug, info, warn or error", name)
			}
			level.Set(l)
			return nil
		},
		tell: func(names []string) {
			log.Warn("SIGHUP: changes of the configuration file that count only after a restart", "keys", strings.Join(names, ", "))
		}}
}

// check is --config-check: it reads what a start would read, and opens no port and no data directory.
func (o *options) check(cfg cluster.Config, log *slog.Logger, stdout io.Writer) error {
	var faults error
	if _, err := server.NewCertificates(o.tls.files, log); err != nil {
		faults = errors.Join(faults, err)
	}
	if cfg.PeerTLS.On() {
		if err := cfg.PeerTLS.Check(cluster.NewSystemTime().Wall, log); err != nil {
			faults = errors.Join(faults, err)
		}
	}
	table := store.NewTable(store.Commands(), luavm.New(luavm.Options{}).Commands(), server.Commands())
	if _, err := o.aclUsers(table); err != nil {
		faults = errors.Join(faults, err)
	}
	if err := cfg.Validate(); err != nil {
		faults = errors.Join(faults, err)
	}
	if err := server.CheckParameters(server.Default(), o.parameters()); err != nil {
		faults = errors.Join(faults, o.inFile(err))
	}
	if o.bridge != "" {
		if err := bridge.CheckURL(o.bridge); err != nil {
			faults = errors.Join(faults, fmt.Errorf("--bridge: %w", err))
		}
	}
	if faults != nil {
		return usageError{faults}
	}
	_, err := fmt.Fprintln(stdout, "the configuration is right")
	return err
}
