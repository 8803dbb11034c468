package datadir

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
)

// nodeRecord is the content of node.json.
type nodeRecord struct {
	Format int    `json:"format"`
	ID     string `json:"id"`
	Log    string `json:"log"`           // LogWAL or LogBolt
	New    bool   `json:"new,omitempty"` // the log is not complete yet
	// Cluster is the name of the cluster. It is empty if the node did not know the name when it wrote the file.
	Cluster string `json:"cluster,omitempty"`
	// Joining means that the node has yet to join a cluster. It must not found a
	// cluster of its own.
	Joining bool `json:"joining,omitempty"`
	// Directory is the name of this directory, a random text. Peers has the names of members' directories, by id (members.go).
	Directory string             `json:"directory,omitempty"`
	Peers     map[string]metPeer `json:"peers,omitempty"`
	// Votes means that the directory has a raft.last.
	Votes bool `json:"votes,omitempty"`
	// Sum is the checksum of the record. It is computed over the record with noSum in the place of Sum. Version 0.1.0 wrote none.
	Sum string `json:"sum,omitempty"`
}

const (
	sumField = `"sum":"`
	noSum    = "00000000"
)

// encode returns the content of node.json, with the checksum.
func (rec nodeRecord) encode() ([]byte, error) {
	rec.Sum = noSum
	b, err := json.Marshal(rec)
	if err != nil {
		return nil, err
	}
	sum := fmt.Appendf(nil, "%08x", crc32.Checksum(b, markTable))
	copy(b[len(b)-len(noSum)-len(`"}`):], sum)
	return append(b, '\n'), nil
}

// decodeRecord is the inverse of encode; it returns false if the file is damaged.
func decodeRecord(b []byte) (rec nodeRecord, ok bool) {
	line := bytes.TrimSuffix(b, []byte("\n"))
	if at := bytes.LastIndex(line, []byte(sumField)); at >= 0 {
		from := at + len(sumField)
		if len(line) != from+len(noSum)+len(`"}`) {
			return rec, false
		}
		zeroed := bytes.Clone(line)
		copy(zeroed[from:], noSum)
		if fmt.Sprintf("%08x", crc32.Checksum(zeroed, markTable)) != string(line[from:from+len(noSum)]) {
			return rec, false
		}
	}
	err := json.Unmarshal(line, &rec)
	rec.Sum = ""
	return rec, err == nil && rec.ID != ""
}
