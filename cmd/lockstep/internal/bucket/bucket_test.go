package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/s3"
)

const secret = "the-secret-access-key"

// environment returns a function that finds variables in a map.
func environment(v map[string]string) func(string) string {
	return func(name string) string { return v[name] }
}

// open opens the bucket of a storage, with small parts and short pauses.
func open(t *testing.T, s *s3.Storage, change ...func(*Options)) *Bucket {
	t.Helper()
	o := Options{Endpoint: s.URL, PartSize: 1000, Pause: time.Millisecond, Getenv: environment(map[string]string{"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": secret})}
	for _, c := range change {
		c(&o)
	}
	b, key, err := Open("s3://"+s3.Name+"/a/b c", o)
	if err != nil || key != "a/b c" {
		t.Fatal(key, err)
	}
	return b
}

func random(n int) []byte {
	r, b := rand.New(rand.NewPCG(uint64(n), 1)), make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// got reads an object.
func got(t *testing.T, b *Bucket, key string) ([]byte, error) {
	t.Helper()
	in, err := b.Get(t.Context(), key)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(in)
}

// TestObjects: objects of all sizes come back as they were, in one piece or in parts; they are listed page by page, and removed.
func TestObjects(t *testing.T) {
	s := s3.Start(t)
	s.Page(2)
	b := open(t, s)
	var keys []string
	for _, n := range []int{0, 1, 1000, 1001, 3000, 12_345} {
		key := fmt.Sprintf("a/%05d é+%%.x", n)
		keys = append(keys, key)
		if there, err := b.Has(t.Context(), key); there || err != nil {
			t.Errorf("%s: %v, %v", key, there, err)
		}
		if err := b.Put(t.Context(), key, bytes.NewReader(random(n)), int64(n)); err != nil {
			t.Fatal(err)
		}
		if there, err := b.Has(t.Context(), key); !there || err != nil {
			t.Errorf("%s: %v, %v", key, there, err)
		}
		if back, err := got(t, b, key); err != nil || !bytes.Equal(back, random(n)) {
			t.Errorf("%s: %d bytes, %v", key, len(back), err)
		}
	}
	s.Put("other", nil)
	if list, err := b.List(t.Context(), "a/"); err != nil || !slices.Equal(list, keys) {
		t.Errorf("%q, %v", list, err)
	}
	if err := b.Remove(t.Context(), keys[0]); err != nil || len(s.Keys()) != len(keys) {
		t.Error(err, s.Keys())
	}
	if _, err := b.Get(t.Context(), keys[0]); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
}

// TestFaults: each fault of the storage is an error that names the object and no secret. Faults that pass are tried again. An upload that failed
// leaves no parts.
func TestFaults(t *testing.T) {
	for _, size := range []int{500, 2500} {
		for name, c := range map[string]struct {
			fails func(what string, times int) s3.Fault
			err   string
		}{
			"two errors":   {func(_ string, n int) s3.Fault { return s3.Fault{Status: map[bool]int{true: 500}[n < 2]} }, ""},
			"a cut upload": {func(_ string, n int) s3.Fault { return s3.Fault{Cut: n < 1} }, ""},
			"busy for long": {func(what string, _ int) s3.Fault {
				return s3.Fault{Status: map[bool]int{true: 503}[strings.HasPrefix(what, "PUT")]}
			}, "503"},
			"no rights":       {func(string, int) s3.Fault { return s3.Fault{Status: 403} }, "AccessDenied"},
			"always cut":      {func(what string, _ int) s3.Fault { return s3.Fault{Cut: strings.HasPrefix(what, "PUT")} }, "EOF"},
			"never an answer": {func(what string, _ int) s3.Fault { return s3.Fault{Hang: strings.HasPrefix(what, "PUT")} }, "a/key"},
			"the end is refused": {func(what string, _ int) s3.Fault {
				return s3.Fault{Status: map[bool]int{true: 500}[strings.HasPrefix(what, "POST end") || what == "PUT a/key"]}
			}, "500"},
		} {
			s := s3.Start(t)
			times := map[string]int{}
			s.Fail(func(what string) s3.Fault {
				f := c.fails(what, times[what])
				times[what]++
				return f
			})
			b := open(t, s, func(o *Options) { o.Idle = 300 * time.Millisecond })
			err := b.Put(t.Context(), "a/key", bytes.NewReader(random(size)), int64(size))
			if (err != nil) != (c.err != "") || err != nil && (!strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), "s3://locks/a/key") || strings.Contains(err.Error(), secret)) {
				t.Errorf("%s, %d bytes: %v", name, size, err)
			}
			if back, there := s.Get("a/key"); there != (c.err == "") || there && !bytes.Equal(back, random(size)) {
				t.Errorf("%s, %d bytes: %d bytes are there, %v", name, size, len(back), there)
			}
			if s.Unfinished() > 0 {
				t.Errorf("%s, %d bytes: parts are left", name, size)
			}
		}
	}
}

