package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// database is a row of a table in PostgreSQL. Each owner has a connection of its own.
type database struct {
	t           *testing.T
	id          string
	conns       map[*holder]*pgx.Conn
	read, store string // the statements
}

func openDatabase(t *testing.T, _ redis.UniversalClient, key string) resource {
	statements := strings.Split(example(t, "sql"), ";") // the first one has added the column
	if len(statements) != 4 {
		t.Fatalf("docs/fencing.md has the statements %q", statements)
	}
	d := database{t, key, map[*holder]*pgx.Conn{}, statements[1], statements[2]}
	_, err := d.conn(t.Context(), nil).Exec(t.Context(), "INSERT INTO account (id, balance) VALUES ($1, 0)", key)
	must(t, err)
	return d
}

func (d database) conn(ctx context.Context, o *holder) *pgx.Conn {
	if d.conns[o] == nil {
		c, err := pgx.Connect(ctx, os.Getenv("LOCKSTEP_POSTGRES"))
		must(d.t, err)
		d.t.Cleanup(func() { must(d.t, c.Close(context.Background())) })
		d.conns[o] = c
	}
	return d.conns[o]
}

func (d database) begin(ctx context.Context, o *holder) (bool, error) {
	var balance int64
	err := d.conn(ctx, o).QueryRow(ctx, d.read, o.token, d.id).Scan(&balance)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (d database) write(ctx context.Context, o *holder, value int64) (bool, error) {
	done, err := d.conn(ctx, o).Exec(ctx, d.store, o.token, d.id, value)
	return err == nil && done.RowsAffected() == 1, err
}

func (d database) value(ctx context.Context) (n int64, err error) {
	err = d.conn(ctx, nil).QueryRow(ctx, "SELECT balance FROM account WHERE id = $1", d.id).Scan(&n)
	return n, err
}

// tokenHeader is the name of the object's metadata as S3 has it.
const tokenHeader = "X-Amz-Meta-Fence"

// store is an HTTP server with one object. Like S3, it has a condition for a write (If-Match) and metadata.
type store struct {
	mu          sync.Mutex
	version     int
	body, token string
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPut {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("If-Match") != s.etag() {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		s.version++
		s.body, s.token = string(body), r.Header.Get(tokenHeader)
	}
	w.Header().Set("ETag", s.etag())
	w.Header().Set(tokenHeader, s.token)
	_, _ = io.WriteString(w, s.body) // the client notices a body that is cut
}

func (s *store) etag() string { return fmt.Sprintf("%q", strconv.Itoa(s.version)) }

// object is the object in the store. seen has the version that each owner has read.
type object struct {
	url  string
	seen map[*holder]string
}

func openObject(t *testing.T, _ redis.UniversalClient, key string) resource {
	server := httptest.NewServer(&store{body: "0", token: "0"})
	t.Cleanup(server.Close)
	return object{server.URL + "/" + key, map[*holder]string{}}
}

func (o object) do(ctx context.Context, method, body string, header http.Header) (status int, value int64, h http.Header, err error) {
	req, err := http.NewRequestWithContext(ctx, method, o.url, strings.NewReader(body))
	if err != nil {
		return 0, 0, nil, err
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, 0, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode == http.StatusOK {
		value, err = strconv.ParseInt(string(text), 10, 64)
	}
	return resp.StatusCode, value, resp.Header, err
}

// begin reads the object. It returns false if a later owner has written the object.
func (o object) begin(ctx context.Context, by *holder) (bool, error) {
	_, _, header, err := o.do(ctx, http.MethodGet, "", http.Header{})
	if err != nil {
		return false, err
	}
	token, err := strconv.ParseInt(header.Get(tokenHeader), 10, 64)
	if err != nil || token > by.token {
		return false, err
	}
	o.seen[by] = header.Get("ETag")
	return true, nil
}

// write writes on the condition that the object has the version that its owner has read. If it has another one, write begins again.
func (o object) write(ctx context.Context, by *holder, value int64) (bool, error) {
	for {
		header := http.Header{"If-Match": {o.seen[by]}, tokenHeader: {strconv.FormatInt(by.token, 10)}}
		status, _, answer, err := o.do(ctx, http.MethodPut, strconv.FormatInt(value, 10), header)
		if err != nil {
			return false, err
		}
		if status == http.StatusOK {
			o.seen[by] = answer.Get("ETag")
			return true, nil
		}
		if ok, err := o.begin(ctx, by); !ok {
			return false, err
		}
	}
}

func (o object) value(ctx context.Context) (int64, error) {
	_, value, _, err := o.do(ctx, http.MethodGet, "", http.Header{})
	return value, err
}
