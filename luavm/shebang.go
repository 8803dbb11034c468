package luavm

import (
	"strings"

	"lockstep/store"
	"lockstep/store/redistext"
)

// scriptFlags holds the flags of a script's first line that have an effect here. The other flags of Redis
// (allow-stale, no-cluster, allow-cross-slot-keys) are accepted without effect.
type scriptFlags struct {
	declared bool // there is a shebang
	noWrites bool
	allowOOM bool
}

// shebangLine returns the first line of a script or library; ok is false if no newline ends the
// line, or if a NUL comes before the newline, because a NUL ends a string in C.
func shebangLine(body string) (line string, ok bool) {
	line, _, ok = strings.Cut(body, "\n")
	return line, ok && strings.IndexByte(line, 0) < 0
}

// parseShebang reads the first line of a script, such as "#!lua flags=a,b", if it begins with
// "#!"; skip is the length of that line without the newline.
func parseShebang(body string) (flags scriptFlags, skip int, err store.Error) {
	if !strings.HasPrefix(body, "#!") {
		return flags, 0, ""
	}
	line, ok := shebangLine(body)
	if !ok {
		return flags, 0, errShebang
	}
	words, ok := redistext.SplitArgs([]byte(line))
	if !ok {
		return flags, 0, errShebangWords
	}
	if engine := string(words[0]); engine != "#!lua" {
		return flags, 0, errShebangEngine(engine)
	}
	flags.declared = true
	for _, option := range words[1:] {
		list, ok := strings.CutPrefix(string(option), "flags=")
		if !ok {
			return flags, 0, errShebangOption(string(option))
		}
		if list == "" {
			continue
		}
		for name := range strings.SplitSeq(list, ",") {
			flag, ok := store.ParseFunctionFlag(name)
			if !ok {
				return flags, 0, errShebangFlag(name)
			}
			flags.noWrites = flags.noWrites || flag == store.FunctionNoWrites
			flags.allowOOM = flags.allowOOM || flag == store.FunctionAllowOOM
		}
	}
	return flags, len(line), ""
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
	words, ok := redistext.SplitArgs([]byte(line))
	if !ok {
		return "", 0, errMetadata
	}
	named := false
	for _, word := range words[1:] {
		const option = "name="
		if len(word) < len(option) || !strings.EqualFold(string(word[:len(option)]), option) {
			return "", 0, errMetadataValue(string(word))
		}
		if named {
			return "", 0, errNameTwice
		}
		name, named = string(word[len(option):]), true
	}
	if !named {
		return "", 0, errNoName
	}
	if !legalName(name) {
		return "", 0, errBadName
	}
	if engine := string(words[0][2:]); !strings.EqualFold(engine, libraryEngine) {
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
