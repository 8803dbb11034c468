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
	list = append(list, dashboard(g)...)
	many := []byte(strings.Repeat("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200))
	list = append(list, input{door: webDoor, node: g.node(), pieces: [][]byte{many}, read: pick(g, readNone, readSlow), times: 20, hold: 300 * time.Millisecond})
	for range 20 {
		list = append(list, input{door: webDoor, node: g.node(), pieces: [][]byte{g.mutate([]byte("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n"))}, read: readNone})
	}
	return list
}

// dashboard makes requests to the dashboard: floods of logins and streams, slow bodies, long queries, and paths that lead out of it.
func dashboard(g *generator) (list []input) {
	const local = " HTTP/1.1\r\nHost: localhost\r\n"
	for _, p := range []string{"/ui/", "/ui/login?next=//evil.example/", "/ui/../metrics", "/ui/%2e%2e/%2e%2e/etc/passwd", "/ui/app.js/..%2f..%2fetc/passwd", "/api/v1//events", "//ui/", "/ui/lock?key=%00%ff%0d%0aSet-Cookie:%20x=y",
		"/api/v1/locks?match=" + strings.Repeat("%2a", 2000), "/api/v1/locks?" + strings.Repeat("a=b&", 30_000), "/api/v1/events", "/api/v1/lock?key=" + strings.Repeat("k", 100_000), "/api/v1/openapi.json"} {
		text := "GET " + p + local + "Cookie: lockstep-8379=" + strings.Repeat("c", g.IntN(4000)) + "\r\nOrigin: null\r\n\r\n"
		list = append(list, input{door: webDoor, node: g.node(), pieces: [][]byte{[]byte(text)}, read: pick(g, readAll, readNone), times: 1 + g.IntN(10)})
	}
	login := func(kind, body string) []byte {
		return fmt.Appendf(nil, "POST %s%sContent-Type: %s\r\nOrigin: http://localhost\r\nContent-Length: %d\r\n\r\n%s", pick(g, "/api/v1/login", "/ui/login"), local, kind, len(body), body)
	}
	for _, body := range []string{`{"user":"default","password":""}`, `{"user":"nobody","password":"guess"}`, "user=default&password=", "user=" + strings.Repeat("%ff", 20_000), strings.Repeat("[", 60_000), strings.Repeat("&", 60_000)} {
		for _, kind := range []string{"application/json", "application/x-www-form-urlencoded"} {
			list = append(list, input{door: webDoor, node: g.node(), pieces: [][]byte{login(kind, body)}, read: pick(g, readAll, readNone), times: 20})
		}
	}
	whole := login("application/json", strings.Repeat(" ", 60_000))
	for range 20 { // bodies that do not end
		list = append(list, input{door: webDoor, node: g.node(), pieces: [][]byte{whole[:len(whole)-1-g.IntN(50_000)]}, read: readNone, times: 10, hold: 300 * time.Millisecond})
		list = append(list, input{door: webDoor, node: g.node(), pieces: [][]byte{g.mutate(login("application/json", `{"user":"default","password":"x"}`))}, read: readNone})
	}
	return list
}
