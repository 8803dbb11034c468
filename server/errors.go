package server

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/lockstep-io/lockstep/store"
)

// These are the errors that clients see. An error that Redis 7.0 has, too, has the text of Redis.
const (
	errTickets        store.Error = "ERR a connection may have 1000 tickets (QUEUE): give some up (LOCK.RELEASE), or use another connection"
	errLockEvent      store.Error = "ERR unknown event: LOCK.HISTORY knows granted, renewed, released, expired, forced, revoked, replaced, moved, flushed, swapped and gap"
	errLockOrder      store.Error = "ERR SORT takes age, waiters or ttl"
	errLockCursor     store.Error = "ERR LOCK.LIST with SORT has no CURSOR: it replies the first COUNT locks of all"
	errLockCount      store.Error = "ERR LOCK.LIST with SORT takes a COUNT from 1 to 1000"
	errTop            store.Error = "ERR TOP takes a number of locks from 0 to 1000"
	errMaxClients     store.Error = "ERR max number of clients reached"
	errBehind         store.Error = "CLUSTERDOWN This node has yet to learn the latest users from the leader; the command was not executed, try again"
	errWrongPass      store.Error = "WRONGPASS invalid username-password pair or user is disabled."
	errNoPassword     store.Error = "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"
	errHelloNoAuth    store.Error = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time"
	errNoProto        store.Error = "NOPROTO unsupported protocol version"
	errProtoInteger   store.Error = "ERR Protocol version is not an integer or out of range"
	errClientName     store.Error = "ERR Client names cannot contain spaces, newlines or special characters."
	errNoSuchClient   store.Error = "ERR No such client"
	errClientID       store.Error = "ERR client-id should be greater than 0"
	errListID         store.Error = "ERR Invalid client ID"
	errNoCluster      store.Error = "ERR This instance has cluster support disabled"
	errCrossSlot      store.Error = "CROSSSLOT Keys in request don't hash to the same slot"
	errSelectCluster  store.Error = "ERR SELECT is not allowed in cluster mode"
	errMoveCluster    store.Error = "ERR MOVE is not allowed in cluster mode"
	errSwapCluster    store.Error = "ERR SWAPDB is not allowed in cluster mode"
	errCopyCluster    store.Error = "ERR Copying to another database is not allowed in cluster mode"
	errSortBy         store.Error = "ERR BY option of SORT denied in Cluster mode."
	errSortGet        store.Error = "ERR GET option of SORT denied in Cluster mode."
	errSlot           store.Error = "ERR Invalid slot"
	errSlotOrCount    store.Error = "ERR Invalid slot or number of keys"
	errFixedCluster   store.Error = "ERR The slots and nodes of this cluster follow its Raft group and cannot be changed by this command"
	errFailoverMaster store.Error = "ERR You should send CLUSTER FAILOVER to a replica"
	errNotMaster      store.Error = "ERR The specified node is not a master"
	errNoMaster       store.Error = "ERR No such master with that name"
	errHelloOnly      store.Error = "ERR Only HELLO messages are accepted by Sentinel instances."
	errFailoverBusy   store.Error = "INPROG Failover already in progress"
	errNoGoodReplica  store.Error = "NOGOODSLAVE No suitable replica to promote"
	errFixedSentinel  store.Error = "ERR What this Sentinel watches follows the cluster and cannot be changed by this command"
	errSentinelConfig store.Error = "ERR Only SENTINEL CONFIG GET <option> / SET <option> <value> are supported."
	errMonitorTwice   store.Error = "ERR Duplicate master name."
	errMonitorPort    store.Error = "ERR Invalid port"
	errMonitorQuorum  store.Error = "ERR Invalid quorum"
	errQuorumLow      store.Error = "ERR Quorum must be 1 or greater."
	errSimulation     store.Error = "ERR Unknown failure simulation specified"
	errDebugOff       store.Error = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local connection, otherwise you need to set this option in the configuration file, and then restart the server."
	errACLSave        store.Error = "ERR There was an error trying to save the ACLs. Please check the server logs for more information"
	errACLFileUsers   store.Error = "ERR there are more users than a node reads of an ACL file, 10000: the file stays as it was. Delete users and save again"
	errACLOlder       store.Error = "ERR the leader runs an older version, which has no ACL files: upgrade it first"
	errPasswordOlder  store.Error = "ERR the cluster may have a leader of version 0.1.0, which would answer OK and set no password: use ACL SETUSER default resetpass >password until all nodes are upgraded"
	errCommandOlder   store.Error = "ERR a node of the cluster runs version 0.1.0, which does not know this command: upgrade all nodes first"
	errNoACLFile      store.Error = "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration."
	errNoConfigFile   store.Error = "ERR The server is running without a config file"
	errStopping       store.Error = "ERR this node is stopping"
	errBadCommand     store.Error = "ERR Invalid command specified"
	errBadCommandArgs store.Error = "ERR Invalid arguments specified for command"
	errBadCommandLen  store.Error = "ERR Invalid number of arguments specified for command"
	errNoKeys         store.Error = "ERR The command has no key arguments"
	errTimeout        store.Error = "ERR timeout is not an integer or out of range"
	errTimeoutSign    store.Error = "ERR timeout is negative"
	errSlowlogCount   store.Error = "ERR count should be greater than or equal to -1"
	errNoShutdown     store.Error = "ERR No shutdown in progress."
	errBackups        store.Error = "ERR another backup is being read: try again when it is complete"
	errNoBackup       store.Error = "ERR no such backup: it was given up because nobody read on; begin again"
	errLeft           store.Error = "ERR the connection ends" // nobody reads it: the client has been cut off, or the server closes
	errSaving         store.Error = "ERR Background save already in progress"
	errMonitorInExec  store.Error = "ERR MONITOR isn't allowed for DENY BLOCKING client"
	errShardInExec    store.Error = "ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"
	errMonitorKeys    store.Error = "ERR Replica can't interact with the keyspace"
	errUserSpaces     store.Error = "ERR Usernames can't contain spaces or null characters"
	errTooFewReplicas store.Error = "NOREPLICAS Not enough good replicas to write."
	errNoMember       store.Error = "ERR the id is empty: name a member, or leave it out to hand leadership to any"
	errDefaultUser    store.Error = "ERR The 'default' user cannot be removed"
	errGenPassBits    store.Error = "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096"
	errShutdown       store.Error = "ERR Errors trying to SHUTDOWN. Check logs."
	errNestedMulti    store.Error = "ERR MULTI calls can not be nested"
	errWatchInMulti   store.Error = "ERR WATCH inside MULTI is not allowed"
	errNotInMulti     store.Error = "ERR Command not allowed inside a transaction"
	errRightsUnknown  store.Error = "TRYAGAIN The leader does not tell in time whether the user may do this"
	errNoAnswer       store.Error = "TRYAGAIN The leader does not answer in time, or there is none: nothing was changed, try again"
	errExecAborted    store.Error = "EXECABORT Transaction discarded because of previous errors."
	errLongPattern    store.Error = "ERR the pattern takes too long to look for among the channels: use one with fewer stars and classes"
	errSetting        store.Error = "ERR CONFIG SET failed: another CONFIG SET is in progress and waits for the leader; nothing was changed, try again"
	errManyPatterns   store.Error = "ERR the patterns take too long to look for among the parameters: use fewer of them, with fewer stars and classes"
	errQueueTooBig    store.Error = "ERR the transaction is too large: its commands may be as large as what one transaction may write (max-entry-size)"
	errTooMuchWatched store.Error = "ERR too many watched keys: their names may be as large as what one transaction may write (max-entry-size)"
	errUnblocked      store.Error = "UNBLOCKED client unblocked via CLIENT UNBLOCK"
	errPauseMode      store.Error = "ERR CLIENT PAUSE mode must be WRITE or ALL"
	errStrangerPause  store.Error = "ERR This Sentinel asks for no password, so none of its clients may pause the others. Start the node with --sentinel-auth yes"
	errUnblockReason  store.Error = "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"

	errExecWithoutMulti    store.Error = "ERR EXEC without MULTI"
	errDiscardWithoutMulti store.Error = "ERR DISCARD without MULTI"

	errNotPositive     store.Error = "ERR value is out of range, must be positive"
	errNoLocalDisk     store.Error = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."
	errMasterPort      store.Error = "ERR Invalid master port"
	errRewriting       store.Error = "ERR Background append only file rewriting already in progress"
	errNoFailover      store.Error = "ERR No failover in progress."
	errNoReplicas      store.Error = "ERR FAILOVER requires connected replicas."
	errFailoverTarget  store.Error = "ERR FAILOVER target HOST and PORT is not a replica."
	errFailoverTimeout store.Error = "ERR FAILOVER timeout must be greater than 0"
	errFailoverForce   store.Error = "ERR FAILOVER with force option requires both a timeout and target HOST and IP."
	errProtocolName    store.Error = "ERR Wrong protocol type name. Please use one of the following: string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false"
	errOnlyRESP3       store.Error = "ERR RESP2 is not supported by this command"
	errModules         store.Error = "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", you can run it from a local connection, otherwise you need to set this option in the configuration file, and then restart the server."

	// These errors, in the server's own words, refuse commands that Redis can run and this server cannot.
	errNoReplicaOf store.Error = "ERR REPLICAOF is not supported: the nodes of a cluster replicate by Raft, as they are told at their start"
	errNoPromotion store.Error = "ERR this node follows the leader of its cluster: FAILOVER or LOCKSTEP TRANSFER chooses another leader"
	errNoSync      store.Error = "ERR SYNC and PSYNC are not supported: a node of this server replicates by Raft, not to a Redis, and gives no RDB file"
	errNoMigrate   store.Error = "ERR MIGRATE is not supported: use DUMP here and RESTORE there"

	// errDenied ends a connection from another host while protected mode is on and there is no
	// password.
	errDenied store.Error = "DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user." +
		" In this mode connections are only accepted from the loopback interface." +
		" If you want to connect from external computers to Redis you may adopt one of the following solutions:" +
		" 1) Just disable protected mode sending the command 'CONFIG SET protected-mode no' from the loopback interface by connecting to Redis from the same host the server is running," +
		" however MAKE SURE Redis is not publicly accessible from internet if you do so. Use CONFIG REWRITE to make this change permanent." +
		" 2) Alternatively you can just disable the protected mode by editing the Redis configuration file, and setting the protected mode option to 'no', and then restarting the server." +
		" 3) If you started the server manually just for testing, restart it with the '--protected-mode no' option." +
		" 4) Setup a an authentication password for the default user." +
		" NOTE: You only need to do one of the above things in order for the server to start accepting connections from the outside."
)

