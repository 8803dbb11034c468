package compatibility

// noEffect has the commands that answer as Redis does but change nothing, each with the reason why that is right here.
var noEffect = map[string]string{
	"asking":             "there is no slot migration: one shard holds all slots" + clusterOnly,
	"readonly":           "every node serves reads and writes" + clusterOnly,
	"readwrite":          "every node serves reads and writes" + clusterOnly,
	"replicaof":          onlyNoOne,
	"slaveof":            onlyNoOne,
	"debug":              "some subcommands do nothing, and some work; they are for tests, and off by default as in Redis",
	"cluster|saveconfig": "the members are in the Raft log" + clusterOnly,
}

// refused says why lockstep knows some commands but always answers them with an error.
var refused = map[string]string{
	"cluster|addslots":         oneShard,
	"cluster|addslotsrange":    oneShard,
	"cluster|bumpepoch":        "the epoch is Raft's term",
	"cluster|delslots":         oneShard,
	"cluster|delslotsrange":    oneShard,
	"cluster|flushslots":       oneShard,
	"cluster|forget":           membersOfRaft,
	"cluster|meet":             membersOfRaft,
	"cluster|replicate":        membersOfRaft,
	"cluster|reset":            membersOfRaft,
	"cluster|set-config-epoch": "the epoch is Raft's term",
	"cluster|setslot":          oneShard,
	"config|rewrite":           "there is no configuration file to write",
	"migrate":                  "lockstep moves no key to another cluster; a client can, with DUMP and RESTORE",
	"module|load":              noModules,
	"module|loadex":            noModules,
	"module|unload":            noModules,
	"psync":                    noReplicas,
	"sync":                     noReplicas,
}

const (
	oneShard      = "one shard holds all slots"
	membersOfRaft = "`lockstep add`, `lockstep remove` and `--join` change the members"
	clusterOnly   = "; off the Cluster port it is answered `ERR This instance has cluster support disabled`, as by a Redis without Cluster"
	onlyNoOne     = "the leader answers OK to NO ONE, and all else is refused, because nodes replicate by Raft; `lockstep transfer` hands leadership over"
	noModules     = "Redis modules are C code"
	noReplicas    = "nodes replicate by Raft, not as replicas of Redis"
)

// absent has the commands that lockstep does not have, each with the reason.
var absent = map[string]string{
	"pfdebug":        "no HyperLogLog",
	"restore-asking": "there is no slot migration",
}

// absentGroups has the data types that lockstep does not have at all.
var absentGroups = map[string]string{
	"geo":         "no lock client uses geo indexes",
	"hyperloglog": "no lock client uses HyperLogLog",
	"stream":      "no lock client uses streams",
}
