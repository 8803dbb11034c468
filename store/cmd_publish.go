package store

// publishCommands are the commands that publish messages.
var publishCommands = []Command{
	{
		Name: "publish", Arity: 3, Flags: PubSub | Loading | Stale | Fast | MayReplicate, Group: "pubsub", Since: "2.0.0",
		Summary: "Sends a message to the subscribers of a channel.",
		Usage:   "channel message", Run: cmdPublish,
	},
	{
		Name: "spublish", Arity: 3, Flags: PubSub | Loading | Stale | Fast | MayReplicate, Group: "pubsub", Since: "7.0.0",
		Keys:    firstKey(KeyNotKey),
		Summary: "Sends a message to the subscribers of a shard channel.",
		Usage:   "shardchannel message", Run: cmdSPublish,
	},
}

func cmdPublish(c *Ctx) Reply { return c.publish(Channel) }

func cmdSPublish(c *Ctx) Reply { return c.publish(Shard) }

func (c *Ctx) publish(kind PublishKind) Reply {
	c.marksCount(c.Args[1])
	return Int(int64(c.Publish(kind, c.Arg(1), c.Arg(2))))
}
