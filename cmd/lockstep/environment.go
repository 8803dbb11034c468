package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/lock"
)

const envPrefix = "LOCKSTEP_"

// envName returns the environment variable of a flag: for --peer-listen it is LOCKSTEP_PEER_LISTEN.
func envName(flagName string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

// parseEnvironment sets the flags of fs from their environment variables. Its error includes that of unknownVariables.
func parseEnvironment(fs *flag.FlagSet) error {
	word(fs)
	faults := errors.Join(unknownVariables(os.Environ()), setFromEnvironment(fs))
	fs.VisitAll(func(f *flag.Flag) {
		if secret, is := f.Value.(secretValue); is {
			secret.next()
		}
	})
	if faults != nil {
		return usageError{faults}
	}
	return nil
}

// setFromEnvironment sets flags from their environment variables. --owner and --token have none: their names would be those of variables
// that `lockstep lock` gives to its command.
func setFromEnvironment(fs *flag.FlagSet) (faults error) {
	fs.VisitAll(func(f *flag.Flag) {
		name := envName(f.Name)
		v, ok := os.LookupEnv(name)
		if !ok || name == lock.EnvOwner || name == lock.EnvToken {
			return
		}
		if err := fs.Set(f.Name, v); err != nil {
			// The error does not repeat the value, because it may be a password.
			faults = errors.Join(faults, fmt.Errorf("%s: %w", name, err))
		}
	})
	return faults
}

// emptyFlags returns an error for each given flag that is set and empty: with an empty --join, a node would found a cluster.
func emptyFlags(fs *flag.FlagSet, names ...string) (faults error) {
	fs.Visit(func(f *flag.Flag) {
		if slices.Contains(names, f.Name) && strings.TrimSpace(f.Value.String()) == "" {
			faults = errors.Join(faults, fmt.Errorf("--%s (%s) is empty: give it a value, or leave it out", f.Name, envName(f.Name)))
		}
	})
	if _, set := os.LookupEnv(peerSecretEnv); set && os.Getenv(peerSecretEnv) == "" {
		faults = errors.Join(faults, fmt.Errorf("%s is empty: give it a secret, or unset it", peerSecretEnv))
	}
	return faults
}

// unknownVariables returns an error for variables that have this program's prefix, but are known to no command: the names are probably
// mistyped.
func unknownVariables(environ []string) (faults error) {
	// A command under `lockstep lock` may be lockstep, too.
	known := []string{peerSecretEnv, lock.EnvName, lock.EnvOwner, lock.EnvToken}
	for _, group := range flagGroups() {
		group.flags.VisitAll(func(f *flag.Flag) { known = append(known, envName(f.Name)) })
	}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, envPrefix) || slices.Contains(known, name) || ofAService(name, value) {
			continue
		}
		hint := "see `lockstep help` for those that there are, or unset it"
		if near := nearest(name, known); near != "" {
			hint = "did you mean " + near + "?"
		}
		faults = errors.Join(faults, fmt.Errorf("%s is the variable of no flag: %s", name, hint))
	}
	return faults
}

var (
	serviceVariable = regexp.MustCompile(`^LOCKSTEP_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)
	serviceURL      = regexp.MustCompile(`^LOCKSTEP_(\w+_)?PORT=(tcp|udp|sctp)://`)
)

// ofAService reports whether Kubernetes gives a variable to every container for a service whose name begins with "lockstep". A
// variable like LOCKSTEP_PORT=6379 is a user's mistake.
func ofAService(name, value string) bool {
	return serviceVariable.MatchString(name) || serviceURL.MatchString(name+"="+value)
}

// nearest returns the word that needs the fewest edits to become the given one, or "" if all need too many for a typing error.
func nearest(word string, words []string) (best string) {
	least := 1 + min(4, len(strings.TrimPrefix(word, envPrefix))/2)
	for _, w := range words {
		if d := edits(word, w); d < least {
			best, least = w, d
		}
	}
	return best
}

// edits returns the Levenshtein distance of two words.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j]+1, corner+1)
		}
	}
	return row[len(b)]
}
