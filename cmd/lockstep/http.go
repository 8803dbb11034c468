package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"golang.org/x/time/rate"

	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/web"
	"github.com/lockstep-io/lockstep/server"
)

// httpOptions are the flags of serve about --http-listen.
type httpOptions struct {
	tls          bool
	guardMetrics bool
}

// These limits bound what HTTP clients may use. Probes and scrapers need a fraction of them.
const (
	httpHeaderBytes = 8 << 10
	httpHeaderTime  = 5 * time.Second
	httpReadTime    = 10 * time.Second
	httpWriteTime   = 70 * time.Second // enough for a profile of one minute
	httpIdleTime    = 30 * time.Second
	httpConnections = 128
	httpRate        = 100  // requests per second, after a burst of httpBurst
	httpBurst       = 200  // requests in such a burst
	figuresRate     = 4    // computations of /metrics per second, after a burst of figuresBurst
	figuresBurst    = 8    // how large that burst may be; a request beyond these limits gets the result of the last computation
	probeRate       = 1000 // requests per second to /healthz and /readyz: they cost little, and supervisors need them even in a flood
)

// guardian decides which clients may see a page.
type guardian struct {
	srv       *server.Server
	protected func() bool // asked at each request: CONFIG SET may turn protected mode on or off
}

// only(command, page) is a handler that shows page to a client whose ACL user may run command. Without Basic authentication, that is
// the default user. In protected mode, a client from elsewhere (near, nearHost) must name a user that needs a password.
func (g guardian) only(command string, page http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name, password, given := r.BasicAuth()
		here := near(r.RemoteAddr) && nearHost(r.Host)
		if !here && g.protected() && (!given || !g.srv.HasPassword(name)) {
			unknown(w)
			return
		}
		switch g.srv.Permits(name, password, command) {
		case server.Permitted:
			page(w, r)
		case server.Forbidden:
			http.Error(w, "this user may not run "+command, http.StatusForbidden)
		default:
			unknown(w)
		}
	}
}

func unknown(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Basic realm="lockstep", charset="UTF-8"`)
	http.Error(w, "give the name and the password of an ACL user", http.StatusUnauthorized)
}

// near reports whether a client is on this machine.
func near(addr string) bool { return loopback(addr) }

// nearHost reports whether a request names its host as localhost or by an IP address. Another name may be a foreign web page's (DNS
// rebinding).
func nearHost(host string) bool {
	if bare, _, err := net.SplitHostPort(host); err == nil {
		host = bare
	}
	return host == "localhost" || net.ParseIP(host) != nil
}

// pages returns the handler of all pages.
func pages(o options, p *parts, log *slog.Logger) http.Handler {
	g := guardian{p.server, p.server.ProtectedMode}
	registry := newRegistry(p)
	figures := rendering{kind: string(figuresFormat), render: func(w io.Writer) error { return writeFigures(w, registry) },
		pace: rate.NewLimiter(figuresRate, figuresBurst)}
	metrics := figures.serve
	if o.http.guardMetrics {
		metrics = g.only("info", metrics)
	}
	slow := http.NewServeMux()
	board := dashboard(o, p, log)
	slow.Handle("/ui/", board)
	slow.Handle("/api/v1/", board)
	slow.HandleFunc("GET /metrics", metrics)
	slow.HandleFunc("GET /debug/pprof/", g.only("debug", oneAtATime(pprof.Index)))
	slow.HandleFunc("GET /debug/pprof/profile", g.only("debug", oneAtATime(pprof.Profile)))
	return promptly(probes(p), slow)
}

// dashboard returns the handler of /ui/ and /api/v1/.
func dashboard(o options, p *parts, log *slog.Logger) http.Handler {
	return web.New(web.Config{
		Serve: func(c net.Conn) {
			go func() {
				if err := p.server.ServeConn(c); err != nil && !errors.Is(err, net.ErrClosed) {
					log.Debug("a connection of the dashboard", "error", err)
				}
			}()
		},
		May:         func(user string, command ...string) bool { return p.server.May(user, command...) },
		StillRight:  func(user, hash string) bool { return p.server.StillRight(user, hash) },
		HasPassword: func(user string) bool { return p.server.HasPassword(user) },
		Protected:   func() bool { return p.server.ProtectedMode() },
		Near:        func(r *http.Request) bool { return near(r.RemoteAddr) && nearHost(r.Host) },
		Named:       func(r *http.Request) bool { return nearHost(r.Host) },
		Now:         func() time.Duration { return p.clock.Monotonic() },
		Wall:        func() time.Time { return p.clock.Wall() },
		TLS:         o.http.tls, Log: log,
	})
}

// probes returns the handler of the pages that supervisors ask for.
func probes(p *parts) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := unready(p.node); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	return mux
}

// serveHTTP serves /healthz, /readyz, /metrics, /debug/pprof, /ui/ and /api/v1/; it returns nil without --http-listen.
func serveHTTP(o options, p *parts, log *slog.Logger) (*http.Server, error) {
	if o.httpListen == "" {
		return nil, nil
	}
	ln, err := p.listeners.http, error(nil)
	if ln == nil {
		ln, err = net.Listen("tcp", o.httpListen)
	}
	if err != nil {
		return nil, fmt.Errorf("--http-listen %s: %w; give an address of this machine and a port that no other process has, or turn it off with --http-listen \"\"", o.httpListen, err)
	}
	srv := newHTTPServer(pages(o, p, log), log)
	if o.http.tls {
		ln = p.server.Listener(ln)
	}
	go func() {
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			log.Error("http", "error", err)
		}
	}()
	return srv, nil
}

// newHTTPServer makes a server with limits, so that clients cannot make it take much memory.
func newHTTPServer(pages http.Handler, log *slog.Logger) *http.Server {
	few := newConnectionCap()
	// Without DisableGeneralOptionsHandler, net/http itself would answer OPTIONS *. It would do so at any rate of requests, and
	// would read their bodies.
	return &http.Server{Handler: withoutBody(pages), DisableGeneralOptionsHandler: true, MaxHeaderBytes: httpHeaderBytes, ReadHeaderTimeout: httpHeaderTime, ReadTimeout: httpReadTime,
		WriteTimeout: httpWriteTime, IdleTimeout: httpIdleTime, ConnState: few.note, ConnContext: few.context,
		// At a higher level than debug, strangers could fill the log by their faulty requests.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
}
