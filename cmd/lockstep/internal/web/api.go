package web

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"unicode/utf8"
)

//go:embed openapi.json
var openAPI []byte

const (
	apiPath    = "/api/v1/"
	eventsPath = apiPath + "events"
)

// apiRoutes are the routes that openapi.json describes.
func apiRoutes() []route {
	return []route{
		{http.MethodGet, apiPath + "openapi.json", true, (*call).apiDescription},
		{http.MethodPost, apiPath + "login", true, (*call).apiLogin},
		{http.MethodPost, apiPath + "logout", false, (*call).apiLogout},
		{http.MethodGet, apiPath + "me", false, (*call).apiMe},
		{http.MethodGet, apiPath + "overview", false, (*call).apiOverview},
		{http.MethodGet, apiPath + "locks", false, (*call).apiLocks},
		{http.MethodGet, apiPath + "lock", false, (*call).apiLock},
		{http.MethodGet, apiPath + "lock/history", false, (*call).apiHistory},
		{http.MethodPost, apiPath + "lock/force", false, (*call).apiForce},
		{http.MethodGet, apiPath + "clients", false, (*call).apiClients},
		{http.MethodGet, apiPath + "cluster", false, (*call).apiCluster},
		{http.MethodPost, apiPath + "cluster/transfer", false, (*call).apiTransfer},
		{http.MethodPost, apiPath + "cluster/remove", false, (*call).apiRemove},
		{http.MethodGet, eventsPath, false, (*call).stream},
	}
}

// writeJSON answers with a value. The client may have left: nobody is to be told.
func (c *call) writeJSON(status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		c.Log.Error("dashboard", "error", err)
		c.w.WriteHeader(http.StatusInternalServerError)
		return
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(status)
	_, _ = c.w.Write(text)
	_, _ = c.w.Write([]byte{'\n'})
}

func (c *call) writeFault(f *fault) {
	if f.status == http.StatusTooManyRequests {
		c.w.Header().Set("Retry-After", "3")
	}
	c.writeJSON(f.status, map[string]string{"error": f.text})
}

// body reads the JSON object of a request into v.
func (c *call) body(v any) error {
	text, err := io.ReadAll(c.r.Body) // checkPost has set a limit
	if err != nil && c.r.ContentLength > mostBody {
		return errBodyLarge
	}
	if err != nil || !utf8.Valid(text) { // the decoder would make another text of it, such as the name of another lock
		return errBody
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return errBody
	}
	if _, err := d.Token(); err != io.EOF {
		return errBody
	}
	return nil
}

func (c *call) apiDescription() (any, error) { return json.RawMessage(openAPI), nil }

func (c *call) apiLogin() (any, error) {
	var in struct{ User, Password string }
	if err := c.body(&in); err != nil {
		return nil, err
	}
	if err := c.logIn(in.User, in.Password); err != nil {
		return nil, err
	}
	return c.apiMe()
}

// logIn ends the session of the request, and begins another.
func (c *call) logIn(user, password string) error {
	value, err := c.login(c.r, user, password)
	if err != nil {
		return err
	}
	if c.s != nil {
		c.drop(c.s)
	}
	c.setCookie(c.w, c.r, value)
	if c.s = c.byValue(value); c.s == nil {
		return errLogin // the user has changed since
	}
	return nil
}

func (c *call) apiLogout() (any, error) {
	c.drop(c.s)
	c.setCookie(c.w, c.r, "")
	return map[string]bool{"ended": true}, nil
}

func (c *call) apiMe() (any, error) {
	return map[string]any{"user": forJSON(c.s.user), "may": c.may()}, nil
}

func (o *overview) json() any {
	missing := map[string]string{}
	for part, f := range o.missing {
		missing[part] = f.text
	}
	v := map[string]any{"missing": missing}
	if o.info != nil {
		v["info"] = forJSON(o.info)
	}
	if o.members != nil {
		v["members"] = forJSON(o.members)
	}
	if o.stats != nil {
		v["stats"] = forJSON(o.stats)
	}
	return v
}

