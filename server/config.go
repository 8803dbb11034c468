package server

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// Config is the configuration of a server. Start from Default.
type Config struct {
	// NodeID is this node's id among Backend.Members.
	NodeID string
	// Clock tells the time.
	Clock func() time.Time
	// ConfigFile is the node's configuration file, "" if there is none. Rewrite, nil without a file, writes parameters into it: pairs of a
	// name and a value.
	ConfigFile string
	Rewrite    func(pairs []string) error
	// Log receives the server's messages.
	Log *slog.Logger
	// Hub delivers messages to subscribers. cluster.Config.Sink must be the same Hub, because the node publishes the messages into
	// its Sink when it applies the log.
	Hub *Hub
	// OnShutdown is called when a client asks for SHUTDOWN. It must not wait
	// for this server. Nil: the command is refused.
	OnShutdown func()

	// RunID identifies this process in INFO: 40 hexadecimal digits.
	RunID string
	// Port is the port in CONFIG GET, and tcp_port in INFO; if Port is 0, tcp_port is TLSPort.
	Port int
	// UnixSocket and UnixSocketPerm are what CONFIG GET replies of the Unix socket.
	UnixSocket, UnixSocketPerm string
	// Bind is the reply of CONFIG GET bind.
	Bind string
	// DataDir is the reply of CONFIG GET dir.
	DataDir string
	// Loops is how many event loops serve each TCP listener; 0: the server chooses. With -1, each connection has its own goroutine.
	Loops int
	// Durable is false for a node that keeps nothing on disk.
	Durable bool
	// Memory is how many bytes of memory the machine or the container has; 0: unknown.
	Memory int64
	// Ballast is how many bytes of the heap are allocated but never used. INFO and MEMORY do not count them.
	Ballast int
	// TLS has the certificates for TLS listeners; nil: no listener speaks TLS.
	TLS *Certificates
	// TLSPort is the tls-port in CONFIG.
	TLSPort int
	// AnyClient is true for a Sentinel that asks for no password.
	AnyClient bool
	// secretSentinel is true for a Sentinel whose clients speak TLS.
	secretSentinel bool
	// LibraryMemory returns how many bytes function libraries keep between calls on this node. Nil: INFO
	// shows 0 bytes.
	LibraryMemory func() int64
	// NoUring makes the server send each reply with a system call of its own, as on a kernel that forbids io_uring.
	NoUring bool
	// FailoverWait is how long a client waits for a leader that can confirm its password. 0 means clusterTimes × Server.patience.
	FailoverWait time.Duration
	patience     time.Duration // the first value of Server.patience; 0: catchUpTimeout
	scarce       func() bool   // garbage.scarce; tests replace it

	// Most of the parameters below are those of redis.conf, with the same meaning. CONFIG SET can change most of them.
	RequirePass            string
	ACLFile                string
	ACLUsers               []*store.User // the users in ACLFile at the start
	ProtectedMode          bool
	MaxClients             int
	ClientCeiling          int   // the largest maxclients for which the process may open enough files; 0: not known
	MaxHandshakes          int   // TLS handshakes in progress at a time
	MaxMemoryClients       int64 // bytes of the node's memory that all clients together may take; 0: no limit
	Timeout                int   // seconds; 0: connections may be idle forever
	TCPKeepAlive           int   // seconds; 0: off
	ProtoMaxBulkLen        int64
	Limits                 store.Limits // limits of the data until CONFIG SET changes them for the cluster
	ClientQueryBufferLimit int64
	BusyReplyThreshold     int    // milliseconds
	EnableDebugCommand     string // no, local or yes
}

// Default returns the configuration of a Redis without a configuration file.
// Clock has no default.
func Default() Config {
	return Config{
		NodeID:                 "n1",
		Log:                    slog.New(slog.DiscardHandler),
		Hub:                    NewHub(),
		RunID:                  newRunID(),
		Durable:                true,
		ProtectedMode:          true,
		MaxClients:             10000,
		MaxHandshakes:          maxHandshakes,
		TCPKeepAlive:           300,
		ProtoMaxBulkLen:        512 << 20,
		Limits:                 store.Limits{Entry: store.DefaultMaxEntry},
		ClientQueryBufferLimit: 1 << 30,
		BusyReplyThreshold:     5000,
		EnableDebugCommand:     "no",
		scarce:                 memoryIsScarce,
	}
}

func newRunID() string {
	var b [20]byte
	// crypto/rand does not return errors: it ends the process instead.
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Validate returns all errors in the configuration.
func (c *Config) Validate() error {
	var faults []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	bad(c.NodeID == "", "the node id is empty")
	bad(c.Clock == nil, "there is no clock")
	bad(c.Log == nil, "there is no logger")
	bad(c.Hub == nil, "there is no hub")
	bad(len(c.RunID) != 40, "the run id %q does not have 40 digits", c.RunID)
	bad(c.MaxClients < 1, "maxclients is %d, must be at least 1", c.MaxClients)
	bad(c.MaxHandshakes < 1, "%d handshakes at a time, must be at least 1", c.MaxHandshakes)
	bad(c.Timeout < 0, "timeout is %d, must not be negative", c.Timeout)
	bad(c.TCPKeepAlive < 0, "tcp-keepalive is %d, must not be negative", c.TCPKeepAlive)
	bad(c.ProtoMaxBulkLen < 1<<20, "proto-max-bulk-len is %d, must be at least 1048576", c.ProtoMaxBulkLen)
	bad(c.ClientQueryBufferLimit < 1<<20, "client-query-buffer-limit is %d, must be at least 1048576", c.ClientQueryBufferLimit)
	bad(c.BusyReplyThreshold < 0, "busy-reply-threshold is %d, must not be negative", c.BusyReplyThreshold)
	switch c.EnableDebugCommand {
	case "no", "local", "yes":
	default:
		bad(true, "enable-debug-command is %q, must be no, local or yes", c.EnableDebugCommand)
	}
	return errors.Join(faults...)
}
