package show

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Table prints records that come in parts: the first part decides how wide the columns are.
type Table struct {
	w      *bufio.Writer
	most   int
	names  []string
	widths []int
}

// NewTable returns a table. Its columns have at most so many characters; 0: as many as the first part needs.
func NewTable(w io.Writer, most int) *Table { return &Table{w: bufio.NewWriter(w), most: most} }

// Add prints some rows. All rows of a table must have the same names.
func (t *Table) Add(rows []Record) error {
	if len(rows) == 0 {
		return nil
	}
	texts := make([][]string, 0, len(rows))
	first := t.names == nil
	for _, r := range rows {
		if t.names == nil {
			t.begin(r)
		}
		cells, err := t.cells(r)
		if err != nil {
			return err
		}
		texts = append(texts, cells)
	}
	if first {
		for _, cells := range texts {
			for i, text := range cells {
				t.widths[i] = max(t.widths[i], width(text))
			}
		}
		head := make([]string, len(t.names))
		for i, name := range t.names {
			head[i] = strings.ToUpper(name)
		}
		t.line(head)
	}
	for _, cells := range texts {
		t.line(cells)
	}
	return t.w.Flush()
}

func (t *Table) begin(first Record) {
	for _, f := range first {
		t.names = append(t.names, f.Name)
		t.widths = append(t.widths, len(f.Name))
	}
}

func (t *Table) cells(r Record) ([]string, error) {
	if len(r) != len(t.names) {
		return nil, FormError(fmt.Sprintf("a row has %d columns, and another one %d", len(r), len(t.names)))
	}
	cells := make([]string, len(r))
	for i, f := range r {
		if f.Name != t.names[i] {
			return nil, FormError(fmt.Sprintf("a row has a column %s, and another one %s", f.Name, t.names[i]))
		}
		if cells[i] = Text(f); t.most > 0 {
			cells[i] = shorten(cells[i], t.most)
		}
	}
	return cells, nil
}

// line buffers a row; the error of a write is that of Flush.
func (t *Table) line(cells []string) {
	for i, text := range cells {
		t.w.WriteString(text)
		if i < len(cells)-1 {
			t.w.WriteString(strings.Repeat(" ", max(t.widths[i]-width(text), 0)+2))
		}
	}
	t.w.WriteByte('\n')
}

// List prints a record, a line for each field.
func List(w io.Writer, r Record) error {
	b := bufio.NewWriter(w)
	longest := 0
	for _, f := range r {
		longest = max(longest, len(f.Name))
	}
	for _, f := range r {
		fmt.Fprintf(b, "%-*s  %s\n", longest, f.Name, Text(f))
	}
	return b.Flush()
}
