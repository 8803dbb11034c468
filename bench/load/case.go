package load

import "fmt"

// Case is one measurement, of whichever peer.
type Case struct {
	Workload string  `json:"workload"`
	Clients  int     `json:"clients"`
	Pipeline int     `json:"pipeline"`        // keys in one request
	Rate     float64 `json:"rate,omitempty"`  // operations per second of all clients; 0: as fast as they can
	Alive    int     `json:"alive,omitempty"` // locks that are held beside the measured ones
	Token    int     `json:"token,omitempty"` // bytes that an owner's token has at least
	At       Place   `json:"at,omitempty"`
}

// Place is which servers of a peer the clients speak to.
type Place string

// The places. The clients are spread evenly over the servers of a place.
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
	switch c.At {
	case Followers:
		text += ", clients at the followers"
	case All:
		text += ", clients at all servers"
	}
	return text
}

// Number is the number of clients in words, as in the case's name.
func (c Case) Number() string {
	if c.Clients == 1 {
		return "1 client"
	}
	return fmt.Sprintf("%d clients", c.Clients)
}
