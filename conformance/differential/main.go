// Command differential plays random commands on lockstep and on a real
// redis-server and compares the replies and the keyspace.
//
//	go run ./conformance/differential -lockstep 127.0.0.1:6379 -commands 1000000
//
// A run consists of episodes. Each episode has its own seed and begins on empty servers. The first difference ends the run. The
// program then reduces the episode to the commands that lead to the difference. It prints these as a transcript (see
// conformance/transcript), which can be recorded and kept. -seed N -commands 1 plays the episode with the seed N again.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/lockstep-io/lockstep/conformance/transcript/redisd"
)

// episode is the number of commands between two resets.
const episode = 2000

// progress is the number of commands after which a run reports how far it is.
const progress = 100_000

func main() {
	ours := flag.String("lockstep", "127.0.0.1:6379", "`host:port` of a lockstep node; everything in it is deleted")
	theirs := flag.String("redis", "", "`host:port` of a redis-server; without it one is started")
	total := flag.Int("commands", 100_000, "how many commands to play, at least")
	seed := flag.Uint64("seed", 1, "seed of the first episode; the next ones count on from it")
	flag.Parse()
	if err := run(*ours, *theirs, *total, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "differential:", err)
		os.Exit(1)
	}
}

func run(ours, theirs string, total int, seed uint64) error {
	if theirs == "" {
		bin, _, err := redisd.Find()
		if err != nil {
			return err
		}
		srv, err := redisd.Start(bin)
		if err != nil {
			return err
		}
		defer srv.Close()
		theirs = srv.Addr()
	}
	p, err := open(ours, theirs)
	if err != nil {
		return err
	}
	defer p.close()
	for next := progress; p.played.commands < total; seed++ {
		if p.played.commands >= next {
			fmt.Printf("%d commands, up to seed %d\n", p.played.commands, seed-1)
			next += progress
		}
		steps := stepsOf(seed)
		p.notify, p.encodings = seed%4 != 0, encodings(seed)
		d, err := p.play(steps)
		if err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
		if d != nil {
			return report(p, seed, steps, d)
		}
	}
	fmt.Printf("%v, no difference\n", p.played)
	return nil
}

func stepsOf(seed uint64) []step {
	g := newGenerator(seed)
	steps := make([]step, episode)
	for i := range steps {
		steps[i] = g.next()
	}
	return steps
}

// report shortens an episode and returns its difference as an error.
func report(p *players, seed uint64, steps []step, d *difference) error {
	if d.at >= 0 {
		steps = steps[:d.at+1]
	}
	steps, short, err := fewest(p, steps)
	if err != nil {
		return err
	}
	if short == nil {
		return fmt.Errorf("seed %d, not seen again: %s", seed, d)
	}
	d = short
	fmt.Print(asTranscript(steps))
	return fmt.Errorf("seed %d: %s", seed, d)
}
