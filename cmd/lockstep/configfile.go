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

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/bridge"
	"github.com/lockstep-io/lockstep/luavm"
	"github.com/lockstep-io/lockstep/server"
	"github.com/lockstep-io/lockstep/store"
)

// The configuration file of a node (--config) is in TOML. Its keys are the names of flags, which override it, as the environment does. The
// table [parameters] has parameters of CONFIG SET that belong to the node; CONFIG REWRITE writes them there.

// mostConfig is how large a configuration file may be, and mostKeys how many keys it may have.
const (
	mostConfig = 1 << 20
	mostKeys   = 1000
)

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
		return nil, fmt.Errorf("%s:%d: %s", path, parsing.Position.Line, withoutValue(parsing))
	} else if err != nil {
		return nil, fmt.Errorf("%s: this is no TOML", path)
	}
	if n := len(meta.Keys()); n > mostKeys {
		return nil, fmt.Errorf("%s has %d keys, more than %d: this is no configuration file", path, n, mostKeys)
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
		case len(key) == 2 && fs.Lookup(s.name) != nil:
			fault(s, "this is a flag, too: put it above [parameters]")
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

// withoutValue returns the text of an error about TOML without parts of the file in quotation marks: they may be a password.
func withoutValue(err toml.ParseError) string {
	text, _, _ := strings.Cut(err.Message, `"`)
	text = strings.TrimSuffix(strings.TrimSpace(text), " but found")
	if err.LastKey != "" {
		return "after the key " + err.LastKey + ": " + text
	}
	return text
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

// try sets the flags that are no secrets: the file of a secret may be a pipe, which was read at the start.
func (c *configFile) try(fs *flag.FlagSet) error {
	word(fs)
	plain := *c
	plain.flags = slices.DeleteFunc(slices.Clone(c.flags), func(s setting) bool {
		_, secret := fs.Lookup(s.name).Value.(secretValue)
		return secret
	})
	return plain.apply(fs)
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
	level *slog.LevelVar
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
	var to slog.Level
	if level != "" {
		if err := to.UnmarshalText([]byte(level)); err != nil {
			return fmt.Errorf("log-level %q: want debug, info, warn or error", level)
		}
	}
	if err := now.try(serveFlags()); err != nil {
		return err
	}
	if len(pairs) > 0 {
		if err := r.parameters(pairs); err != nil {
			return err
		}
	}
	if level != "" {
		r.level.Set(to)
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
	return &rereading{file: o.file, flags: fs, set: overridden(o.file.args, fs), parameters: setParameters,
		level: o.level,
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
