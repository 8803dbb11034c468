package main

import (
	"fmt"

	"github.com/lockstep-io/lockstep/conformance/transcript"
)

// databases is how many databases are used.
const databases = 4

// contents has, for each type, the command that shows the content of a key. The key comes after the field "name" and before the
// field "args".
var contents = map[string]struct {
	name string
	args []string
	how  how
}{
	"string": {name: "GET"},
	"hash":   {name: "HGETALL", how: pairs},
	"list":   {name: "LRANGE", args: []string{"0", "-1"}},
	"set":    {name: "SMEMBERS", how: sorted},
	"zset":   {name: "ZRANGE", args: []string{"0", "-1", "WITHSCORES"}},
}

// keyspace compares all keys of all databases that are used.
func (p *players) keyspace() (*difference, error) {
	for db := range databases {
		if _, _, err := p.control.do("SELECT", fmt.Sprint(db)); err != nil {
			return nil, err
		}
		keys, d, err := p.compare(sorted, "KEYS", "*")
		if d != nil || err != nil {
			return d, err
		}
		for _, k := range keys.Elems {
			if d, err := p.key(k.Text); d != nil || err != nil {
				return d, err
			}
		}
	}
	return nil, nil
}

func (p *players) key(k string) (*difference, error) {
	kind, d, err := p.compare(exact, "TYPE", k)
	if d != nil || err != nil {
		return d, err
	}
	show := contents[kind.Text]
	if _, d, err = p.compare(show.how, append([]string{show.name, k}, show.args...)...); d != nil || err != nil {
		return d, err
	}
	if _, d, err = p.compare(p.encodings, "OBJECT", "ENCODING", k); d != nil || err != nil {
		return d, err
	}
	_, d, err = p.compare(near, "PEXPIRETIME", k)
	return d, err
}

// compare sends a command to both servers, compares the replies, and returns Redis's reply.
func (p *players) compare(h how, args ...string) (transcript.Value, *difference, error) {
	ours, theirs, err := p.control.do(args...)
	if err != nil || same(ours, theirs, h) {
		return theirs, nil, err
	}
	return theirs, differ(fmt.Sprintf("the keyspace at the end: %q", args), ours, theirs), nil
}
