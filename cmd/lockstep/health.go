package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/show"
)

// healthOptions are the flags of `lockstep health`. Those that have the names of flags of serve have the same environment variables.
type healthOptions struct {
	addr    string
	tls     bool
	timeout time.Duration
	out     outputOptions
}

func (o *healthOptions) define(fs *flag.FlagSet) {
	fs.StringVar(&o.addr, "http-listen", "127.0.0.1:8379", "`host:port` of the node's --http-listen")
	fs.BoolVar(&o.tls, "http-tls", false, "the node has --http-tls: speak TLS, with whatever certificate it shows")
	fs.DurationVar(&o.timeout, "timeout", 2*time.Second, "how long to wait for the node")
	o.out.define(fs)
}

// health asks the node on this machine whether it is ready. It serves as the health check in a
// container without a shell and curl.
func health(args []string, stdout io.Writer) error {
	var o healthOptions
	fs := flag.NewFlagSet("health", flag.ContinueOnError)
	o.define(fs)
	if err := parse(fs, args); err != nil {
		return helped(fs, stdout, err)
	}
	if fs.NArg() > 0 {
		return usageError{fmt.Errorf("health: unexpected argument %q", fs.Arg(0))}
	}
	host, port, err := net.SplitHostPort(o.addr)
	if err != nil {
		return usageError{fmt.Errorf("--http-listen %q: want the host:port that the node has, such as 127.0.0.1:8379", o.addr)}
	}
	if everywhere(host) {
		host = "localhost"
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	scheme := "http://"
	if o.tls {
		scheme = "https://"
	}
	return probe(ctx, scheme+net.JoinHostPort(host, port)+"/readyz", func(text string) error {
		return o.out.print(stdout, show.Record{{Name: "ready", Value: true}, {Name: "text", Value: text}}, "%s", show.Visible(text))
	})
}

// probe requests a node's page /readyz. It calls tell with the answer if the node is ready, and else returns it as an error.
func probe(ctx context.Context, url string, tell func(text string) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return usageError{err}
	}
	// The certificate is not verified, because it may be for another host name. The node is on this machine, and the request has
	// no secrets.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		if strings.HasPrefix(url, "http:") {
			return fmt.Errorf("no node answers: %w; a node with --http-tls is asked with --http-tls (LOCKSTEP_HTTP_TLS=true)", err)
		}
		return fmt.Errorf("no node answers: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1024))
	if err != nil {
		return fmt.Errorf("the node's answer is cut off: %w", err)
	}
	text := strings.TrimSpace(string(body))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the node is not ready: %s: %s", resp.Status, text)
	}
	return tell(text)
}