// movedTo begins the error that redirects a client.
const movedTo = "MOVED "

func errf(format string, args ...any) store.Error {
	return store.Error(fmt.Sprintf(format, args...))
}

// maxQuoted is the maximum number of bytes of the client's input that an error repeats, as in Redis.
const maxQuoted = 128

// cString returns an argument as a C string: it ends at a zero byte, or after limit bytes.
func cString(arg []byte, limit int) string {
	if i := bytes.IndexByte(arg, 0); i >= 0 {
		arg = arg[:i]
	}
	return string(arg[:min(len(arg), limit)])
}

func errUnknownCommand(args [][]byte) store.Error {
	var rest strings.Builder
	for _, a := range args[1:] {
		if rest.Len() >= maxQuoted {
			break
		}
		rest.WriteString("'" + cString(a, maxQuoted-rest.Len()) + "' ")
	}
	text := errf("ERR unknown command '%s', with args beginning with: %s", cString(args[0], maxQuoted), rest.String())
	if why := WhyAbsent(string(args[0])); why != "" {
		text += store.Error("(" + why + ")")
	}
	return text
}

func errUnknownSubcommand(container string, sub []byte) store.Error {
	return errf("ERR unknown subcommand '%s'. Try %s HELP.", cString(sub, maxQuoted), strings.ToUpper(container))
}

