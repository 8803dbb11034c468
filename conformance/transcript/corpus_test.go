package transcript_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/transcript"
	"github.com/lockstep-io/lockstep/conformance/transcript/redisd"
)

// corpus reads every transcript.
func corpus(t *testing.T) []*transcript.File {
	t.Helper()
	var files []*transcript.File
	err := filepath.WalkDir("testdata", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".txt" {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := transcript.Parse(path, src)
		if err != nil {
			return err
		}
		if !bytes.Equal(f.Format(), src) {
			t.Errorf("%s: Format(Parse(x)) differs from x", path)
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestCorpusIsWellFormed reads every golden reply back into a value and renders it again.
func TestCorpusIsWellFormed(t *testing.T) {
	for _, f := range corpus(t) {
		for i := range f.Steps {
			if err := wellFormed(&f.Steps[i]); err != nil {
				t.Errorf("%s:%d: %s: %v", f.Name, f.Steps[i].Line, f.Steps[i].Source, err)
			}
		}
	}
}

func wellFormed(s *transcript.Step) error {
	if !s.Kind.Replies() || s.Mods.NoReply {
		return nil
	}
	if len(s.Reply) == 0 && s.Kind != transcript.Raw {
		return errors.New("no golden reply; record it")
	}
	if !s.Literal() {
		return nil
	}
	rest := s.Reply
	for len(rest) > 0 && rest[0] != "(closed)" {
		v, after, err := transcript.ParseReply(rest)
		if err != nil {
			return err
		}
		if got := v.Lines(); !slices.Equal(got, rest[:len(rest)-len(after)]) {
			return fmt.Errorf("read back as %q", got)
		}
		rest = after
	}
	return nil
}

// covered lists the commands, and subcommands after a |, that must have a transcript.
const covered = `
	ping echo hello auth quit reset time select move swapdb info debug
	command|count command|docs command|getkeys command|getkeysandflags command|info command|list command
	client|id client|getname client|setname client|info client|list client|kill client|no-evict client|reply
	config|get config|set config|resetstat config|rewrite
	set get getset getdel getex setnx setex psetex mset msetnx mget append strlen incr decr incrby decrby
	incrbyfloat setrange getrange
	del unlink exists type expire pexpire expireat pexpireat ttl pttl expiretime pexpiretime persist touch
	rename renamenx copy keys scan randomkey dbsize flushdb flushall
	object|encoding object|refcount object|idletime object|freq
	hset hmset hsetnx hget hmget hgetall hkeys hvals hlen hstrlen hexists hdel hincrby hincrbyfloat hscan hrandfield
	lpush lpushx rpush rpushx lpop rpop llen lindex lset linsert lrange ltrim lrem lpos lmove rpoplpush lmpop
	blpop brpop blmove brpoplpush blmpop
	sadd srem sismember smismember smembers scard spop srandmember smove sinter sintercard sinterstore sunion sunionstore
	sdiff sdiffstore sscan
	zadd zrem zscore zmscore zincrby zcard zcount zlexcount zrank zrevrank zrange zrangestore zrangebyscore zrevrange
	zrevrangebyscore zrangebylex zrevrangebylex zremrangebyrank zremrangebyscore zremrangebylex zpopmin zpopmax zmpop
	bzpopmin bzpopmax bzmpop zrandmember zinter zinterstore zintercard zunion zunionstore zdiff zdiffstore zscan
	sort sort_ro dump restore setbit getbit bitcount bitpos bitop bitfield bitfield_ro
	eval evalsha eval_ro evalsha_ro script|load script|exists script|flush script|kill
	fcall fcall_ro function|load function|list function|delete function|dump function|restore function|flush function|stats
	function|kill function|help
	subscribe unsubscribe psubscribe punsubscribe ssubscribe sunsubscribe publish spublish
	pubsub|channels pubsub|numsub pubsub|numpat pubsub|shardchannels pubsub|shardnumsub`

// TestCorpusCoversEveryCommand: for each command, the transcripts have at least one use whose reply is no error.
func TestCorpusCoversEveryCommand(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range corpus(t) {
		for _, s := range f.Steps {
			if len(s.Args) == 0 || len(s.Reply) == 0 || strings.HasPrefix(s.Reply[0], "-") {
				continue
			}
			name := strings.ToLower(s.Args[0])
			seen[name] = true
			if len(s.Args) > 1 {
				seen[name+"|"+strings.ToLower(s.Args[1])] = true
			}
		}
	}
	// CONFIG REWRITE cannot succeed: no transcript's server has a configuration file.
	seen["config|rewrite"] = true
	for _, name := range strings.Fields(covered) {
		if !seen[name] {
			t.Errorf("no transcript shows %s succeed", name)
		}
	}
}

// servers is how many redis-servers play the corpus at once. There can be several, because playing is mostly sleeping in @advance.
const servers = 4

// TestCorpusMatchesRedis plays the whole corpus against a real redis-server.
func TestCorpusMatchesRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("plays the corpus in real time")
	}
	bin, version, err := redisd.Find()
	if err != nil {
		t.Skipf("no redis-server to compare with: %v", err)
	}
	if version != redisd.Version {
		t.Skipf("redis-server is %s, the corpus is of %s", version, redisd.Version)
	}
	queue := make(chan *transcript.File)
	var wg sync.WaitGroup
	for range servers {
		wg.Go(func() { playAll(t, bin, queue) })
	}
	for _, f := range corpus(t) {
		queue <- f
	}
	close(queue)
	wg.Wait()
}

// playAll plays the files from the queue. Without a server it still empties the queue for the sender.
func playAll(t *testing.T, bin string, queue <-chan *transcript.File) {
	s, err := redisd.Start(bin)
	if err != nil {
		t.Error(err)
	}
	for f := range queue {
		if s == nil {
			t.Errorf("%s: not played", f.Name)
			continue
		}
		before, err := s.Settings()
		if err != nil {
			t.Error(err)
		}
		transcript.Run(t, f, s)
		after, err := s.Settings()
		if err != nil {
			t.Error(err)
		}
		if before != after {
			t.Errorf("%s leaves changed settings behind", f.Name)
		}
	}
	if s != nil {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
