package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// document makes a file with two sections.
func document(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "p.md")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestMarkdown(t *testing.T) {
	const begin, end = "# Head\n\n<!-- disk -->\n", "<!-- end of disk -->\n\nTail <!-- ram --><!-- end of ram -->\n"
	file := document(t, begin+"old figures\n"+end)
	r := example()
	for range 2 { // the second report replaces the first
		if err := r.WriteMarkdown(file, "disk"); err != nil {
			t.Fatal(err)
		}
	}
	text := read(t, file)
	if !strings.HasPrefix(text, begin) || !strings.HasSuffix(text, end) || strings.Contains(text, "old figures") {
		t.Errorf("what stands around it has not stayed:\n%s", text)
	}
	for _, want := range []string{
		"Measured with `lockstep bench --clients 1,50`:", "fdatasync of 4 KiB p50 250µs, p99 1.90ms; medians of 3 interleaved rounds of 1s; 2026-11-21 22:00 UTC.\n",
		"| etcd | - | three etcd; left out: not installed <here> |\n",
		"**cycle, 50 clients**\n\n|  | ops/s | (rounds) | p50 | p99 |", "|---|---:|", "| redis | 3000 | (1000-100000) | 300µs | 2.50ms |",
		"- lockstep-1 failed: a lock & a half\n", "- lockstep-1: ops/s 0.50 x redis",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "What is promised") {
		t.Errorf("no claim is about this run:\n%s", text)
	}
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "|---") && strings.Count(line, "|") != strings.Count(strings.Split(text, "\n")[i-1], "|") {
			t.Errorf("line %d has not as many columns as the one before: %s", i+1, line)
		}
	}
}

func TestMarkdownOfClaims(t *testing.T) {
	file := document(t, "<!-- disk --><!-- end of disk -->")
	r := everything("ext4", 500)
	r.Results = r.Results[:4]
	if err := r.WriteMarkdown(file, "disk"); err != nil {
		t.Fatal(err)
	}
	text := read(t, file)
	for _, want := range []string{
		"| 1 | lockstep-3 ops/s >= 10 x etcd (cycle, 50 clients) | 5.00 | 500 to 100 | MISSED |\n",
		"| 1 | lockstep-3 ops/s >= 2.5 x redlock (cycle, 50 clients) | 5.00 | 500 to 100 | kept |\n",
		"Not measured in this run:\n\n- lockstep-3 ops/s >= 0.5 x redis-always (cycle, 50 clients)\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
}

// A document without the section stays as it is.
func TestMarkdownWithoutSection(t *testing.T) {
	for _, text := range []string{"no marks\n", "<!-- disk --> but no end\n", "<!-- end of disk -->\n"} {
		file := document(t, text)
		if err := example().WriteMarkdown(file, "disk"); err == nil || read(t, file) != text {
			t.Errorf("%q became %q, %v", text, read(t, file), err)
		}
	}
}
