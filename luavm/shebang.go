package luavm

import (
	"strings"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// scriptFlags holds the flags of a script's first line that have an effect here. The other flags of Redis
// (allow-stale, no-cluster, allow-cross-slot-keys) are accepted without effect.
type scriptFlags struct {
	declared bool // there is a shebang
	noWrites bool
	allowOOM bool
}

// shebangLine returns the first line of a script or a library. ok is true if a newline ends the line and no NUL is in it.
func shebangLine(body string) (line string, ok bool) {
	line, _, ok = strings.Cut(body, "\n")
	return line, ok && strings.IndexByte(line, 0) < 0
}

// parseShebang reads the first line of a script. The result skip is the line's length without the newline.
func parseShebang(body string) (flags scriptFlags, skip int, err store.Error) {
	if !strings.HasPrefix(body, "#!") {
		return flags, 0, ""
	}
	line, ok := shebangLine(body)
	if !ok {
		return flags, 0, errShebang
	}
	words := []byte(line)
	if !redistext.CheckArgs(words) {
		return flags, 0, errShebangWords
	}
	if engine, _ := nextWord(&words); engine != "#!lua" {
		return flags, 0, errShebangEngine(engine)
	}
	flags.declared = true
	for option, more := nextWord(&words); more; option, more = nextWord(&words) {
		list, ok := strings.CutPrefix(option, "flags=")
		if !ok {
			return flags, 0, errShebangOption(option)
		}
		if err := flags.add(list); err != "" {
			return flags, 0, err
		}
	}
	return flags, len(line), ""
}

// nextWord cuts the first word off a line. A list of all words could take much more memory than the line.
func nextWord(line *[]byte) (word string, more bool) {
	raw, rest, more, _ := redistext.CutArg(*line)
	*line = rest
	return string(redistext.Unquote(raw)), more
}

// add adds the flags of a list such as "a,b".
func (f *scriptFlags) add(list string) store.Error {
	if list == "" {
		return ""
	}
	for name := range strings.SplitSeq(list, ",") {
		flag, ok := store.ParseFunctionFlag(name)
		if !ok {
			return errShebangFlag(name)
		}
		f.noWrites = f.noWrites || flag == store.FunctionNoWrites
		f.allowOOM = f.allowOOM || flag == store.FunctionAllowOOM
	}
	return ""
}

// parseLibrary reads the first line of a library, such as "#!lua name=x"; skip is the length
// of that line without the newline.
func parseLibrary(code string) (name string, skip int, err store.Error) {
	if !strings.HasPrefix(code, "#!") {
		return "", 0, errNoMetadata
	}
	line, ok := shebangLine(code)
	if !ok {
		return "", 0, errMetadata
	}
	words := []byte(line)
	if !redistext.CheckArgs(words) {
		return "", 0, errMetadata
	}
	engine, _ := nextWord(&words)
	named := false
	for word, more := nextWord(&words); more; word, more = nextWord(&words) {
		const option = "name="
		if len(word) < len(option) || !strings.EqualFold(word[:len(option)], option) {
			return "", 0, errMetadataValue(word)
		}
		if named {
			return "", 0, errNameTwice
		}
		name, named = word[len(option):], true
	}
	if !named {
		return "", 0, errNoName
	}
	if !legalName(name) {
		return "", 0, errBadName
	}
	if engine = engine[len("#!"):]; !strings.EqualFold(engine, libraryEngine) {
		return "", 0, errNoEngine(engine)
	}
	return name, len(line), ""
}

// legalName reports whether a library or a function may have this name.
func legalName(name string) bool {
	for _, c := range []byte(name) {
		if c != '_' && (c < '0' || '9' < c) && (c < 'A' || 'Z' < c) && (c < 'a' || 'z' < c) {
			return false
		}
	}
	return name != ""
}
