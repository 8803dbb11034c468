package cluster

import (
	"bufio"
	"bytes"
	"net"
	"strconv"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/store/codec"
)

// FuzzJoin gives any bytes to both ends of the join protocol. An accepted request has an id and an address fit to be stored.
func FuzzJoin(f *testing.F) {
	request := func(id, addr string) []byte {
		return frame.End(codec.AppendStr(codec.AppendStr(frame.Begin(nil, frameJoin, 0), id), addr), 0)
	}
	for _, b := range [][]byte{
		request("n4", "host:7379"), frame.End(codec.AppendStr(request("n4", "host:7379"), "directory"), 0), request("", ""), request("n4\n", "host:1"), request("n4", "0.0.0.0:1"), request("../n4", "[::1]:99999"), request(string(bytes.Repeat([]byte("x"), 5000)), "h:1"),
		joinAnswer(joinDone, ""), joinAnswer(joinRefused, "the id is another's"), joinAnswer(joinLater, "no leader"), joinAnswer(9, "?"), []byte("+PONG\r\n"), {0, 0, 0, 2, frameJoinAnswer}, {0, 0, 0xff, 0xff},
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := readJoinAnswer(bufio.NewReader(bytes.NewReader(b)))
		if again := readJoinAnswer(bufio.NewReader(bytes.NewReader(b))); (err == nil) != (again == nil) {
			t.Errorf("%v, and then %v", err, again)
		}
		if err == nil && (len(b) < 6 || b[4] != frameJoinAnswer) {
			t.Errorf("taken in by %q", b)
		}
		fr, err := frame.ReadShort(bufio.NewReader(bytes.NewReader(b)))
		if err != nil || fr.Kind != frameJoin {
			return
		}
		r := codec.Reader{B: fr.Body}
		a := adminRequest{kind: adminJoin, id: string(r.Bytes()), addr: string(r.Bytes())}
		if len(r.B) > 0 {
			a.directory = string(r.Bytes())
		}
		if r.Bad || a.check() != nil {
			return
		}
		got, err := readAdmin(a.append(nil))
		if err != nil || got != a {
			t.Errorf("%+v is carried to the leader as %+v, %v", a, got, err)
		}
		_, port, err := net.SplitHostPort(a.addr)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || a.id == "" {
			t.Errorf("%q at %q is believed", a.id, a.addr)
		}
		for _, c := range a.id + a.addr + a.directory {
			if c == ' ' || c == ',' || c == '=' || c == utf8.RuneError || unicode.IsControl(c) {
				t.Errorf("%q at %q would be in lines and lists of others", a.id, a.addr)
			}
		}
	})
}
