package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// completion runs `lockstep completion`: it prints a script by which a shell completes the names of commands and flags.
func completion(args []string, stdout io.Writer) error {
	fs := flag.NewFlagSet("completion", flag.ContinueOnError)
	rest, err := parseMixed(fs, args, stdout)
	if err != nil {
		return err
	}
	if len(rest) != 1 {
		return usageError{errors.New("completion: want bash, zsh or fish, such as: source <(lockstep completion bash)")}
	}
	script, known := map[string]func() string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[rest[0]]
	if !known {
		return usageError{fmt.Errorf("completion: unknown shell %q: want bash, zsh or fish", rest[0])}
	}
	_, err = io.WriteString(stdout, script())
	return err
}

// commandNames returns the names of all commands, sorted.
func commandNames() []string { return slices.Sorted(maps.Keys(examples)) }

// flagsOf returns the flags of a command, with two dashes, sorted.
func flagsOf(command string) (names []string) {
	for _, group := range flagGroups() {
		if !group.has(command) {
			continue
		}
		group.flags.VisitAll(func(f *flag.Flag) { names = append(names, "--"+f.Name) })
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// has reports whether the flags are of a command.
func (g *flagGroup) has(command string) bool {
	return slices.Contains(strings.FieldsFunc(g.of, func(r rune) bool { return r == ',' || r == ' ' }), command)
}

// wordsOf are values that flags and commands take.
var wordsOf = map[string][]string{
	"--output": {"text", "json"}, "--log-level": {"debug", "info", "warn", "error"}, "--log-format": {"text", "json"}, "--log-store": {"wal", "bolt"},
	"--protected-mode": {"yes", "no"}, "--sentinel-auth": {"yes", "no"}, "--peer-tls": {"required", "optional"}, "--enable-debug-command": {"no", "local", "yes"},
	"--sort": {"age", "waiters", "ttl"}, "completion": {"bash", "zsh", "fish"},
}

func bashCompletion() string {
	var b strings.Builder
	b.WriteString(`# Completion of lockstep for bash: source <(lockstep completion bash)
_lockstep() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=serve i
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ ${COMP_WORDS[i]} == -- ]] && { COMPREPLY=($(compgen -c -f -- "$word")); return; }
    [[ $i == 1 && ${COMP_WORDS[i]} != -* ]] && command=${COMP_WORDS[i]}
  done
  case $before in
`)
	for _, name := range slices.Sorted(maps.Keys(wordsOf)) {
		fmt.Fprintf(&b, "    %s) COMPREPLY=($(compgen -W '%s' -- \"$word\")); return ;;\n", name, strings.Join(wordsOf[name], " "))
	}
	fmt.Fprintf(&b, "    help) COMPREPLY=($(compgen -W '%s' -- \"$word\")); return ;;\n  esac\n", strings.Join(commandNames(), " "))
	fmt.Fprintf(&b, "  if [[ $COMP_CWORD == 1 && $word != -* ]]; then COMPREPLY=($(compgen -W '%s' -- \"$word\")); return; fi\n", strings.Join(commandNames(), " "))
	b.WriteString("  if [[ $word != -* ]]; then COMPREPLY=($(compgen -f -- \"$word\")); return; fi\n  case $command in\n")
	for _, name := range commandNames() {
		fmt.Fprintf(&b, "    %s) COMPREPLY=($(compgen -W '%s' -- \"$word\")) ;;\n", name, strings.Join(flagsOf(name), " "))
	}
	b.WriteString("  esac\n}\ncomplete -F _lockstep lockstep\n")
	return b.String()
}

func zshCompletion() string {
	return "#compdef lockstep\n# Completion of lockstep for zsh: source <(lockstep completion zsh)\nautoload -U +X bashcompinit && bashcompinit\n" + bashCompletion()
}

func fishCompletion() string {
	var b strings.Builder
	b.WriteString("# Completion of lockstep for fish: lockstep completion fish | source\n")
	names := strings.Join(commandNames(), " ")
	fmt.Fprintf(&b, "complete -c lockstep -n 'not __fish_seen_subcommand_from %s' -a '%s'\n", names, names)
	for _, name := range commandNames() {
		when := "__fish_seen_subcommand_from " + name
		if name == "serve" {
			when = "not __fish_seen_subcommand_from " + strings.ReplaceAll(names, "serve ", "")
		}
		for _, f := range flagsOf(name) {
			values := ""
			if words := wordsOf[f]; words != nil {
				values = " -x -a '" + strings.Join(words, " ") + "'"
			}
			fmt.Fprintf(&b, "complete -c lockstep -n '%s' -l %s%s\n", when, strings.TrimPrefix(f, "--"), values)
		}
	}
	fmt.Fprintf(&b, "complete -c lockstep -n '__fish_seen_subcommand_from completion' -x -a '%s'\n", strings.Join(wordsOf["completion"], " "))
	return b.String()
}
