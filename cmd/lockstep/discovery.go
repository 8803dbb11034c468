package main

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"lockstep/cluster"
	"lockstep/server"
)

// advertised is the address that clients are told for a listener: the one that
// the operator gives, or else where it listens. A node that listens everywhere
// is where the other nodes find it.
func (o *options) advertised(given, listen string) string {
	if listen == "" {
		return ""
	}
	if given != "" {
		return given
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil || !everywhere(host) {
		return listen
	}
	for _, addr := range []string{o.peerAdvertise, o.ownPeer(), o.advertise} {
		if peer, _, err := net.SplitHostPort(addr); err == nil && !everywhere(peer) {
			return net.JoinHostPort(peer, port)
		}
	}
	return listen
}

// everywhere reports whether a host to listen on stands for all of them.
func everywhere(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// ownPeer is this node's address in --peers; "" if it is not there.
func (o *options) ownPeer() string {
	for _, p := range strings.Split(o.peers, ",") {
		if id, addr, ok := strings.Cut(strings.TrimSpace(p), "="); ok && id == o.id {
			return addr
		}
	}
	return ""
}

// discoveryFaults are those of the Sentinel and Cluster listeners.
func (o *options) discoveryFaults() (faults []error) {
	for _, l := range []struct{ name, listen, advertise string }{
		{"sentinel", o.sentinelListen, o.sentinelAdvertise},
		{"cluster", o.clusterListen, o.clusterAdvertise},
	} {
		if l.listen == "" {
			if l.advertise != "" {
				faults = append(faults, fmt.Errorf("--%s-advertise needs --%s-listen", l.name, l.name))
			}
			continue
		}
		if _, _, err := net.SplitHostPort(l.listen); err != nil {
			faults = append(faults, fmt.Errorf("--%s-listen %q: want host:port, such as 127.0.0.1:26379", l.name, l.listen))
		} else if o.protected == "yes" && o.password == "" && !loopback(l.listen) {
			faults = append(faults, fmt.Errorf("--%s-listen %s is open to other machines and there is no password: set --requirepass, listen on 127.0.0.1, or say --protected-mode=no", l.name, l.listen))
		}
		if l.advertise == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(l.advertise); err != nil {
			faults = append(faults, fmt.Errorf("--%s-advertise %q: want host:port", l.name, l.advertise))
		}
	}
	if o.sentinelAuth != "yes" && o.sentinelAuth != "no" {
		faults = append(faults, fmt.Errorf("--sentinel-auth %q: want yes or no", o.sentinelAuth))
	}
	if o.sentinelListen != "" && (o.masterName == "" || strings.ContainsAny(o.masterName, " \t\r\n")) {
		faults = append(faults, fmt.Errorf("--sentinel-master-name %q: use a name without spaces, such as mymaster", o.masterName))
	}
	return faults
}

// listeners are where clients come in.
type listeners struct {
	plain    net.Listener
	sentinel net.Listener // nil if the node has no Sentinel
	cluster  net.Listener // nil if it does not speak Cluster
}

// listen takes the client ports and completes what is advertised of them with
// ports that the system has chosen.
func listen(o options, cfg *cluster.Config) (ls listeners, err error) {
	for _, l := range []struct {
		flag, addr string
		to         *net.Listener
		advertise  *string
	}{
		{"listen", o.listen, &ls.plain, &cfg.Advertise},
		{"sentinel-listen", o.sentinelListen, &ls.sentinel, &cfg.SentinelAdvertise},
		{"cluster-listen", o.clusterListen, &ls.cluster, &cfg.ClusterAdvertise},
	} {
		if l.addr == "" {
			continue
		}
		ln, err := net.Listen("tcp", l.addr)
		if err != nil {
			return ls, errors.Join(fmt.Errorf("--%s %s: %w; give an address of this machine and a port that no other process has", l.flag, l.addr, err), ls.close())
		}
		*l.to = ln
		if host, port, err := net.SplitHostPort(*l.advertise); err == nil && port == "0" {
			*l.advertise = net.JoinHostPort(host, fmt.Sprint(portOf(ln)))
		}
	}
	return ls, nil
}

func portOf(ln net.Listener) int { return ln.Addr().(*net.TCPAddr).Port }

func hostOf(ln net.Listener) string { return ln.Addr().(*net.TCPAddr).IP.String() }

func (ls listeners) close() (err error) {
	for _, ln := range []net.Listener{ls.plain, ls.sentinel, ls.cluster} {
		if ln != nil {
			err = errors.Join(err, ln.Close())
		}
	}
	return err
}

// newSentinel makes a node's Sentinel out of the configuration of its server.
func newSentinel(o options, sc server.Config, node *cluster.Node, ln net.Listener) *server.Server {
	own := server.Default() // it has a run id of its own
	sc.RunID, sc.Port, sc.Bind = own.RunID, portOf(ln), hostOf(ln)
	if o.sentinelAuth == "no" {
		// Anybody may ask for the leader, but not stop it.
		sc.RequirePass, sc.ProtectedMode, sc.OnShutdown = "", false, nil
	}
	return server.NewSentinel(sc, node, o.masterName)
}

// serve serves every listener. The channel gets a word from each that ends, and
// has room for all.
func (p *parts) serve() (ended chan error) {
	ended = make(chan error, 3)
	go func() { ended <- p.server.Serve(p.listeners.plain) }()
	if ln := p.listeners.cluster; ln != nil {
		go func() { ended <- p.server.ServeAs(ln, server.FaceCluster) }()
	}
	if ln := p.listeners.sentinel; ln != nil {
		go func() { ended <- p.sentinel.Serve(ln) }()
	}
	return ended
}