// TestReadsThatFail: an object that is cut, a storage that hangs, and a list without an end.
func TestReadsThatFail(t *testing.T) {
	s := s3.Start(t)
	s.Put("a/key", random(5000))
	b := open(t, s, func(o *Options) { o.Idle = 300 * time.Millisecond })
	s.Fail(func(string) s3.Fault { return s3.Fault{Cut: true} })
	if back, err := got(t, b, "a/key"); err == nil || len(back) >= 5000 {
		t.Errorf("cut: %d bytes, %v", len(back), err)
	}
	s.Fail(func(string) s3.Fault { return s3.Fault{Hang: true} })
	if _, err := got(t, b, "a/key"); err == nil {
		t.Error("a storage that hangs")
	}
	if _, err := b.List(t.Context(), "a/"); err == nil {
		t.Error("a list that hangs")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Put(ctx, "a/other", bytes.NewReader(random(3000)), 3000); !errors.Is(err, context.Canceled) {
		t.Errorf("after a signal: %v", err)
	}
	s.Fail(nil)
	s.Page(0) // each page is empty, and says that more follows
	if _, err := b.List(t.Context(), "a/"); err == nil || !strings.Contains(err.Error(), "without an end") {
		t.Errorf("a list without an end: %v", err)
	}
}

// TestOptions: where the storage is and who asks come from flags, variables and files, and errors show no secret.
func TestOptions(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", "# comment\n[other]\naws_access_key_id = x\n\n[default]\nAWS_ACCESS_KEY_ID=me\naws_secret_access_key = "+secret+"\n")
	half := file("half", "[default]\naws_secret_access_key = "+secret+"\n")
	for _, c := range []struct {
		url  string
		opts Options
		env  map[string]string
		err  string
	}{
		{"s3://b/k", Options{CredentialsFile: good}, nil, ""},
		{"s3://b/k", Options{}, map[string]string{"AWS_SHARED_CREDENTIALS_FILE": good}, ""},
		{"s3://b/k", Options{}, map[string]string{"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": "http://h:1"}, ""},
		{"s3://b/k", Options{CredentialsFile: good}, map[string]string{"AWS_PROFILE": "other"}, "profile"},
		{"s3://b/k", Options{CredentialsFile: half}, nil, "aws_access_key_id"},
		{"s3://b/k", Options{CredentialsFile: filepath.Join(dir, "none")}, nil, "no such file"},
		{"s3://b/k", Options{CredentialsFile: file("long", strings.Repeat("x", maxSmall+1))}, nil, "more than"},
		{"s3://b/k", Options{}, nil, "AWS_ACCESS_KEY_ID"},
		{"s3://b", Options{CredentialsFile: good}, nil, "s3://BUCKET/KEY"},
		{"s3:///k", Options{CredentialsFile: good}, nil, "s3://BUCKET/KEY"},
		{"s3://user:pass@b/k", Options{CredentialsFile: good}, nil, "s3://BUCKET/KEY"},
		{"file", Options{CredentialsFile: good}, nil, "s3://BUCKET/KEY"},
		{"s3://b/k", Options{CredentialsFile: good, Endpoint: "ftp://h"}, nil, "endpoint"},
		{"s3://b/k", Options{CredentialsFile: good, Endpoint: "http://me:" + secret + "@h"}, nil, "endpoint"},
		{"s3://b/k", Options{CredentialsFile: good}, map[string]string{"AWS_CA_BUNDLE": good}, "no certificate"},
	} {
		c.opts.Getenv = environment(c.env)
		_, _, err := Open(c.url, c.opts)
		if (err != nil) != (c.err != "") || err != nil && (!strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), secret)) {
			t.Errorf("%s, %v: %v", c.url, c.env, err)
		}
	}
}
