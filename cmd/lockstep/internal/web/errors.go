package web

import "net/http"

// fault is an error with the HTTP status that tells it.
type fault struct {
	status int
	text   string
}

func (f *fault) Error() string { return f.text }

// What clients are told. The texts of the server's own errors pass unchanged.
var (
	errNoPage      = &fault{http.StatusNotFound, "there is no such page"}
	errMethod      = &fault{http.StatusMethodNotAllowed, "this page does not take this method"}
	errOrigin      = &fault{http.StatusForbidden, "the request does not come from a page of this node"}
	errForm        = &fault{http.StatusForbidden, "the form is not of this login: load the page again"}
	errConfirm     = &fault{http.StatusBadRequest, "to confirm, type the name of the member that is to be removed"}
	errBodyType    = &fault{http.StatusUnsupportedMediaType, "send a body of the type application/json, or a form to a page of the dashboard"}
	errBodyLarge   = &fault{http.StatusRequestEntityTooLarge, "the body has more than 64 KB"}
	errBody        = &fault{http.StatusBadRequest, "the body is not what this page takes"}
	errNeedsTLS    = &fault{http.StatusForbidden, "from another machine, or by this host name, the dashboard needs TLS (--http-tls) and a user with a password"}
	errNeedsSecret = &fault{http.StatusForbidden, "from another machine, or by this host name, only a user with a password may log in"}
	errLogin       = &fault{http.StatusUnauthorized, "log in first"}
	errWrongLogin  = &fault{http.StatusUnauthorized, "wrong user name or password, or the user is off"}
	errManyLogins  = &fault{http.StatusTooManyRequests, "too many attempts to log in from this address: try again later"}
	errFull        = &fault{http.StatusServiceUnavailable, "too many users are logged in at this node"}
	errNoServer    = &fault{http.StatusServiceUnavailable, "the node takes no client now: it stops, or has too many"}
	errQueue       = &fault{http.StatusServiceUnavailable, "too many requests of this login wait for their answers"}
	errLate        = &fault{http.StatusGatewayTimeout, "the node did not answer in time; if this was a change, it may still take effect"}
	errEvents      = &fault{http.StatusForbidden, "this user may not listen to all channels __lock@*"}
	errStreams     = &fault{http.StatusServiceUnavailable, "too many event streams are open"}
	errNoLock      = &fault{http.StatusNotFound, "there is no such lock"}
	errKey         = &fault{http.StatusBadRequest, "name the lock by key"}
	errQuery       = &fault{http.StatusBadRequest, "the query of the address is not well-formed"}
	errNumber      = &fault{http.StatusBadRequest, "db, count, waiters, since, from and token are integers within their limits"}
	errSort        = &fault{http.StatusBadRequest, "sort is key, owner, token, ttl, age or waiters"}
	errReason      = &fault{http.StatusBadRequest, "give a reason of 1 to 1000 bytes"}
	errMember      = &fault{http.StatusBadRequest, "name a member of the cluster"}
	errReply       = &fault{http.StatusBadGateway, "the node answered something that this page does not understand"}
)
