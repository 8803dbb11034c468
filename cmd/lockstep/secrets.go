package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unsafe"

	"github.com/lockstep-io/lockstep/server"
)

// secretFlags are the flags whose values other users of this machine must not see.
var secretFlags = map[string]bool{"requirepass": true, "tls-key-file-pass": true, "bridge": true}

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

// takeArgs returns a copy of args, a part of os.Args, and overwrites the secrets in the originals, which ps and /proc show.
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

// pipePatience is how long readSecret waits for a pipe before it says that it waits.
const pipePatience = 2 * time.Second

// readSecret returns the first line of a file, which must not be empty. It waits for no more, because a pipe may stay open.
func readSecret(path string) (string, error) {
	waits := time.AfterFunc(pipePatience, func() {
		fmt.Fprintf(os.Stderr, "lockstep: waiting for the first line of %s: if it is a pipe, write the password to it\n", path)
	})
	defer waits.Stop()
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	line, err := bufio.NewReader(io.LimitReader(f, server.MaxPassword+int64(len("\r\n")))).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	if secret == "" {
		return "", fmt.Errorf("%s: its first line is empty: write the password there", path)
	}
	if err := checkSecret(secret); err != nil {
		return "", fmt.Errorf("%s: its first line: %w", path, err)
	}
	return secret, nil
}

// checkSecret refuses a password that is longer than a client could send. The same bound holds for the password of a key file.
func checkSecret(secret string) error {
	if len(secret) > server.MaxPassword {
		return fmt.Errorf("the password is too long: use one of at most %d bytes", server.MaxPassword)
	}
	return nil
}
