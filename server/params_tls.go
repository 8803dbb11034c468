package server

import (
	"cmp"
	"strconv"

	"github.com/lockstep-io/lockstep/store"
)

// secrecy are the parameters of TLS. Those with a field of TLSFiles take effect for new connections; those of the last group have no
// effect.
func secrecy(cfg *Config) []*paramDef {
	var files TLSFiles
	if cfg.TLS != nil {
		files = cfg.TLS.Files()
	}
	acting := func(name string, field func(*TLSFiles) *string) *paramDef {
		return &paramDef{name: name, value: *field(&files), tls: field}
	}
	auth := acting("tls-auth-clients", func(f *TLSFiles) *string { return &f.AuthClients })
	auth.kind, auth.words, auth.value = enumParam, []string{"no", "yes", "optional"}, cmp.Or(auth.value, "yes")
	pass := acting("tls-key-file-pass", func(f *TLSFiles) *string { return &f.KeyFilePass })
	pass.value, pass.secret = "", true
	return []*paramDef{
		{name: "tls-port", value: strconv.Itoa(cfg.TLSPort), fixed: true},
		acting("tls-cert-file", func(f *TLSFiles) *string { return &f.CertFile }),
		acting("tls-key-file", func(f *TLSFiles) *string { return &f.KeyFile }),
		pass, auth,
		acting("tls-ca-cert-file", func(f *TLSFiles) *string { return &f.CACertFile }),
		acting("tls-ca-cert-dir", func(f *TLSFiles) *string { return &f.CACertDir }),
		acting("tls-protocols", func(f *TLSFiles) *string { return &f.Protocols }),
		acting("tls-ciphers", func(f *TLSFiles) *string { return &f.Ciphers }),
		acting("tls-ciphersuites", func(f *TLSFiles) *string { return &f.Ciphersuites }),

		{name: "tls-client-cert-file"}, {name: "tls-client-key-file"}, {name: "tls-client-key-file-pass", secret: true},
		{name: "tls-dh-params-file"},
		{name: "tls-cluster", kind: boolParam, value: "no"},
		{name: "tls-replication", kind: boolParam, value: "no"},
		{name: "tls-prefer-server-ciphers", kind: boolParam, value: "no"},
		{name: "tls-session-caching", kind: boolParam, value: "no"},
		{name: "tls-session-cache-size", kind: intParam, max: 1<<31 - 1, value: "20480"},
		{name: "tls-session-cache-timeout", kind: intParam, max: 1<<31 - 1, value: "300"},
	}
}

// faultTLS is Redis's error text for TLS parameters that cannot be used.
const faultTLS = "Unable to update TLS configuration. Check server logs."

// prepareTLS reads the TLS files that a change sets. use puts them into effect for new connections. The caller holds params.setting.
func (srv *Server) prepareTLS(c change) (use func(), refusal store.Error) {
	files, first, needs := srv.cfg.TLS.Files(), "", ""
	for i, def := range c.defs {
		switch {
		case def.tls != nil:
			*def.tls(&files) = c.values[i]
			first = cmp.Or(first, def.name)
		case (def.name == "tls-cluster" || def.name == "tls-replication") && c.values[i] == "yes":
			needs = cmp.Or(needs, def.name)
		}
	}
	if needs != "" && (files.CertFile == "" || files.CACertFile == "" && files.CACertDir == "") {
		srv.cfg.Log.Warn("CONFIG SET " + needs + " is refused, as by Redis: this node has no certificate, or no authority; set tls-cert-file, tls-key-file and tls-ca-cert-file first")
		return nil, errParam(needs, faultTLS)
	}
	if first == "" {
		return func() {}, ""
	}
	use, err := srv.cfg.TLS.Prepare(files)
	if err != nil {
		srv.cfg.Log.Warn("CONFIG SET: the TLS files cannot be used, what was read before goes on to count", "error", err)
		return nil, errParam(first, faultTLS)
	}
	return use, ""
}
