package main

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/systemd"
	"github.com/lockstep-io/lockstep/server"
)

// advertised returns the address that clients get for a listener: given or, without it, listen, if possible with a host that others
// know.
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
	for _, addr := range []string{o.peerAdvertise, o.ownPeer(), o.advertise, o.peerListen} {
		if peer, _, err := net.SplitHostPort(addr); err == nil && !everywhere(peer) {
			return net.JoinHostPort(peer, port)
		}
	}
	return listen
}

// everywhere reports whether a host to listen on stands for all interfaces.
func everywhere(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// ownPeer returns this node's address in --peers; "" if it is not there.
func (o *options) ownPeer() string {
	for _, p := range strings.Split(o.peers, ",") {
		if id, addr, ok := strings.Cut(strings.TrimSpace(p), "="); ok && id == o.id {
			return addr
		}
	}
	return ""
}

// discoveryFaults returns the faults in the Sentinel flags.
func (o *options) discoveryFaults() (faults []error) {
	if o.sentinelAuth != "yes" && o.sentinelAuth != "no" {
		faults = append(faults, fmt.Errorf("--sentinel-auth %q: want yes or no", o.sentinelAuth))
	}
	if o.sentinelListen+o.tls.sentinelListen != "" && (o.masterName == "" || strings.ContainsAny(o.masterName, " \t\r\n")) {
		faults = append(faults, fmt.Errorf("--sentinel-master-name %q: use a name without spaces, such as mymaster", o.masterName))
	}
	return faults
}

// listeners are the listeners for clients; nil if a port is not used.
type listeners struct {
	plain, sentinel, cluster          net.Listener
	tlsPlain, tlsSentinel, tlsCluster net.Listener
	unix                              net.Listener
	http                              net.Listener // opened by the service manager; else nil
}

// sockets are the names of the listeners that a service manager may open (systemd's FileDescriptorName=): those of the flags.
var sockets = []string{"listen", "sentinel-listen", "cluster-listen", "tls-listen", "tls-sentinel-listen", "tls-cluster-listen", "unixsocket", "http-listen"}

// listen opens the client ports, but for those that the service manager has opened. It replaces port 0 in the advertised addresses with the
// port that the system has chosen.
func listen(o options, cfg *cluster.Config) (ls listeners, err error) {
	given, err := systemd.Sockets(sockets)
	if err != nil {
		return ls, err
	}
	ls.unix, ls.http = given["unixsocket"], given["http-listen"]
	for name, addr := range map[string]string{"unixsocket": o.unix.path, "http-listen": o.httpListen} {
		if ln := given[name]; ln != nil {
			if err := o.misplaced(name, addr, ln); err != nil {
				return ls, errors.Join(err, ls.close())
			}
		}
	}
	for _, l := range []struct {
		flag, addr string
		to         *net.Listener
		advertise  *string
	}{
		{"listen", o.listen, &ls.plain, &cfg.Advertise},
		{"sentinel-listen", o.sentinelListen, &ls.sentinel, &cfg.SentinelAdvertise},
		{"cluster-listen", o.clusterListen, &ls.cluster, &cfg.ClusterAdvertise},
		{"tls-listen", o.tls.listen, &ls.tlsPlain, &cfg.TLSAdvertise},
		{"tls-sentinel-listen", o.tls.sentinelListen, &ls.tlsSentinel, &cfg.TLSSentinelAdvertise},
		{"tls-cluster-listen", o.tls.clusterListen, &ls.tlsCluster, &cfg.TLSClusterAdvertise},
	} {
		ln := given[l.flag]
		switch {
		case ln != nil && o.misplaced(l.flag, l.addr, ln) != nil:
			*l.to = ln
			return ls, errors.Join(o.misplaced(l.flag, l.addr, ln), ls.close())
		case l.addr == "":
			continue
		case ln == nil:
			if ln, err = net.Listen("tcp", l.addr); err != nil {
				return ls, errors.Join(fmt.Errorf("--%s %s: %w; give an address of this machine and a port that no other process has", l.flag, l.addr, err), ls.close())
			}
		}
		*l.to = ln
		if host, port, err := net.SplitHostPort(*l.advertise); err == nil && port == "0" {
			*l.advertise = net.JoinHostPort(host, fmt.Sprint(portOf(ln)))
		}
	}
	if o.unix.path != "" && ls.unix == nil {
		if ls.unix, err = o.unix.listen(); err != nil {
			return ls, errors.Join(err, ls.close())
		}
	}
	return ls, nil
}

// misplaced returns an error if a socket of the service manager is at another place than its flag says: protected mode and what other nodes
// tell clients go by the flag.
func (o *options) misplaced(name, addr string, ln net.Listener) error {
	if isAt(ln.Addr(), addr) {
		return nil
	}
	return fmt.Errorf("the service manager's socket %s is at %s: say so by --%s, which is %q", name, ln.Addr(), name, addr)
}

// isAt reports whether a listener's address is the one that a flag gives. A name other than localhost may stand for any address that is not
// of loopback.
func isAt(at net.Addr, addr string) bool {
	tcp, is := at.(*net.TCPAddr)
	host, port, err := net.SplitHostPort(addr)
	if !is || err != nil {
		return !is && addr == at.String()
	}
	ip := net.ParseIP(host)
	switch {
	case port != fmt.Sprint(tcp.Port):
		return false
	case everywhere(host):
		return tcp.IP.IsUnspecified()
	case ip != nil:
		return ip.Equal(tcp.IP)
	}
	return !tcp.IP.IsUnspecified() && tcp.IP.IsLoopback() == loopback(addr)
}

// portOf returns a listener's port; 0 for no listener, as in Redis.
func portOf(ln net.Listener) int {
	if ln == nil {
		return 0
	}
	return ln.Addr().(*net.TCPAddr).Port
}

// hostOf returns the host of the first listener that is not nil.
func hostOf(listeners ...net.Listener) string {
	for _, ln := range listeners {
		if ln != nil {
			return ln.Addr().(*net.TCPAddr).IP.String()
		}
	}
	return ""
}

func (ls listeners) close() (err error) {
	for _, ln := range []net.Listener{ls.plain, ls.sentinel, ls.cluster, ls.tlsPlain, ls.tlsSentinel, ls.tlsCluster, ls.unix, ls.http} {
		if ln != nil {
			err = errors.Join(err, ln.Close())
		}
	}
	return err
}

// newSentinel makes the server for Sentinel clients at ln, from the configuration sc of the server for Redis clients. secret says
// whether ln speaks TLS.
func newSentinel(o options, sc server.Config, node *cluster.Node, ln net.Listener, secret bool) *server.Server {
	own := server.Default() // a Sentinel has a run id of its own
	sc.RunID, sc.Port, sc.TLSPort, sc.Bind = own.RunID, portOf(ln), 0, hostOf(ln)
	if secret {
		sc.Port, sc.TLSPort = 0, portOf(ln)
	}
	// The node's server decides who may log in. The ACL file must not count here: the cluster may have other users by now.
	sc.ACLFile, sc.ACLUsers = "", nil
	if o.sentinelAuth == "no" {
		// Any client may ask for the leader without a password, but no client may stop the node by SHUTDOWN.
		sc.AnyClient, sc.RequirePass, sc.ProtectedMode, sc.OnShutdown = true, "", false, nil
	}
	return server.NewSentinel(sc, node, o.masterName, secret)
}

// serve starts to serve every listener. ended gets the result of each listener that is no longer served, and has room for all.
func (p *parts) serve() (ended chan error) {
	ended = make(chan error, 7)
	for _, l := range []struct {
		ln     net.Listener
		srv    *server.Server
		face   server.Face
		secret bool
	}{
		{p.listeners.plain, p.server, server.FacePlain, false},
		{p.listeners.cluster, p.server, server.FaceCluster, false},
		{p.listeners.sentinel, p.sentinel, server.FacePlain, false},
		{p.listeners.tlsPlain, p.server, server.FacePlain, true},
		{p.listeners.tlsCluster, p.server, server.FaceCluster, true},
		{p.listeners.tlsSentinel, p.tlsSentinel, server.FacePlain, true},
		{p.listeners.unix, p.server, server.FacePlain, false},
	} {
		if l.ln != nil {
			go func() { ended <- l.srv.ServeAs(l.ln, l.face, l.secret) }()
		}
	}
	return ended
}
