package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sync"
)

// Op is one operation of one client. Times are nanoseconds of one monotonic clock: that of the machine on which all clients run.
type Op struct {
	Client int    `json:"client"`
	Via    string `json:"via,omitempty"` // how the client reached the servers
	Kind   Kind   `json:"kind"`
	Key    string `json:"key"`
	Call   string `json:"call"`
	// Owner is the owner of the lock, the value of the register, or the element of the list.
	Owner   string `json:"owner,omitempty"`
	TTL     int64  `json:"ttl,omitempty"`
	Invoke  int64  `json:"invoke"`
	Return  int64  `json:"return"`
	Unknown bool   `json:"unknown,omitempty"` // the outcome
	Result  string `json:"result"`            // the reply; "" is nil
}

// never is the return time of an operation whose outcome is unknown.
const never = math.MaxInt64

// until is the last instant at which the operation can have taken effect.
func (o *Op) until() int64 {
	if o.Unknown {
		return never
	}
	return o.Return
}

func (o *Op) String() string {
	result := o.Result
	if o.Unknown {
		result = "?"
	} else if result == "" {
		result = "nil"
	}
	s := o.Call
	if o.Owner != "" {
		s += " " + o.Owner
	}
	if o.TTL != 0 {
		s += fmt.Sprintf(" %dms", o.TTL/1e6)
	}
	return s + " = " + result
}

// Recorder keeps the operations of many clients, and writes them to a file through
// a buffer, which Close flushes.
type Recorder struct {
	mu   sync.Mutex
	ops  []Op
	file *os.File
	buf  *bufio.Writer
	err  error
}

// NewRecorder returns a Recorder that also writes each operation to the file, as one line.
func NewRecorder(path string) (*Recorder, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &Recorder{file: f, buf: bufio.NewWriterSize(f, 1<<16)}, nil
}

// Add records an operation that has ended.
func (r *Recorder) Add(op Op) {
	line, err := json.Marshal(op)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, op)
	if err == nil {
		_, err = r.buf.Write(append(line, '\n'))
	}
	if r.err == nil {
		r.err = err
	}
}

// Close returns everything recorded.
func (r *Recorder) Close() ([]Op, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range []error{r.buf.Flush(), r.file.Close()} {
		if r.err == nil {
			r.err = err
		}
	}
	return r.ops, r.err
}

// Load reads a recorded history.
func Load(path string) ([]Op, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var ops []Op
	for d := json.NewDecoder(f); d.More(); {
		var op Op
		if err := d.Decode(&op); err != nil {
			return nil, fmt.Errorf("%s: operation %d: %w", path, len(ops)+1, err)
		}
		ops = append(ops, op)
	}
	return ops, nil
}