func (c *call) apiOverview() (any, error) {
	o, err := c.overview(true)
	if err != nil {
		return nil, err
	}
	return o.json(), nil
}

func (c *call) apiLocks() (any, error) {
	q, err := c.query()
	if err != nil {
		return nil, err
	}
	s, err := parseSearch(q)
	if err != nil {
		return nil, err
	}
	p, err := c.locks(s)
	if err != nil {
		return nil, err
	}
	return map[string]any{"locks": forJSON(p.locks), "cursor": p.cursor}, nil
}

// query returns the parameters of a request. A request with one that is not well-formed is refused: without it, it would be about something
// else, such as the same key in another database.
func (c *call) query() (url.Values, error) {
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, errQuery
	}
	return q, nil
}

// keyOf returns the database and the key that a query names. A key may have any bytes.
func (c *call) keyOf() (db int, key string, err error) {
	q, err := c.query()
	if err != nil {
		return 0, "", err
	}
	if db, err = database(q); err != nil {
		return 0, "", err
	}
	if key = q.Get("key"); key == "" {
		return 0, "", errKey
	}
	return db, key, nil
}

func (c *call) apiLock() (any, error) {
	db, key, err := c.keyOf()
	if err != nil {
		return nil, err
	}
	info, waiters, err := c.lock(db, key)
	if err != nil {
		return nil, err
	}
	v := map[string]any{"info": forJSON(info)}
	if waiters != nil {
		v["waiters"] = forJSON(waiters)
	}
	return v, nil
}

func (c *call) apiHistory() (any, error) {
	db, key, err := c.keyOf()
	if err != nil {
		return nil, err
	}
	list, err := c.history(db, key, c.r.URL.Query())
	if err != nil {
		return nil, err
	}
	return map[string]any{"history": forJSON(list)}, nil
}

func (c *call) apiForce() (any, error) {
	var in struct {
		Key, Reason, Owner string
		Token              json.Number
		DB                 int
	}
	if err := c.body(&in); err != nil {
		return nil, err
	}
	if in.Key == "" { // a key that is not UTF-8 does not fit into JSON, but into the query
		in.Key = c.r.URL.Query().Get("key")
	}
	if in.DB < 0 || in.DB > mostDB {
		return nil, errNumber
	}
	n, err := c.force(in.DB, in.Key, in.Reason, in.Owner, in.Token.String())
	if err != nil {
		return nil, err
	}
	return map[string]int64{"ended": n}, nil
}

func (c *call) apiClients() (any, error) {
	list, all, err := c.clients()
	if err != nil {
		return nil, err
	}
	return map[string]any{"clients": forJSON(list), "all": all}, nil
}

func (c *call) apiCluster() (any, error) {
	list, err := c.members()
	if err != nil {
		return nil, err
	}
	return map[string]any{"members": forJSON(list)}, nil
}

func (c *call) apiTransfer() (any, error) {
	var in struct{ Member string }
	if err := c.body(&in); err != nil {
		return nil, err
	}
	return c.done(c.transfer(in.Member))
}

// transfer hands the leadership to a member; without a name, to any.
func (c *call) transfer(member string) error {
	if member == "" {
		return c.administer("LOCKSTEP", "TRANSFER")
	}
	return c.administer("LOCKSTEP", "TRANSFER", member)
}

func (c *call) apiRemove() (any, error) {
	var in struct{ Member string }
	if err := c.body(&in); err != nil {
		return nil, err
	}
	return c.done(c.remove(in.Member))
}

func (c *call) remove(member string) error {
	if member == "" {
		return errMember
	}
	return c.administer("LOCKSTEP", "REMOVE", member)
}

func (c *call) done(err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return map[string]bool{"done": true}, nil
}
