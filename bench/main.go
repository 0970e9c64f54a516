// Command bench measures Stoa side by side with what a user could run instead, in one run on one machine, and
// prints ratios: they travel from machine to machine where calls per second do not.
//
//	go run .                 every figure, about half an hour
//	go run . -quick          shorter runs, about five minutes
//	go run . -only P1,P2     some figures; -list names them
//
// Stoa is run as a process, built beforehand (-binary). PostgreSQL is named by -postgres; without one the figures that
// need it are left out, and the table says so. The contender and the model server are this program again, each in a
// process of its own, so that the processor time of each is known.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 && servers[args[0]] != nil {
		return serve(ctx, args)
	}
	o, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case o.list:
		for _, e := range experiments {
			fmt.Fprintf(out, "%-20s %s\n", strings.Join(e.ids, ","), e.about)
		}
		return nil
	}
	l, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer l.close()
	r, err := l.measure(ctx, o.only)
	if err != nil {
		return err
	}
	return r.write(out)
}

// options are the command line.
type options struct {
	binary, against string
	postgres, redis string
	source          string
	quick, list     bool
	only            []string
	rounds          int
	span            time.Duration
}

func parse(args []string) (options, error) {
	var o options
	var only string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&o.binary, "binary", "../bin/stoa", "the built stoa")
	f.StringVar(&o.against, "against", "", "an earlier build of stoa, whose calls P1 measures in turn with those of -binary; empty for none")
	f.StringVar(&o.postgres, "postgres", os.Getenv("STOA_TEST_POSTGRES"), "URL of a PostgreSQL on this machine whose login may create databases (STOA_TEST_POSTGRES)")
	f.StringVar(&o.redis, "redis", os.Getenv("STOA_TEST_REDIS"), "URL of a Redis that stoa is to use (STOA_TEST_REDIS); empty for none")
	f.StringVar(&o.source, "source", "..", "folder of Stoa's source, whose search service is measured without requests; empty for none")
	f.BoolVar(&o.quick, "quick", false, "shorter runs and fewer calls")
	f.StringVar(&only, "only", "", "figures to measure, comma separated, e.g. P1,P2; empty for all")
	f.BoolVar(&o.list, "list", false, "list the figures and end")
	f.IntVar(&o.rounds, "rounds", 0, "how often each contestant is measured (5, or 3 with -quick)")
	f.DurationVar(&o.span, "span", 0, "length of one measurement of throughput (6s, or 2s with -quick)")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.rounds == 0 {
		o.rounds = pick(o.quick, 3, 5)
	}
	if o.span == 0 {
		o.span = pick(o.quick, 2*time.Second, 6*time.Second)
	}
	for id := range strings.SplitSeq(only, ",") {
		if id = strings.ToUpper(strings.TrimSpace(id)); id != "" {
			o.only = append(o.only, id)
		}
	}
	for _, id := range o.only {
		if !slices.ContainsFunc(experiments, func(e experiment) bool { return slices.Contains(e.ids, id) }) {
			return o, fmt.Errorf("-only %s: there is no such figure; -list names them", id)
		}
	}
	return o, nil
}

func pick[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}
