package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"
)

// foreignFlags has flags of redis-server and redis-cli, with what users should write instead. It omits those for which flagFault finds
// the right name.
var foreignFlags = map[string]string{
	"port":                    "--listen HOST:PORT, such as --listen 127.0.0.1:6379",
	"bind":                    "--listen HOST:PORT, such as --listen 0.0.0.0:6379, which needs --requirepass-file or --aclfile",
	"tls-port":                "--tls-listen HOST:PORT",
	"tls-replication":         "--peer-secret-file or --peer-tls-cert-file: the nodes then speak TLS with each other",
	"tls-cluster":             "--peer-secret-file or --peer-tls-cert-file: the nodes then speak TLS with each other",
	"dir":                     "--data DIRECTORY",
	"dbfilename":              "--data DIRECTORY; lockstep backup FILE saves the state of a running node",
	"appendonly":              onDisk,
	"appendfsync":             onDisk,
	"appendfilename":          onDisk,
	"save":                    onDisk,
	"rdbcompression":          onDisk,
	"logfile":                 "2> FILE: the log goes to the standard error, in --log-format text or json",
	"loglevel":                "--log-level debug, info, warn or error",
	"syslog-enabled":          "a service manager: the log goes to the standard error",
	"daemonize":               "a service manager, or & behind the command: lockstep stays in the foreground",
	"supervised":              "a service manager's own way: with Type=notify, systemd is told by itself",
	"pidfile":                 "a service manager: lockstep writes no such file",
	"replicaof":               "--join HOST:PORT of a member's --peer-listen",
	"slaveof":                 "--join HOST:PORT of a member's --peer-listen",
	"masterauth":              "--peer-secret-file, by which nodes know each other",
	"masteruser":              "--peer-secret-file, by which nodes know each other",
	"cluster-enabled":         "--cluster-listen HOST:PORT for clients in Cluster mode, --peers or --join for more nodes",
	"sentinel":                "--sentinel-listen HOST:PORT for clients in Sentinel mode",
	"user":                    "--aclfile FILE, or ACL SETUSER at a running node",
	"replica-announce-ip":     "--advertise HOST:PORT",
	"replica-announce-port":   "--advertise HOST:PORT",
	"cluster-announce-ip":     "--cluster-advertise HOST:PORT",
	"cluster-announce-port":   "--cluster-advertise HOST:PORT",
	"lua-time-limit":          "--script-time-limit, after which a script is stopped; CONFIG SET has the limit after which others are told BUSY",
	"busy-reply-threshold":    atRunTime,
	"timeout":                 atRunTime,
	"tcp-keepalive":           atRunTime,
	"maxmemory-clients":       atRunTime,
	"notify-keyspace-events":  atRunTime,
	"slowlog-log-slower-than": atRunTime,
	"slowlog-max-len":         atRunTime,
	"maxmemory-policy":        "nothing: no lock is evicted; --maxmemory has nothing be added",
	"databases":               "nothing: there are 16",
	"io-threads":              "nothing: all processors are used",
	// These are flags of redis-cli.
	"a":    "--requirepass-file FILE, or --requirepass",
	"pass": "--requirepass-file FILE, or --requirepass",
	// These are flags of other command lines.
	"password":      "--requirepass-file FILE, or --requirepass",
	"password-file": "--requirepass-file FILE",
	"json":          "--output json",
	"host":          "--addr HOST:PORT",
	"p":             "--addr HOST:PORT",
}

const (
	onDisk    = "nothing: every write is on disk before it is acknowledged (--ephemeral keeps nothing)"
	atRunTime = "CONFIG SET at a running node"
)

// flagFault makes an error of package flag readable for users. It names the flag that the user probably meant, and removes a secret.
func flagFault(fs *flag.FlagSet, err error) error {
	if at := strings.LastIndex(err.Error(), givenTwice); at >= 0 {
		return errors.New(err.Error()[at:])
	}
	name, is := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !is {
		return err
	}
	instead, foreign := foreignFlags[name]
	switch administers := fs.Lookup("addr") != nil; {
	case administers && (name == "port" || name == "bind"):
		instead = "--addr HOST:PORT"
	case !administers && (name == "p" || name == "host"):
		instead = "--listen HOST:PORT"
	}
	if foreign {
		return fmt.Errorf("there is no flag --%s: instead of it there is %s", name, instead)
	}
	var known []string
	fs.VisitAll(func(f *flag.Flag) { known = append(known, f.Name) })
	if near := nearest(name, known); near != "" {
		return fmt.Errorf("there is no flag --%s: did you mean --%s?", name, near)
	}
	return fmt.Errorf("there is no flag --%s", name)
}
