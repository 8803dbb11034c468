package load

import "fmt"

// Case describes a measurement. The description is the same for every peer.
type Case struct {
	Workload string  `json:"workload"`
	Clients  int     `json:"clients"`
	Pipeline int     `json:"pipeline"`         // keys in one request
	Rate     float64 `json:"rate,omitempty"`   // operations per second of all clients; 0: as fast as they can
	Alive    int     `json:"alive,omitempty"`  // locks that are held in addition to the measured ones
	Token    int     `json:"token,omitempty"`  // minimum size of an owner's token in bytes
	Queues   int     `json:"queues,omitempty"` // locks that the clients wait for, if they wait; 0: one
	At       Place   `json:"at,omitempty"`
}

// Place says which servers of a peer the clients connect to.
type Place string

// These are the places. The clients are spread evenly over the servers of a place.
const (
	Leader    Place = ""
	Followers Place = "followers"
	All       Place = "all"
)

func (c Case) String() string {
	text := fmt.Sprintf("%s, %s", c.Workload, c.Number())
	if c.Pipeline > 1 {
		text += fmt.Sprintf(", pipelined %d", c.Pipeline)
	}
	if c.Rate > 0 {
		text += fmt.Sprintf(", %.0f operations per second offered", c.Rate)
	}
	if c.Alive > 0 {
		text += fmt.Sprintf(", %d locks held beside", c.Alive)
	}
	if c.Token > 0 {
		text += fmt.Sprintf(", tokens of %d bytes", c.Token)
	}
	if c.Queues > 0 {
		text += fmt.Sprintf(", waiting for %d locks", c.Queues)
	}
	switch c.At {
	case Followers:
		text += ", clients at the followers"
	case All:
		text += ", clients at all servers"
	}
	return text
}

// Number returns the number of clients together with the noun, such as "50 clients".
func (c Case) Number() string {
	if c.Clients == 1 {
		return "1 client"
	}
	return fmt.Sprintf("%d clients", c.Clients)
}
