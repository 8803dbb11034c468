package server

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// The parameters of this node in its configuration file. Those of the whole cluster are in the log, and passwords belong to ACL files.

// inFile reports whether a parameter may be in the file.
func (d *paramDef) inFile() bool {
	return !d.shared && !d.faced && !d.secret && !d.fixed && !d.protected && d.name != "requirepass"
}

// SetParameters sets parameters of this node, as CONFIG SET does: all or none. pairs are names and values, as the file has them.
func (srv *Server) SetParameters(pairs []string) error {
	late := time.NewTimer(settingWait)
	defer late.Stop()
	select {
	case srv.params.setting <- struct{}{}:
		defer func() { <-srv.params.setting }()
	case <-late.C:
		return errors.New("a CONFIG SET does not end")
	}
	args := make([][]byte, len(pairs))
	for i := range pairs {
		args[i] = []byte(pairs[i])
	}
	change, err := srv.params.checkFile(args)
	if err != nil {
		return err
	}
	use, refusal := srv.prepareTLS(change)
	if refusal != "" {
		return errors.New(strings.TrimPrefix(string(refusal), "ERR "))
	}
	use()
	srv.params.commit(change)
	srv.params.mu.Lock()
	defer srv.params.mu.Unlock()
	if srv.params.written == nil {
		srv.params.written = map[*paramDef]bool{}
	}
	for _, def := range change.defs {
		srv.params.written[def] = true
	}
	return nil
}

// CheckParameters says what is wrong with parameters that a node with this configuration would set at its start.
func CheckParameters(cfg Config, pairs []string) error {
	cfg.Hub = NewHub()
	p := &params{defs: map[string]*paramDef{}, values: map[*paramDef]string{}}
	for _, def := range p.table(&cfg, nil) {
		p.defs[def.name] = def
		if def.alias != "" {
			p.defs[def.alias] = def
		}
		p.values[def] = def.value
	}
	args := make([][]byte, len(pairs))
	for i := range pairs {
		args[i] = []byte(pairs[i])
	}
	_, err := p.checkFile(args)
	return err
}

// checkFile is check for parameters of a configuration file.
func (p *params) checkFile(args [][]byte) (change, error) {
	c, refusal := p.check(args)
	if refusal != "" {
		return c, errors.New(strings.TrimPrefix(string(refusal), "ERR "))
	}
	for i, def := range c.defs {
		if !def.inFile() {
			return c, errors.New("the parameter " + string(args[2*i]) + " cannot be in a configuration file: it belongs to the whole cluster, or it is a secret; use CONFIG SET once")
		}
	}
	return c, nil
}

// changed returns the names and values of the parameters that differ from those at the start, or that stand in the file.
func (p *params) changed() (pairs []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defs := slices.SortedFunc(maps.Keys(p.values), func(a, b *paramDef) int { return cmp.Compare(a.name, b.name) })
	for _, def := range defs {
		if value := p.values[def]; def.inFile() && (value != def.value || p.written[def]) {
			pairs = append(pairs, def.name, value)
		}
	}
	return pairs
}

func doConfigRewrite(s *session, _ [][]byte) store.Reply {
	cfg := &s.srv.cfg
	if cfg.Rewrite == nil {
		return store.Err(errNoConfigFile)
	}
	leave, refusal := s.beginSetting()
	if refusal != "" {
		return store.Err(refusal)
	}
	defer leave()
	if err := cfg.Rewrite(s.srv.params.changed()); err != nil {
		cfg.Log.Warn("CONFIG REWRITE failed", "error", err)
		return store.Err(errRewrite(err))
	}
	cfg.Log.Info("CONFIG REWRITE executed with success", "file", cfg.ConfigFile)
	return store.OK
}
