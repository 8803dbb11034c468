package luavm

import (
	"strings"

	"lockstep/store"
)

// scriptFlags are what the first line of a script declares.
type scriptFlags struct {
	declared bool // there is a shebang
	noWrites bool
}

// knownFlags are the flags that Redis 7.0 knows. All but no-writes speak of
// memory limits, replicas and hash slots, which do not exist here.
var knownFlags = map[string]bool{
	"no-writes": true, "allow-oom": true, "allow-stale": true, "no-cluster": true, "allow-cross-slot-keys": true,
}

// parseShebang reads "#!lua flags=a,b"; skip is its length without the newline.
func parseShebang(body string) (flags scriptFlags, skip int, err store.Error) {
	if !strings.HasPrefix(body, "#!") {
		return flags, 0, ""
	}
	skip = strings.IndexByte(body, '\n')
	if skip < 0 {
		return flags, 0, errShebang
	}
	words := strings.Fields(body[:skip])
	if words[0] != "#!lua" {
		return flags, 0, errShebangEngine(words[0])
	}
	flags.declared = true
	for _, option := range words[1:] {
		list, ok := strings.CutPrefix(option, "flags=")
		if !ok {
			return flags, 0, errShebangOption(option)
		}
		if list == "" {
			continue
		}
		for flag := range strings.SplitSeq(list, ",") {
			if !knownFlags[flag] {
				return flags, 0, errShebangFlag(flag)
			}
			flags.noWrites = flags.noWrites || flag == "no-writes"
		}
	}
	return flags, skip, ""
}
