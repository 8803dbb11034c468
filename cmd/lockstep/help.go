package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
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

const (
	exitCodes      = "Exit codes: 0 success or clean stop, 1 failure, 2 wrong usage"
	exitCodeNoLock = ", 3 there is no such lock (lock-info)"
	exitCodeLacks  = ", 4 done, but the backup may lack writes"
)

// examples are command lines for the help of each command.
var examples = map[string][]string{
	"serve":    {"lockstep serve --data /var/lib/lockstep", "lockstep --ephemeral --listen 127.0.0.1:6390"},
	"status":   {"lockstep status --addr 10.0.0.1:6379", "lockstep status --output json", "lockstep status --watch 2s"},
	"members":  {"lockstep members --addr 10.0.0.1:6379", "lockstep members --output json"},
	"add":      {"lockstep add n4 10.0.0.4:7379 --addr 10.0.0.1:6379"},
	"remove":   {"lockstep remove n3 --addr 10.0.0.1:6379"},
	"transfer": {"lockstep transfer --addr 10.0.0.1:6379", "lockstep transfer n2 --addr 10.0.0.1:6379"},
	"snapshot": {"lockstep snapshot --addr 10.0.0.1:6379"},
	"lock":     {"lockstep lock --wait 10s nightly-report -- /usr/local/bin/report all"},
	"locks": {"lockstep locks --min-waiters 1", "lockstep locks --match 'order:*' --kind redisson --limit 20",
		"lockstep locks --output json --user auditor --requirepass-file /etc/lockstep/auditor"},
	"lock-info":    {"lockstep lock-info nightly-report", "lockstep lock-info nightly-report --output json"},
	"lock-waiters": {"lockstep lock-waiters nightly-report"},
	"history":      {"lockstep history nightly-report --count 20", "lockstep history --since 10m --event expired --output json"},
	"lock-stats":   {"lockstep lock-stats --top 5"},
	"force":        {"lockstep force nightly-report --reason 'host-7 is gone'", "lockstep force nightly-report --reason 'host-7 is gone' --owner host-7:4711 --token 1764559409000000"},
	"audit":        {"lockstep audit --check /var/lib/lockstep/audit", "lockstep audit --check n1-audit n2-audit n3-audit --output json"},
	"health":       {"lockstep health", "lockstep health --http-listen 127.0.0.1:8380 --timeout 1s"},
	"backup": {"lockstep backup locks.backup --addr 10.0.0.1:6379", "lockstep backup --verify locks.backup --output json",
		"lockstep backup s3://locks/n1/ --every 1h --keep 24 --s3-endpoint https://minio:9000 --s3-credentials-file /etc/lockstep/s3", "lockstep backup - | gpg -e -r ops > locks.gpg"},
	"restore":    {"lockstep restore locks.backup --data /var/lib/lockstep --id n1 --peer-listen 10.0.0.1:7379"},
	"inspect":    {"lockstep inspect --data /var/lib/lockstep --check", "lockstep inspect --data /var/lib/lockstep --keys", "lockstep inspect locks.backup --output json"},
	"recover":    {"lockstep recover --data /var/lib/lockstep", "lockstep recover --data /var/lib/lockstep --yes --output json"},
	"secret":     {"lockstep secret /etc/lockstep/peers"},
	"bench":      {"lockstep bench --help"},
	"completion": {"lockstep completion bash > /etc/bash_completion.d/lockstep", "lockstep completion fish | source"},
	"version":    {"lockstep version", "lockstep version --output json"},
	"help":       {"lockstep help backup"},
}

// helped prints the help of a command if a command line asks for it. It returns the error that it gets.
func helped(fs *flag.FlagSet, stdout io.Writer, err error) error {
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, helpOf(fs.Name()))
	}
	return err
}

var commandLine = regexp.MustCompile(`^  lockstep \[?([a-z-]+)`)

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
		if group.has(command) {
			fmt.Fprintf(&b, "\nFlags of %s:\n", group.of)
			writeFlags(&b, group.flags)
		}
	}
	if command == "bench" {
		b.WriteString("\nIt starts " + benchProgram + ", which has to stand beside lockstep or in PATH. Its flags: lockstep bench --help\n")
	}
	if command == "lock" {
		b.WriteString(lockHelp)
	} else {
		codes := exitCodes
		if command == "lock-info" {
			codes += exitCodeNoLock
		}
		if command == "backup" || command == "restore" {
			codes += exitCodeLacks
		}
		b.WriteString("\n" + codes + ".\n")
	}
	if lines := examples[command]; len(lines) > 0 {
		b.WriteString("\nExamples:\n  " + strings.Join(lines, "\n  ") + "\n")
	}
	return b.String()
}
