package compatibility

import "testing"

func TestX(t *testing.T) {
	c, err := ReadCorpus("../transcript/testdata", "../discovery/testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range Commands(Table()) {
		if cmd.State == NotHere {
			continue
		}
		p := c.Plays[cmd.Name]
		if p.Replies > 0 && p.Exact == 0 {
			t.Logf("%-30s %-10s replies %d errors %d resp3 %d", cmd.Name, cmd.State[:4], p.Replies, p.Errors, p.RESP3)
		}
	}
}
