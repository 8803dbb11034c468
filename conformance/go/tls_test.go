package conformance

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
)

// TestTLS: a client refuses nodes of another authority, and a node refuses a client without a certificate.
func TestTLS(t *testing.T) {
	l := library{client: "go-redis", modules: []string{goRedis}, mode: "plain TLS"}
	for name, c := range map[string]struct {
		config func() *tls.Config
		why    string
	}{
		"nodes_of_another_authority_are_refused":    {func() *tls.Config { return trusted("LOCKSTEP_TLS_OTHER_CA", "LOCKSTEP_TLS_CERT") }, "unknown authority"},
		"a_client_without_a_certificate_is_refused": {func() *tls.Config { return trusted("LOCKSTEP_TLS_CA", "") }, "certificate required"},
	} {
		t.Run("go-redis/"+name, func(t *testing.T) {
			a := addrsNow(t)
			report(t, l, name, l.missing(a))
			client := goredis.NewClient(&goredis.Options{Addr: a.TLS.Plain[0], TLSConfig: c.config(), MaxRetries: -1})
			defer client.Close()
			// Under TLS 1.3 the refusal of a certificate may come as a connection that is reset.
			err := client.Ping(context.Background()).Err()
			if broken := (*net.OpError)(nil); err == nil || !strings.Contains(err.Error(), c.why) && !errors.As(err, &broken) {
				t.Errorf("%v, want %s", err, c.why)
			}
		})
	}
}
