package web

import (
	"crypto/sha256"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// Config is what the dashboard needs of a node.
type Config struct {
	Serve       func(net.Conn)                            // serves a connection as one of a RESP client, without waiting
	May         func(user string, command ...string) bool // whether a user has the right to a command that the server knows
	StillRight  func(user, hash string) bool              // whether a user is on, and has the password with this hash
	HasPassword func(user string) bool                    // whether a user exists, and needs a password
	Protected   func() bool                               // whether protected mode is on
	Near        func(*http.Request) bool                  // whether a request comes from this machine, and names it as such
	Named       func(*http.Request) bool                  // whether a request names its host as localhost or by an address
	Now         func() time.Duration                      // a clock that never runs back
	Wall        func() time.Time                          // the time of day, for the deadlines of writes
	TLS         bool                                      // clients speak TLS
	Log         *slog.Logger
}

// Handler serves /ui/ and /api/v1/.
type Handler struct {
	Config
	sessions sessions
	throttle throttle
	streams  streams
	routes   map[string]map[string]route // by path and method
}

// New makes a handler.
func New(c Config) *Handler {
	h := &Handler{Config: c}
	h.sessions.byKey = map[[sha256.Size]byte]*session{}
	h.throttle.free = map[netip.Addr]time.Duration{}
	h.routes = map[string]map[string]route{}
	for _, r := range append(apiRoutes(), uiRoutes()...) {
		if h.routes[r.path] == nil {
			h.routes[r.path] = map[string]route{}
		}
		h.routes[r.path][r.method] = r
	}
	return h
}

// mostBody is how many bytes the body of a request may have.
const mostBody = 64 << 10

// TakesBody reports whether a request may have a body.
func TakesBody(r *http.Request) bool {
	return r.Method == http.MethodPost && r.ContentLength > 0 && r.ContentLength <= mostBody &&
		(strings.HasPrefix(r.URL.Path, "/ui/") || strings.HasPrefix(r.URL.Path, "/api/v1/"))
}

func (h *Handler) near(r *http.Request) bool { return h.Near(r) }

// needsSecret reports whether only a user with a password may make a request. Under a host name that holds without protected mode, too: the
// page of any site may bring that name's address to be this node's, and a browser then takes the node for that site (DNS rebinding).
func (h *Handler) needsSecret(r *http.Request) bool {
	return !h.near(r) && h.Protected() || !h.Named(r)
}

// policy lets a page load nothing but the dashboard's own files, and no page show the dashboard in a frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

func secure(header http.Header) {
	for name, value := range map[string]string{
		"Content-Security-Policy":      policy,
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Referrer-Policy":              "same-origin", // no-referrer would make browsers send the origin null with forms
		"Cache-Control":                "no-store",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Permissions-Policy":           "camera=(), geolocation=(), microphone=()",
	} {
		header.Set(name, value)
	}
}

// call is a request on its way through a route.
type call struct {
	*Handler
	w http.ResponseWriter
	r *http.Request
	s *session // nil if nobody is logged in
}

// route is a page. do returns what to answer; nil if it has answered itself.
type route struct {
	method, path string
	open         bool // no login is needed
	do           func(*call) (any, error)
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	c := &call{Handler: h, w: w, r: r}
	ui := !strings.HasPrefix(r.URL.Path, "/api/")
	v, err := c.serve()
	switch {
	case err != nil && ui:
		c.showFault(faultOf(err))
	case err != nil:
		c.writeFault(faultOf(err))
	case v != nil:
		c.writeJSON(http.StatusOK, v)
	}
}

func (c *call) serve() (any, error) {
	methods := c.routes[c.r.URL.Path]
	if methods == nil {
		return nil, errNoPage
	}
	method := c.r.Method
	if method == http.MethodHead && c.r.URL.Path != eventsPath { // a stream does not end
		method = http.MethodGet
	}
	rt, is := methods[method]
	if !is {
		allow := "GET, HEAD"
		if _, posts := methods[http.MethodPost]; posts {
			allow += ", POST"
		}
		if _, gets := methods[http.MethodGet]; !gets {
			allow = "POST"
		}
		c.w.Header().Set("Allow", allow)
		return nil, errMethod
	}
	if !c.near(c.r) && c.Protected() && !c.TLS {
		return nil, errNeedsTLS
	}
	if method == http.MethodPost {
		if err := c.checkPost(); err != nil {
			return nil, err
		}
	}
	if c.s = c.find(c.r); c.s == nil && !rt.open {
		return nil, errLogin
	}
	return rt.do(c)
}

// checkPost refuses what a page of another site may have made a browser send. A browser names the origin of every POST. What is no browser
// names none, and must then send JSON, which a form cannot.
func (c *call) checkPost() error {
	header := c.r.Header
	origins, sites := header.Values("Origin"), header.Values("Sec-Fetch-Site")
	isJSON := mediaType(header.Get("Content-Type")) == "application/json"
	if api := strings.HasPrefix(c.r.URL.Path, "/api/"); api && !isJSON {
		return errBodyType
	} else if !api && mediaType(header.Get("Content-Type")) != "application/x-www-form-urlencoded" {
		return errBodyType
	}
	scheme := "http://"
	if c.TLS {
		scheme = "https://"
	}
	for _, o := range origins {
		if len(origins) > 1 || !strings.EqualFold(o, scheme+c.r.Host) {
			return errOrigin
		}
	}
	for _, s := range sites {
		if s != "same-origin" {
			return errOrigin
		}
	}
	if len(origins)+len(sites) == 0 && !isJSON {
		return errOrigin
	}
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, mostBody)
	return nil
}

func mediaType(header string) string {
	kind, _, _ := strings.Cut(header, ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// faultOf returns the fault that tells an error.
func faultOf(err error) *fault {
	if f, is := errors.AsType[*fault](err); is {
		return f
	}
	told, is := errors.AsType[refusal](err)
	if !is { // the server has ended the connection, and with it the login
		return &fault{http.StatusUnauthorized, "the login has ended; if this was a change, it may have taken effect"}
	}
	text := strings.ToValidUTF8(string(told), "\uFFFD")
	code, _, _ := strings.Cut(text, " ")
	switch code {
	case "NOPERM", "DENIED":
		return &fault{http.StatusForbidden, text}
	case "NOAUTH", "WRONGPASS":
		return &fault{http.StatusUnauthorized, text}
	case "CLUSTERDOWN", "LOADING", "MASTERDOWN", "BUSY", "TRYAGAIN", "READONLY", "NOREPLICAS", "OOM", "UNKILLABLE":
		return &fault{http.StatusServiceUnavailable, text}
	case "INDETERMINATE":
		return &fault{http.StatusGatewayTimeout, text}
	case "LOCKMODE", "WRONGTYPE":
		return &fault{http.StatusConflict, text}
	}
	switch {
	case strings.HasPrefix(text, "ERR unknown command"), strings.HasPrefix(text, "ERR unknown subcommand"):
		return &fault{http.StatusNotImplemented, text}
	case strings.HasPrefix(text, "ERR max number of clients"):
		return &fault{http.StatusServiceUnavailable, text}
	}
	return &fault{http.StatusBadRequest, text}
}