func errDebugNotInScript(sub string) store.Error {
	return errf("ERR DEBUG %s cannot be called in a script: call it from a client", strings.ToUpper(sub))
}

// errSubcommandArgs is the older form of errUnknownSubcommand; some subcommands still use it for a
// wrong number of arguments.
func errSubcommandArgs(container string, sub []byte) store.Error {
	return errf("ERR unknown subcommand or wrong number of arguments for '%s'. Try %s HELP.", cString(sub, maxQuoted), strings.ToUpper(container))
}

func errPubSubContext(name string) store.Error {
	return errf("ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context", name)
}

// These are the errors of CLIENT TRACKING and CLIENT CACHING.
const (
	errOneRedirect   = store.Error("ERR A client can only redirect to a single other client")
	errNoRedirect    = store.Error("ERR The client ID you want redirect to does not exist")
	errPrefixNoBcast = store.Error("ERR PREFIX option requires BCAST mode to be enabled")
	errSwitchBcast   = store.Error("ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.")
	errOptBcast      = store.Error("ERR OPTIN and OPTOUT are not compatible with BCAST")
	errOptBoth       = store.Error("ERR You can't specify both OPTIN mode and OPTOUT mode")
	errSwitchOpt     = store.Error("ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.")
	errCachingOff    = store.Error("ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled")
	errCachingYes    = store.Error("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
	errCachingNo     = store.Error("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
)

func errPrefixExists(prefix, other string) store.Error {
	return errf("ERR Prefix '%s' overlaps with an existing prefix '%s'. Prefixes for a single client must not overlap.", cString([]byte(prefix), len(prefix)), cString([]byte(other), len(other)))
}

func errPrefixTwice(prefix, other string) store.Error {
	return errf("ERR Prefix '%s' overlaps with another provided prefix '%s'. Prefixes for a single client must not overlap.", cString([]byte(prefix), len(prefix)), cString([]byte(other), len(other)))
}

func errHelloOption(opt []byte) store.Error {
	return errf("ERR Syntax error in HELLO option '%s'", cString(opt, len(opt)))
}

func errClientType(arg []byte) store.Error {
	return errf("ERR Unknown client type '%s'", cString(arg, len(arg)))
}

func errNoSuchUser(arg []byte) store.Error {
	return errf("ERR No such user '%s'", cString(arg, len(arg)))
}

func errSentinelOption(command string, option []byte) store.Error {
	return errf("ERR Unknown option or number of arguments for SENTINEL %s '%s'", command, cString(option, len(option)))
}

func errUnknownNode(name []byte) store.Error {
	return errf("ERR Unknown node %s", cString(name, len(name)))
}

func errUnknownParam(name []byte) store.Error {
	return errf("ERR Unknown option or number of arguments for CONFIG SET - '%s'", cString(name, len(name)))
}

func errRewrite(err error) store.Error {
	return errf("ERR Rewriting config file: %s", err)
}

func errParam(name, why string) store.Error {
	return errf("ERR CONFIG SET failed (possibly related to argument '%s') - %s", name, why)
}

func errUnknownCategory(arg []byte) store.Error {
	return errf("ERR Unknown category '%s'", cString(arg, maxQuoted))
}

// errUnmatched is the error for a selector without a closing parenthesis. The argument rule is the beginning of the
// selector.
func errUnmatched(rule string) store.Error {
	return errf("ERR Unmatched parenthesis in acl selector starting at '%s'.", cString([]byte(rule), len(rule)))
}

func errDryRunUser(arg []byte) store.Error {
	return errf("ERR User '%s' not found", cString(arg, len(arg)))
}

func errDryRunCommand(arg []byte) store.Error {
	return errf("ERR Command '%s' not found", cString(arg, len(arg)))
}

// These are reasons for which CONFIG SET refuses a value.
const (
	faultNoInteger = "argument couldn't be parsed into an integer"
	faultNoBool    = "argument must be 'yes' or 'no'"
	faultDefrag    = "Active defragmentation cannot be enabled: it requires a Redis server compiled with a modified Jemalloc like the one shipped by default with the Redis source distribution"
)

// faultFiles is Redis's error for a maxclients that needs more files than the process may open.
func faultFiles(most int) string {
	return fmt.Sprintf("The operating system is not able to handle the specified number of clients, try with %d", most)
}

func faultRange(low, high int64) string {
	return fmt.Sprintf("argument must be between %d and %d inclusive", low, high)
}

// faultOlder is why CONFIG SET refuses a parameter that an old node in the cluster would not follow.
const faultOlder = "a node of the cluster may run version 0.1.0, which does not know it: upgrade all nodes first"

// maxParamBytes is the maximum length in bytes of a value in CONFIG SET, because nodes store the values.
const (
	maxParamBytes = 64 << 10
	faultLong     = "argument is too long, a parameter may have 65536 bytes"
)

// faultPinned is why CONFIG SET refuses a parameter that Redis can change while it runs, but this server cannot.
const faultPinned = "can't be changed while the server runs: start it with another --listen"

// errNotRegular is the error for an ACL file that is not a regular file.
var errNotRegular = errors.New("it is not a regular file")

func faultOpening(path, why string) error {
	return fmt.Errorf("Error loading ACLs, opening file '%s': %s", path, why)
}

func faultLonger(limit int) error { return fmt.Errorf("it has more than %d bytes", limit) }

func errACLFileSize(size int) store.Error {
	return store.Error(fmt.Sprintf("ERR the users would make an ACL file of %d bytes, and no node reads one of more than %d: the file stays as it was. Delete users or rules and save again", size, maxACLFile))
}

func faultUntold(user string) error {
	return fmt.Errorf("the rules of the user %q cannot be told in a file: they hold spaces, quotes or parentheses", user)
}

const warnACLFile = "the users of the ACL file are not those of the cluster, which count: ACL LOAD takes over those of the file, ACL SAVE writes those of the cluster into it"
