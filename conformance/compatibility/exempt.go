package compatibility

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The maps below say what the transcripts need not show, and why. TestPlayed fails for an entry that is no longer true.

// onlyErrors says why transcripts have only error replies for some commands. The commands in refused count as such, too.
var onlyErrors = map[string]string{
	"acl|load":         "the recorded Redis has no ACL file; one that has answers OK, as lockstep does",
	"acl|save":         "the recorded Redis has no ACL file; one that has answers OK, as lockstep does",
	"cluster|failover": "a failover of the recorded cluster would change what is recorded after it",
	"failover":         "the recorded Redis has no replicas",
	"latency|graph":    "nothing that can be recorded takes so long",
	"shutdown":         "a server that ends answers nothing; cmd/lockstep's tests end one",
}

// noErrors has the commands that accept any arguments, so that no transcript can show one of them fail.
var noErrors = map[string]string{
	"command|docs":       anyNames,
	"command|info":       anyNames,
	"latency|histogram":  anyNames,
	"latency|reset":      anyNames,
	"pubsub|numsub":      anyNames,
	"pubsub|shardnumsub": anyNames,
	"punsubscribe":       anyNames,
	"sunsubscribe":       anyNames,
	"unsubscribe":        anyNames,
}

const anyNames = "any number of names is right, and one that there is not is no error"

// byShape says why the replies to some commands can be compared only by types and fields.
var byShape = map[string]string{
	"acl|genpass":                   "random",
	"asking":                        ofCluster,
	"client|id":                     ofServer,
	"client|info":                   ofServer,
	"cluster|count-failure-reports": ofCluster,
	"cluster|countkeysinslot":       ofCluster,
	"cluster|getkeysinslot":         ofCluster,
	"cluster|help":                  ofCluster,
	"cluster|info":                  ofCluster,
	"cluster|keyslot":               ofCluster,
	"cluster|links":                 ofCluster,
	"cluster|myid":                  ofCluster,
	"cluster|nodes":                 ofCluster,
	"cluster|replicas":              ofCluster,
	"cluster|saveconfig":            ofCluster,
	"cluster|shards":                ofCluster,
	"cluster|slaves":                ofCluster,
	"cluster|slots":                 ofCluster,
	"command|count":                 "the two do not have the same commands",
	"hello":                         ofServer,
	"lastsave":                      ofTime,
	"latency|doctor":                ownWords,
	"lolwut":                        "each server draws its own picture",
	"memory|doctor":                 ownWords,
	"memory|malloc-stats":           ofAllocator,
	"memory|stats":                  ofAllocator,
	"readonly":                      ofCluster,
	"readwrite":                     ofCluster,
	"time":                          ofTime,
}

const (
	ofAllocator = "figures of the allocator, and Go has another one than Redis"
	ofCluster   = "recorded by their shape alone, from a real Redis Cluster (conformance/discovery)"
	ofServer    = "ids, addresses and version of one server"
	ofTime      = "the time"
	ownWords    = "a text for people, in lockstep's own words"
)

// played counts the commands of both servers, and those of them that transcripts play.
func played(commands []Command, corpus *Corpus) (both, replies, errors, resp3 int) {
	for _, c := range commands {
		if c.State == NotHere {
			continue
		}
		both++
		p := corpus.Plays[c.Name]
		for _, n := range []struct{ plays, commands *int }{{&p.Replies, &replies}, {&p.Errors, &errors}, {&p.RESP3, &resp3}} {
			if *n.plays > 0 {
				*n.commands++
			}
		}
	}
	return both, replies, errors, resp3
}

func writePlayed(b *strings.Builder, commands []Command, corpus *Corpus) {
	both, replies, errors, resp3 := played(commands, corpus)
	fmt.Fprintf(b, `
%d commands and subcommands are in both. %d transcripts recorded from redis-server 7.0.15 play all of them, %d commands in all, and a node must give the
same replies. For %d commands the transcripts show a reply that is no error, for %d of them over RESP3, too. For %d commands they show an error. The other commands always
reply with an error, or never do (conformance/compatibility/exempt.go). Of the following commands only the shape of the reply is compared, mostly because the
replies cannot be equal:
`, both, corpus.Files, corpus.Commands, replies, resp3, errors)
	reasons := map[string][]string{}
	for name, why := range byShape {
		reasons[why] = append(reasons[why], display(name))
	}
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		slices.Sort(reasons[why])
		fmt.Fprintf(b, "- %s: %s\n", strings.Join(reasons[why], ", "), why)
	}
}

// display returns a command's name as people write it.
func display(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "|", " ")) }
