package store

import "testing"

const ownerValue = "0123456789abcdef"

// TestSameOwnerNX: with Env.SameOwnerNX, SET … NX of the present value replies OK, and the lease lasts as long as that promises.
func TestSameOwnerNX(t *testing.T) {
	found := 0
	d := newTestDB(t)
	d.env = Env{SameOwnerNX: true, FoundOwn: func() { found++ }}
	d.script(`
		SET lock 0123456789abcdef NX PX 1000 => +OK
		@advance 400
		SET lock 0123456789abcdef NX PX 1000 => +OK
		PTTL lock => :1000
		SET lock 0123456789abcdef PX 10 NX => +OK
		PTTL lock => :1000
		SET lock 0123456789abcdeX NX PX 1000 => nil
		SET lock 0123456789abcdef NX => nil
		SET lock 0123456789abcdef NX EXAT 1 => nil
		SET lock 0123456789abcdef NX KEEPTTL => nil
		SET lock 0123456789abcdef NX GET PX 1000 => "0123456789abcdef"
		SETNX lock 0123456789abcdef => :0
		MSETNX lock 0123456789abcdef => :0
		PTTL lock => :1000
		@advance 1001
		SET lock someone-elses-value NX PX 1000 => +OK
		SET lock 0123456789abcdef NX PX 1000 => nil
		SET plain 0123456789abcdef NX => +OK
		SET plain 0123456789abcdef NX => +OK
		TTL plain => :-1
		SET plain 0123456789abcdef NX PX 1000 => nil
		SET short 0123456789abcde NX PX 1000 => +OK
		SET short 0123456789abcde NX PX 1000 => nil
		HSET hash f v => :1
		SET hash 0123456789abcdef NX PX 1000 => nil
	`)
	if found != 0 {
		t.Errorf("told %d times of what makes no difference", found)
	}
	d.env.SameOwnerNX = false
	d.script(`
		SET plain 0123456789abcdef NX => nil
		SET short 0123456789abcde NX PX 1000 => nil
		SET lock someone-elses-value NX PX 1000 => nil
	`)
	if found != 2 {
		t.Errorf("told %d times of a value that was found, want 2", found)
	}
}

// TestSameOwnerNXKeepsTheGrace: SET … NX does not shorten a lease that counts from a late reply. Scripts get Redis's reply.
func TestSameOwnerNXKeepsTheGrace(t *testing.T) {
	d := newTestDB(t)
	d.env = Env{SameOwnerNX: true, Grace: func(seq uint64) int64 {
		if seq == 1 {
			return 50
		}
		return 0
	}}
	d.do("SET", "lock", ownerValue, "NX", "PX", "100")
	d.advance(110)
	d.script(`
		SET lock 0123456789abcdef NX PX 20 => +OK
		@advance 40
		EXISTS lock => :1
		@advance 1
		EXISTS lock => :0
	`)
	d.do("SET", "lock", ownerValue, "NX", "PX", "100")
	txn := d.begin()
	args := [][]byte{[]byte("SET"), []byte("lock"), []byte(ownerValue), []byte("NX"), []byte("PX"), []byte("100")}
	cmd, _ := d.table.Resolve(args)
	if r := cmd.Run(&Ctx{Txn: txn, Cmd: cmd, Args: args, InScript: true}); r.Kind != Null || txn.Writes().Len() != 0 {
		t.Errorf("a script was told %s", render(r))
	}
}
