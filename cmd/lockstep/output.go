package main

import (
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/show"
)

// outputOptions say in which form a command prints its result.
type outputOptions struct{ json bool }

func (o *outputOptions) define(fs *flag.FlagSet) {
	fs.Func("output", "`text|json`: print the result for people, or as one JSON value (default text)", func(form string) error {
		if form != "text" && form != "json" {
			return errors.New("want text or json")
		}
		o.json = form == "json"
		return nil
	})
}

// printJSON prints a value of package show as one line of JSON.
func printJSON(w io.Writer, v any) error {
	_, err := w.Write(append(show.AppendJSON(nil, v), '\n'))
	return err
}

// print prints a result in the form that was asked for.
func (o *outputOptions) print(w io.Writer, r show.Record, format string, args ...any) error {
	if o.json {
		return printJSON(w, r)
	}
	_, err := fmt.Fprintf(w, format+"\n", args...)
	return err
}
