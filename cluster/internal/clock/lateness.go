package clock

import "math"

// Lateness remembers by how many ms each write set was acknowledged late, to extend its deadlines. Older write sets share the
// highest value.
type Lateness struct {
	first  uint64 // write sets before it belong to an earlier leader
	recent [1 << 14]uint32
	blocks [1 << 12]uint32
	last   uint64
	Worst  uint32 // the highest value since Reset
}

const latenessBlock = 1 << 10

// Reset forgets everything; the parameter next is the number of the present leader's first write set.
func (l *Lateness) Reset(next uint64) { *l = Lateness{first: next, last: next} }

// Record notes that the write set with the number seq was acknowledged ms milliseconds after its evaluation.
func (l *Lateness) Record(seq uint64, ms int64) {
	late := uint32(min(max(ms, 0), math.MaxUint32))
	for s := l.last + 1; s < seq && s+uint64(len(l.recent)) > seq; s++ {
		l.recent[s%uint64(len(l.recent))] = 0
	}
	l.recent[seq%uint64(len(l.recent))] = late
	block := seq / latenessBlock
	if l.last/latenessBlock != block {
		l.blocks[block%uint64(len(l.blocks))] = 0
	}
	slot := &l.blocks[block%uint64(len(l.blocks))]
	*slot = max(*slot, late)
	l.Worst = max(l.Worst, late)
	l.last = seq
}

// Of returns by how many ms the deadlines of write set seq are extended, for an older one perhaps by too much.
func (l *Lateness) Of(seq uint64) int64 {
	switch {
	case seq < l.first || seq > l.last:
		return 0
	case seq+uint64(len(l.recent)) > l.last:
		return int64(l.recent[seq%uint64(len(l.recent))])
	case seq/latenessBlock+uint64(len(l.blocks)) > l.last/latenessBlock:
		return int64(l.blocks[seq/latenessBlock%uint64(len(l.blocks))])
	default:
		return int64(l.Worst)
	}
}
