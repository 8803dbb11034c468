package load

import "testing"

func TestCaseString(t *testing.T) {
	for want, c := range map[string]Case{
		"cycle, 1 client":                      {Workload: "cycle", Clients: 1, Pipeline: 1},
		"rlock, 50 clients, pipelined 16":      {Workload: "rlock", Clients: 50, Pipeline: 16},
		"set, 2 clients, tokens of 1024 bytes": {Workload: "set", Clients: 2, Pipeline: 1, Token: 1024},
		"set, 2 clients, 300 operations per second offered, 1000 locks held beside, clients at the followers": {Workload: "set", Clients: 2, Pipeline: 1, Rate: 300, Alive: 1000, At: Followers},
		"cycle, 6 clients, clients at all servers":                                                            {Workload: "cycle", Clients: 6, Pipeline: 1, At: All},
		"native, 1000 clients, waiting for 50 locks":                                                          {Workload: "native", Clients: 1000, Pipeline: 1, Queues: 50},
	} {
		if got := c.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
