package hostile

import (
	"fmt"
	"strings"
	"time"
)

// web makes HTTP requests: good, bad, endless and slow ones.
func web(g *generator) (list []input) {
	paths := []string{"/metrics", "/healthz", "/readyz", "/", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=2", "/debug/pprof/trace?seconds=1", "/../../etc/passwd", "/%00", "/debug/pprof/cmdline", "/" + strings.Repeat("a", 100_000)}
	for _, p := range paths {
		list = append(list, input{door: webDoor, node: g.node(), pieces: [][]byte{[]byte("GET " + p + " HTTP/1.1\r\nHost: x\r\n\r\n")}, read: pick(g, readAll, readNone), times: 1 + g.IntN(5)})
	}
	var headers strings.Builder
	headers.WriteString("GET /metrics HTTP/1.1\r\nHost: x\r\n")
	for i := range 20_000 {
		fmt.Fprintf(&headers, "X-%d: %s\r\n", i, strings.Repeat("h", 100))
	}
	for _, p := range []string{headers.String(), "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 9223372036854775807\r\n\r\nx", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
		"GET /metrics?" + strings.Repeat("name[]=x&", 500) + " HTTP/1.1\r\nHost: x\r\nAccept: ;;;q=x,,application/openmetrics-text;version=99\r\nAccept-Encoding: zstd, gzip;q=1e309\r\nRange: bytes=0-0,2-2\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\xff\x04\x00\x00\x00\x00\x00", "GET /metrics HTTP/1.1\r\n" + strings.Repeat("x", 1<<20)} {
		list = append(list, input{door: webDoor, node: g.node(), pieces: [][]byte{[]byte(p)}, read: readAll})
	}
	many := []byte(strings.Repeat("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200))
	list = append(list, input{door: webDoor, node: g.node(), pieces: [][]byte{many}, read: pick(g, readNone, readSlow), times: 20, hold: 300 * time.Millisecond})
	for range 20 {
		list = append(list, input{door: webDoor, node: g.node(), pieces: [][]byte{g.mutate([]byte("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n"))}, read: readNone})
	}
	return list
}
