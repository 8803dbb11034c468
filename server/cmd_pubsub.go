package server

import (
	"slices"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

func pubsubRows() []row {
	const (
		listen = store.PubSub | store.NoScript | store.Loading | store.Stale
		ask    = store.PubSub | store.Loading | store.Stale
	)
	shards := []store.KeySpec{{Begin: 1, Last: -1, Step: 1, Flags: store.KeyNotKey}}
	top := func(name string, arity int, since, usage, summary string, do handler) row {
		return row{Command: store.Command{Name: name, Arity: arity, Flags: listen, Group: "pubsub", Since: since, Usage: usage, Summary: summary}, do: do}
	}
	sub := func(name string, arity int, since, usage, summary string, do handler) row {
		return row{Command: store.Command{Name: name, Arity: arity, Flags: ask, Since: since, Usage: usage, Summary: summary}, do: do}
	}
	ssubscribe := top("ssubscribe", -2, "7.0.0", "shardchannel [shardchannel ...]", "Listens to shard channels.", subscribeTo(subShard))
	sunsubscribe := top("sunsubscribe", -1, "7.0.0", "[shardchannel [shardchannel ...]]", "Stops listening to shard channels.", unsubscribeFrom(subShard))
	ssubscribe.Keys, sunsubscribe.Keys = shards, shards
	return []row{
		top("subscribe", -2, "2.0.0", "channel [channel ...]", "Listens to channels.", subscribeTo(subChannel)),
		top("unsubscribe", -1, "2.0.0", "[channel [channel ...]]", "Stops listening to channels.", unsubscribeFrom(subChannel)),
		top("psubscribe", -2, "2.0.0", "pattern [pattern ...]", "Listens to channels that match patterns.", subscribeTo(subPattern)),
		top("punsubscribe", -1, "2.0.0", "[pattern [pattern ...]]", "Stops listening to patterns.", unsubscribeFrom(subPattern)),
		ssubscribe, sunsubscribe,
		{
			Command: store.Command{Name: "pubsub", Arity: -2, Group: "pubsub", Since: "2.8.0", Summary: "Commands about subscriptions."},
			sub: []row{
				sub("channels", -2, "2.8.0", "[pattern]", "Lists this node's channels that have subscribers.", namesOf(subChannel)),
				helpRow("pubsub", "6.2.0", 0),
				sub("numpat", 2, "2.8.0", "", "Counts this node's patterns.", doNumPat),
				sub("numsub", -2, "2.8.0", "[channel [channel ...]]", "Counts this node's subscribers of channels.", countsOf(subChannel)),
				sub("shardchannels", -2, "7.0.0", "[pattern]", "Lists this node's shard channels that have subscribers.", namesOf(subShard)),
				sub("shardnumsub", -2, "7.0.0", "[shardchannel [shardchannel ...]]", "Counts this node's subscribers of shard channels.", countsOf(subShard)),
			},
		},
	}
}

// answered is the reply of a handler if nothing remains to be sent, or if the client was cut off.
var answered = store.Reply{Kind: store.None}

func subscribeTo(kind subKind) handler {
	return func(s *session, args [][]byte) store.Reply {
		switch {
		case kind == subShard && s.executing != nil:
			return store.Err(errShardInExec)
		case s.srv.backend.Removed():
			return store.Err(cluster.ErrRemoved) // the node gets no more messages, so a subscriber would wait in vain
		}
		eachName(s, args[1:], func(name string) { s.srv.hub.subscribe(s, kind, name) })
		s.named(len(args) - 1)
		s.stillMayListen(kind, args[1:])
		if s.srv.backend.Removed() {
			s.out.abort() // the removal calls Hub.Missed, perhaps before this subscription was added
		}
		return answered
	}
}

// unsubscribeFrom returns the handler that ends named or all subscriptions of one kind. A client that has none still gets one
// confirmation.
func unsubscribeFrom(kind subKind) handler {
	return func(s *session, args [][]byte) store.Reply {
		if len(args) > 1 {
			eachName(s, args[1:], func(name string) { s.srv.hub.unsubscribe(s, kind, name) })
			s.named(len(args) - 1)
			return answered
		}
		names := s.srv.hub.of(s, kind)
		slices.Sort(names)
		eachName(s, names, func(name string) { s.srv.hub.unsubscribe(s, kind, name) })
		s.named(len(names))
		if len(names) == 0 {
			s.srv.hub.confirmNone(s, kind)
		}
		return answered
	}
}

func namesOf(kind subKind) handler {
	return func(s *session, args [][]byte) store.Reply {
		if len(args) > 3 {
			return store.Err(errSubcommandArgs("pubsub", args[1]))
		}
		var pattern *string
		if len(args) == 3 {
			p := string(args[2])
			pattern = &p
		}
		names, ok := s.srv.hub.names(kind, pattern)
		if !ok {
			return store.Err(errLongPattern)
		}
		return s.strs(names)
	}
}

func countsOf(kind subKind) handler {
	return func(s *session, args [][]byte) store.Reply {
		b := s.build()
		for _, name := range args[2:] {
			if !b.add(store.Str(string(name)), store.Int(int64(s.srv.hub.count(kind, string(name))))) {
				break
			}
		}
		return b.reply(store.Array)
	}
}

func doNumPat(s *session, _ [][]byte) store.Reply {
	return store.Int(int64(s.srv.hub.size(subPattern)))
}
