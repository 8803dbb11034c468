// Beside plays hostile scripts on two servers, lockstep and redis-server 7.0.15. It prints each script whose replies differ, that
// took too long, or that left something behind:
//
//	redis-server --port 7777 --save '' &
//	lockstep serve --ephemeral --listen 127.0.0.1:7778 &
//	go run ./conformance/hostile/scripts/beside -redis 127.0.0.1:7777 -lockstep 127.0.0.1:7778 -n 100000
package main

import (
	"bufio"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/lockstep-io/lockstep/conformance/hostile/scripts"
	"github.com/lockstep-io/lockstep/conformance/transcript"
)

// patience is how long a server may take for one script. It is longer than the time limit of scripts.
const patience = 20 * time.Second

type server struct {
	conn net.Conn
	in   *bufio.Reader
}

func dial(addr string) (*server, error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	return &server{conn: conn, in: bufio.NewReaderSize(conn, 1<<16)}, nil
}

// do sends a command and returns the reply.
func (s *server) do(args ...string) (v transcript.Value, err error) {
	if err = s.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return v, err
	}
	if _, err = s.conn.Write(transcript.AppendCommand(nil, args...)); err != nil {
		return v, err
	}
	return transcript.ReadValue(s.in)
}

// redial waits until a server that has ended is started again.
func redial(addr string) (s *server, err error) {
	for began := time.Now(); time.Since(began) < patience; time.Sleep(200 * time.Millisecond) {
		if s, err = dial(addr); err == nil {
			return s, nil
		}
	}
	return nil, err
}

func main() {
	redis := flag.String("redis", "", "address of redis-server 7.0.15; without it nothing is compared")
	lockstep := flag.String("lockstep", "127.0.0.1:6379", "address of lockstep")
	from := flag.Uint64("from", 0, "the first seed")
	n := flag.Uint64("n", 1000, "how many scripts")
	loose := flag.Bool("loose", true, "play also what runs into limits")
	flag.Parse()
	found, err := play(*lockstep, *redis, *from, *n, *loose)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%d scripts from seed %d: %d findings\n", *n, *from, found)
	if found > 0 {
		os.Exit(1)
	}
}

func play(lockstep, redis string, from, n uint64, loose bool) (found int, err error) {
	ours, err := dial(lockstep)
	if err != nil {
		return 0, err
	}
	var theirs *server
	if redis != "" {
		if theirs, err = dial(redis); err != nil {
			return 0, err
		}
	}
	canary, err := ours.do("EVAL", scripts.Canary, "0")
	if err != nil {
		return 0, err
	}
	for seed := from; seed < from+n; seed++ {
		s := scripts.Generate(seed)
		if s.Loose && !loose {
			continue
		}
		began := time.Now()
		got, err := ours.script(s)
		if err != nil {
			return found, fmt.Errorf("seed %d: lockstep: %w\n%s", seed, err, s.Text)
		}
		took := time.Since(began)
		if !s.Loose && scripts.Stopped(got) {
			if got, err = ours.script(s); err != nil {
				return found, fmt.Errorf("seed %d: lockstep: %w\n%s", seed, err, s.Text)
			}
		}
		after, err := ours.do("EVAL", scripts.Canary, "0")
		if err != nil {
			return found, fmt.Errorf("after seed %d: lockstep: %w\n%s", seed, err, s.Text)
		}
		why := ""
		switch {
		case !slices.Equal(after.Lines(), canary.Lines()):
			why = "it left something behind"
		case took > patience/2:
			why = fmt.Sprint("it took ", took)
		case theirs != nil && !s.Loose:
			want, err := theirs.script(s)
			switch {
			case err != nil: // some scripts end Redis; somebody outside this program must start it again
				fmt.Printf("seed %d: Redis did not answer: %v\n", seed, err)
				if theirs, err = redial(redis); err != nil {
					return found, err
				}
			case !scripts.Same(got, want):
				why = fmt.Sprintf("the replies differ:\n  here  %.1500q\n  Redis %.1500q", got.Append(nil), want.Append(nil))
			}
		}
		if why != "" {
			found++
			fmt.Printf("seed %d: %s\n%s\n\n", seed, why, s.Text)
		}
	}
	return found, nil
}

// script runs a script on an empty keyspace, in RESP2.
func (s *server) script(script scripts.Script) (v transcript.Value, err error) {
	for _, args := range [][]string{{"FLUSHALL"}, {"SCRIPT", "FLUSH"}} { // Redis keeps cjson's settings until SCRIPT FLUSH
		if v, err = s.do(args...); err != nil {
			return v, err
		}
	}
	return s.do(script.Command()...)
}
