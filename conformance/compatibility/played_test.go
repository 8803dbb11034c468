package compatibility

import (
	"path/filepath"
	"testing"
)

// TestPlayed: transcripts play each command of both servers with a reply, over RESP3, byte by byte and with an error, or exempt.go says
// why not.
func TestPlayed(t *testing.T) {
	corpus, err := ReadCorpus(filepath.Join("..", "transcript", "testdata"), filepath.Join("..", "discovery", "testdata"))
	if err != nil {
		t.Fatal(err)
	}
	commands, known := Commands(Table()), map[string]bool{}
	for _, c := range commands {
		if c.State == NotHere {
			continue
		}
		known[c.Name] = true
		p := corpus.Plays[c.Name]
		answers := refused[c.Name] == "" && onlyErrors[c.Name] == ""
		for _, want := range []struct {
			what  string
			plays int
			any   bool
		}{
			{"with a reply", p.Replies, answers},
			{"over RESP3", p.RESP3, answers},
			{"with a reply that is compared to the letter", p.Exact, answers && byShape[c.Name] == ""},
			{"with an error", p.Errors, noErrors[c.Name] == ""},
		} {
			switch {
			case want.any && want.plays == 0:
				t.Errorf("no transcript plays %s %s", c.Name, want.what)
			case !want.any && want.plays > 0:
				t.Errorf("exempt.go: a transcript plays %s %s", c.Name, want.what)
			}
		}
	}
	for _, list := range []map[string]string{onlyErrors, noErrors, byShape} {
		for name := range list {
			if !known[name] {
				t.Errorf("exempt.go: %s is not a command that both have", name)
			}
		}
	}
	both, replies, errors, resp3 := played(commands, corpus)
	t.Logf("%d commands in both; %d transcripts with %d commands; replies of %d, over RESP3 %d, errors of %d",
		both, corpus.Files, corpus.Commands, replies, resp3, errors)
}
