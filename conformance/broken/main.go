// Broken shows that tests can fail. Each mutation in testdata gives the program a fault that another lock service, a client of one,
// or lockstep itself once had. The mutation names a test, which must pass on the real program and fail on the broken one. The
// product contains no mutation: the go command reads the broken files in place of the real ones (-overlay).
//
//	go run ./conformance/broken            # every mutation
//	go run ./conformance/broken J7 J17     # those of some classes
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir := flag.String("mutations", "conformance/broken/testdata", "`folder` of the mutations")
	list := flag.Bool("list", false, "only say what there is")
	flag.Parse()
	ok, err := run(ctx, *dir, *list, flag.Args(), os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || !ok {
		stop()
		os.Exit(1)
	}
}

// run reports whether each mutation's test passed on the real program and failed on the broken one. classes selects mutations by class or
// name.
func run(ctx context.Context, dir string, list bool, classes []string, out, log io.Writer) (ok bool, err error) {
	mutations, err := readMutations(dir)
	if err != nil {
		return false, err
	}
	all := len(classes) == 0 || slices.Contains(classes, "all")
	for _, class := range classes {
		known := slices.ContainsFunc(mutations, func(m *mutation) bool { return m.class == class || m.name == class })
		if !known && class != "all" {
			return false, fmt.Errorf("no mutation is called %s", class)
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CLASS\tTEST\tREAL\tBROKEN\tWHAT IS BROKEN")
	c := &checker{root: ".", real: map[string]outcome{}, log: log}
	ok = true
	for _, m := range mutations {
		if !all && !slices.Contains(classes, m.class) && !slices.Contains(classes, m.name) {
			continue
		}
		test := strings.TrimPrefix(m.pkg, "./") + " " + strings.Trim(m.run, "^$")
		if list {
			fmt.Fprintf(table, "%s\t%s\t\t\t%s\n", m.class, test, m.why)
			continue
		}
		real, broken, err := c.check(ctx, m)
		if err != nil {
			return false, err
		}
		fmt.Fprintf(log, "%s %s: real: %s, broken: %s\n", m.class, test, real, broken)
		ok = ok && real == passed && broken == failed
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", m.class, test, real, broken, m.why)
	}
	return ok, table.Flush()
}
