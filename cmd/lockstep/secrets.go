package main

import (
	"strings"
	"unsafe"
)

// secretFlags are the flags whose values other users of this machine must not see.
var secretFlags = map[string]bool{"requirepass": true, "tls-key-file-pass": true}

// secretsIn calls the function hide for every value of secretFlags in the arguments: the secret is args[i][from:].
func secretsIn(args []string, hide func(i, from int)) {
	for i, arg := range args {
		name := strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-")
		if name == arg {
			continue
		}
		name, _, with := strings.Cut(name, "=")
		switch {
		case !secretFlags[name]:
		case with:
			hide(i, strings.IndexByte(arg, '=')+1)
		case i+1 < len(args):
			hide(i+1, 0)
		}
	}
}

// takeArgs returns a copy of the process's arguments, and overwrites the secrets in the originals: ps
// and /proc show the originals. args must be a part of os.Args, whose strings lie where the system has
// put the arguments.
func takeArgs(args []string) []string {
	list := make([]string, len(args))
	for i, arg := range args {
		list[i] = strings.Clone(arg)
	}
	secretsIn(list, func(i, from int) {
		shown := unsafe.Slice(unsafe.StringData(args[i]), len(args[i]))
		for j := from; j < len(shown); j++ {
			shown[j] = '*'
		}
	})
	return list
}
