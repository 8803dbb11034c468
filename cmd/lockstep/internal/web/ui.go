package web

import (
	"bytes"
	"crypto/subtle"
	"embed"
	"html/template"
	"net/http"
	"net/url"
	"strings"
)

//go:embed pages
var files embed.FS

const (
	overviewPath = "/ui/"
	loginPath    = "/ui/login"
	locksPath    = "/ui/locks"
	lockPagePath = "/ui/lock"
	clusterPath  = "/ui/cluster"
)

// templates are the pages, each with the layout and the parts that several pages have.
var templates = func() map[string]*template.Template {
	m := map[string]*template.Template{}
	for _, name := range []string{"login", "fault", "overview", "locks", "lock", "clients", "cluster", "events"} {
		m[name] = template.Must(template.New(name).Funcs(functions).ParseFS(files, "pages/layout.html", "pages/members.html", "pages/timeline.html", "pages/"+name+".html"))
	}
	return m
}()

// entry is an entry of the menu.
type entry struct{ Name, Path, Title string }

var menu = []entry{{"overview", overviewPath, "Overview"}, {"locks", locksPath, "Locks"}, {"clients", "/ui/clients", "Clients"}, {"cluster", clusterPath, "Cluster"}, {"events", "/ui/events", "Events"}}

// view is what a template shows.
type view struct {
	Page, Title, Notice string
	User, Form          string // empty if nobody is logged in
	Nav                 []entry
	May                 map[string]bool
	Data                any
}

func uiRoutes() []route {
	get, post := http.MethodGet, http.MethodPost
	return []route{
		{get, overviewPath, false, (*call).uiOverview},
		{get, loginPath, true, (*call).uiLoginForm},
		{post, loginPath, true, (*call).uiLogin},
		{post, "/ui/logout", false, (*call).uiLogout},
		{get, locksPath, false, (*call).uiLocks},
		{get, lockPagePath, false, (*call).uiLock},
		{post, "/ui/lock/force", false, (*call).uiForce},
		{get, "/ui/clients", false, (*call).uiClients},
		{get, clusterPath, false, (*call).uiCluster},
		{post, "/ui/cluster/transfer", false, (*call).uiTransfer},
		{post, "/ui/cluster/remove", false, (*call).uiRemove},
		{get, "/ui/events", false, (*call).uiEvents},
		{get, "/ui/app.js", true, file("pages/app.js", "text/javascript; charset=utf-8")},
		{get, "/ui/style.css", true, file("pages/style.css", "text/css; charset=utf-8")},
		{get, "/ui/icon.svg", true, file("pages/icon.svg", "image/svg+xml")},
	}
}

// file returns a handler of a file that every visitor may have.
func file(name, kind string) func(*call) (any, error) {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // the program was built without it
	}
	return func(c *call) (any, error) {
		c.w.Header().Set("Content-Type", kind)
		_, _ = c.w.Write(text) // it fails if the client has left
		return nil, nil
	}
}

// show answers with a page.
func (c *call) show(status int, page, title, notice string, data any) (any, error) {
	v := view{Page: page, Title: title, Notice: notice, Data: data}
	if c.s != nil {
		v.User, v.Form, v.May, v.Nav = c.s.user, c.s.form, c.may(), menu
	}
	var b bytes.Buffer
	if err := templates[page].ExecuteTemplate(&b, "layout", v); err != nil {
		c.Log.Error("dashboard", "page", page, "error", err)
		c.w.WriteHeader(http.StatusInternalServerError)
		return nil, nil
	}
	c.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	c.w.WriteHeader(status)
	_, _ = c.w.Write(b.Bytes()) // it fails if the client has left
	return nil, nil
}

// showFault answers with the page of an error. Who has to log in first gets that page.
func (c *call) showFault(f *fault) {
	if f == errLogin {
		to := loginPath
		if c.r.Method == http.MethodGet && c.r.URL.Path != overviewPath {
			to += "?next=" + url.QueryEscape(c.r.URL.RequestURI())
		}
		c.goTo(to)
		return
	}
	if f.status == http.StatusUnauthorized { // the login has ended meanwhile
		c.s = nil
	}
	_, _ = c.show(f.status, "fault", http.StatusText(f.status), "", visible(f.text))
}

// goTo sends the browser to another page of the dashboard.
func (c *call) goTo(path string) {
	c.w.Header().Set("Location", path)
	c.w.WriteHeader(http.StatusSeeOther)
}

// next returns the page to which a login leads: one of the dashboard's own, whatever the request says.
func (c *call) next() string {
	u, err := url.Parse(c.r.URL.Query().Get("next"))
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" || u.User != nil || !strings.HasPrefix(u.Path, "/ui/") || u.Path == loginPath {
		return overviewPath
	}
	if _, gets := c.routes[u.Path][http.MethodGet]; !gets {
		return overviewPath
	}
	return (&url.URL{Path: u.Path, RawQuery: u.Query().Encode()}).String()
}

type loginView struct{ Next, Error string }

func (c *call) uiLoginForm() (any, error) {
	if c.s != nil {
		c.goTo(c.next())
		return nil, nil
	}
	return c.show(http.StatusOK, "login", "Log in", "", loginView{Next: c.next()})
}

// fields returns the fields of a form, which must be of this login.
func (c *call) fields() (url.Values, error) {
	if err := c.r.ParseForm(); err != nil {
		return nil, errBody
	}
	if c.s != nil && subtle.ConstantTimeCompare([]byte(c.r.PostForm.Get("form")), []byte(c.s.form)) != 1 {
		return nil, errForm
	}
	return c.r.PostForm, nil
}

func (c *call) uiLogin() (any, error) {
	next := c.next()
	if err := c.r.ParseForm(); err != nil {
		return nil, errBody
	}
	if err := c.logIn(c.r.PostForm.Get("user"), c.r.PostForm.Get("password")); err != nil {
		f := faultOf(err)
		c.s = nil
		return c.show(f.status, "login", "Log in", "", loginView{next, visible(f.text)})
	}
	c.goTo(next)
	return nil, nil
}

func (c *call) uiLogout() (any, error) {
	if _, err := c.fields(); err != nil {
		return nil, err
	}
	c.drop(c.s)
	c.setCookie(c.w, c.r, "")
	c.goTo(loginPath)
	return nil, nil
}
