// Package s3 is a stand-in for S3-compatible storage in tests: one bucket in memory, with the requests that lockstep sends. It demands a
// signature, but does not verify it. A test can let any request fail.
package s3

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Name is the name of the bucket.
const Name = "locks"

// Storage is the storage.
type Storage struct {
	URL string // the endpoint

	mu      sync.Mutex
	objects map[string][]byte
	parts   map[string]map[int][]byte // by upload, and by number
	asked   []string                  // what was asked, such as "PUT key"
	page    int                       // how many keys a list has
	uploads int
	fault   func(what string) Fault
}

// Fault is how a request fails.
type Fault struct {
	Status int  // the status of the answer, with an error in XML; 0: no fault
	Cut    bool // the answer ends in the middle; of an upload: the connection ends
	Garble bool // one byte of what is stored or sent is changed
	Hang   bool // no answer comes until the client has gone
}

// Start starts a storage, which ends with the test.
func Start(t testing.TB) *Storage {
	t.Helper()
	s := &Storage{objects: map[string][]byte{}, parts: map[string]map[int][]byte{}, page: 1000}
	server := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Fail lets the function fault say how each request fails, by its method, what it is about, and the key, such as "PUT part a/b".
func (s *Storage) Fail(fault func(what string) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Page sets how many keys one answer lists.
func (s *Storage) Page(keys int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.page = keys
}

// Put stores an object.
func (s *Storage) Put(key string, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[key] = slices.Clone(b)
}

// Get returns an object.
func (s *Storage) Get(key string) (b []byte, there bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, there = s.objects[key]
	return slices.Clone(b), there
}

// Keys returns the keys, sorted.
func (s *Storage) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

// Unfinished returns how many uploads in parts are neither complete nor given up.
func (s *Storage) Unfinished() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.parts)
}

// Asked returns what was asked so far, in the words that Fail gets.
func (s *Storage) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func (s *Storage) serve(w http.ResponseWriter, r *http.Request) {
	key, ours := strings.CutPrefix(r.URL.Path, "/"+Name)
	key = strings.TrimPrefix(key, "/")
	q := r.URL.Query()
	what := r.Method
	switch {
	case q.Has("uploads"):
		what += " begin"
	case q.Has("partNumber"):
		what += " part"
	case q.Has("uploadId"):
		what += " end"
	case key == "":
		what += " list"
	}
	what += " " + key
	if key == "" {
		what += q.Get("prefix")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, what)
	f := Fault{}
	if s.fault != nil {
		f = s.fault(what)
	}
	signed := strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=") && strings.Contains(r.Header.Get("Authorization"), "Signature=")
	switch {
	case !signed || !ours:
		refuse(w, http.StatusForbidden, "AccessDenied")
		return
	case f.Hang:
		s.mu.Unlock()
		_, _ = io.Copy(io.Discard, r.Body) // only then the server sees that the client has gone
		<-r.Context().Done()
		s.mu.Lock()
		return
	case f.Status != 0:
		refuse(w, f.Status, map[int]string{403: "AccessDenied", 404: "NoSuchKey", 503: "SlowDown"}[f.Status])
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || f.Cut && r.Method == http.MethodPut {
		panic(http.ErrAbortHandler)
	}
	if f.Garble && len(body) > 0 {
		body[len(body)/2] ^= 1
	}
	s.answer(w, r, key, body, f)
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
}

// answer executes a request.
func (s *Storage) answer(w http.ResponseWriter, r *http.Request, key string, body []byte, f Fault) {
	q := r.URL.Query()
	upload := q.Get("uploadId")
	switch {
	case r.Method == http.MethodPost && q.Has("uploads"):
		s.uploads++
		id := strconv.Itoa(s.uploads)
		s.parts[id] = map[int][]byte{}
		reply(w, struct {
			XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
			UploadId string
		}{UploadId: id})
	case upload != "" && s.parts[upload] == nil:
		refuse(w, http.StatusNotFound, "NoSuchUpload")
	case r.Method == http.MethodPut && upload != "":
		number, err := strconv.Atoi(q.Get("partNumber"))
		if err != nil {
			refuse(w, http.StatusBadRequest, "InvalidArgument")
			return
		}
		s.parts[upload][number] = body
		w.Header().Set("ETag", fmt.Sprintf("%q", "part"+strconv.Itoa(number)))
	case r.Method == http.MethodPost && upload != "":
		var whole []byte
		for _, number := range slices.Sorted(maps.Keys(s.parts[upload])) {
			whole = append(whole, s.parts[upload][number]...)
		}
		s.objects[key] = whole
		delete(s.parts, upload)
		reply(w, struct {
			XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
			Key     string
		}{Key: key})
	case r.Method == http.MethodDelete && upload != "":
		delete(s.parts, upload)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPut:
		s.objects[key] = body
	case key == "":
		s.list(w, q.Get("prefix"), q.Get("continuation-token"))
	default:
		s.get(w, r, key, f)
	}
}

func (s *Storage) get(w http.ResponseWriter, r *http.Request, key string, f Fault) {
	b, there := s.objects[key]
	if !there {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	b = slices.Clone(b)
	if f.Garble {
		b[len(b)/2] ^= 1
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	if r.Method == http.MethodHead {
		return
	}
	if f.Cut {
		_, _ = w.Write(b[:len(b)/2]) // the client may have gone
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(b)
}

func (s *Storage) list(w http.ResponseWriter, prefix, from string) {
	type object struct{ Key string }
	out := struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string   `xml:",omitempty"`
		Contents              []object `xml:"Contents"`
	}{}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(key, prefix) || key <= from {
			continue
		}
		if len(out.Contents) == s.page {
			out.IsTruncated, out.NextContinuationToken = true, "x"
			if s.page > 0 {
				out.NextContinuationToken = out.Contents[s.page-1].Key
			}
			break
		}
		out.Contents = append(out.Contents, object{key})
	}
	reply(w, out)
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(v) // the client may have gone
}
