package server

import "testing"

// TestAbsentCommands: the error for a command of Redis that lockstep does not have says why.
func TestAbsentCommands(t *testing.T) {
	c := newTestServer(t, nil).dial(t)
	c.do("XADD s * a b", "-ERR unknown command 'XADD', with args beginning with: 's' '*' 'a' 'b' ("+noStreams+")\r\n")
	c.do("geoadd k", "-ERR unknown command 'geoadd', with args beginning with: 'k' ("+noGeo+")\r\n")
	c.do("NOSUCH k", "-ERR unknown command 'NOSUCH', with args beginning with: 'k' \r\n")
	c.do(`EVAL "return redis.pcall('XADD','s','*','a','b')" 0`, "-ERR Unknown Redis command called from script ("+noStreams+")\r\n")
	c.do(`EVAL "return redis.pcall('geoadd')" 0`, "-ERR Unknown Redis command called from script ("+noGeo+")\r\n")
	c.do(`EVAL "return redis.pcall('nosuch')" 0`, "-ERR Unknown Redis command called from script\r\n")
	for _, name := range []string{"xadd", "geoadd", "pfcount"} {
		if newTestServer(t, nil).table.Lookup([]byte(name)) != nil {
			t.Errorf("%s is in the table", name)
		}
	}
}
