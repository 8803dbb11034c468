package main

import (
	"flag"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/show"
)

// version is the last release; "+dev" means that the program is newer.
const version = "0.1.0+dev"

// versionFacts says from what and for what this program was built.
func versionFacts() show.Record {
	said := make(map[string]string)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			said[s.Key] = s.Value
		}
	}
	return show.Record{{Name: "version", Value: version}, {Name: "revision", Value: said["vcs.revision"]}, {Name: "modified", Value: said["vcs.modified"] == "true"},
		{Name: "go", Value: runtime.Version()}, {Name: "os", Value: runtime.GOOS}, {Name: "arch", Value: runtime.GOARCH}}
}

// versionText returns the output of `lockstep version`.
func versionText() string {
	facts := versionFacts()
	text := "lockstep " + version
	if revision := facts.Get("revision"); revision != "" {
		text += fmt.Sprintf(" revision %s", revision)
		if facts.Get("modified") == true {
			text += " with changes"
		}
	}
	return fmt.Sprintf("%s %s %s/%s", text, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// tellVersion runs `lockstep version`, even if there are variables that no flag has: whoever reports a bug needs it.
func tellVersion(args []string, stdout io.Writer) error {
	var out outputOptions
	fs := flag.NewFlagSet("version", flag.ContinueOnError)
	out.define(fs)
	if err := setFromEnvironment(fs); err != nil {
		return usageError{err}
	}
	if err := parseFlags(fs, args); err != nil {
		return helped(fs, stdout, err)
	}
	if fs.NArg() > 0 {
		return usageError{fmt.Errorf("version: unexpected argument %q", fs.Arg(0))}
	}
	return out.print(stdout, versionFacts(), "%s", versionText())
}
