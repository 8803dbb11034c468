package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// help runs `lockstep help`, for all commands or for one.
func help(args []string, stdout io.Writer) error {
	switch {
	case len(args) == 0:
		fmt.Fprint(stdout, helpText())
		return nil
	case len(args) > 1:
		return usageError{errors.New("help: want one command at most, such as: lockstep help backup")}
	}
	text := helpOf(args[0])
	if text == "" {
		return usageError{fmt.Errorf("help: there is no command %q", args[0])}
	}
	fmt.Fprint(stdout, text)
	return nil
}

var commandLine = regexp.MustCompile(`^  lockstep \[?([a-z]+)`)

// helpOf returns what helpText says about a command and its flags; "" if there is no such command.
func helpOf(command string) string {
	var b bytes.Buffer
	about, _, _ := strings.Cut(helpText(), "\n\nTry it:")
	mine := false
	for line := range strings.SplitAfterSeq(about, "\n") {
		if m := commandLine.FindStringSubmatch(line); m != nil {
			mine = m[1] == command
		}
		if mine {
			b.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	if b.Len() == 0 {
		return ""
	}
	for _, group := range flagGroups() {
		words := strings.FieldsFunc(group.of, func(r rune) bool { return r == ',' || r == ' ' })
		if slices.Contains(words, command) {
			fmt.Fprintf(&b, "\nFlags of %s:\n", group.of)
			writeFlags(&b, group.flags)
		}
	}
	if command == "bench" {
		b.WriteString("\nIt starts " + benchProgram + ", which has to stand beside lockstep or in PATH. Its flags: lockstep bench --help\n")
	}
	if command == "lock" {
		b.WriteString(lockHelp)
	}
	return b.String()
}
