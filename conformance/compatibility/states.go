package compatibility

// noEffect are the commands that answer as Redis does and change nothing, and
// why that is right here.
var noEffect = map[string]string{
	"acl|load":                      "there is no ACL file; users are part of the replicated state",
	"acl|save":                      "there is no ACL file; users are part of the replicated state",
	"asking":                        "there is no slot migration: one shard holds all slots",
	"bgrewriteaof":                  "the Raft log is the append-only file; it is compacted by snapshots",
	"bgsave":                        "nodes take their snapshots by themselves; `lockstep snapshot` takes one now",
	"client|no-evict":               "no client is evicted for its memory",
	"config|rewrite":                "there is no configuration file to write",
	"latency|doctor":                "there is nothing to diagnose: no latency is recorded",
	"latency|graph":                 "no latency is recorded",
	"memory|doctor":                 "memory is the Go runtime's",
	"memory|malloc-stats":           "memory is the Go runtime's",
	"memory|purge":                  "memory is the Go runtime's",
	"readonly":                      "every node serves reads and writes",
	"readwrite":                     "every node serves reads and writes",
	"save":                          "nodes take their snapshots by themselves; `lockstep snapshot` takes one now",
	"debug":                         "a few subcommands for tests, off by default as in Redis",
	"cluster|saveconfig":            "the members are in the Raft log",
	"cluster|count-failure-reports": "Raft decides who is alive",
}

// absent are the commands that are not here, and why: by name, or by the name
// of the container.
var absent = map[string]string{
	"failover":       "`lockstep transfer` hands over the leadership",
	"migrate":        "keys do not move between clusters; DUMP and RESTORE do it by hand",
	"module":         "Redis modules are C code",
	"pfdebug":        "no HyperLogLog",
	"psync":          "nodes replicate by Raft, not as replicas of Redis",
	"replconf":       "nodes replicate by Raft, not as replicas of Redis",
	"replicaof":      "nodes replicate by Raft: `lockstep add`",
	"slaveof":        "nodes replicate by Raft: `lockstep add`",
	"restore-asking": "there is no slot migration",
	"swapdb":         "not used by any lock client; not built",
	"sync":           "nodes replicate by Raft, not as replicas of Redis",
	"cluster":        "one shard holds all slots, and Raft knows the members; the commands that clients find it by are on the Cluster listener",
	"sentinel":       "what clients ask is on the Sentinel listener; the rest would configure a Sentinel",
	"lolwut":         "not a lock",
}

// absentGroups are data types that are not here as a whole.
var absentGroups = map[string]string{
	"geo":         "no lock client uses geo indexes",
	"hyperloglog": "no lock client uses HyperLogLog",
	"stream":      "no lock client uses streams",
}
