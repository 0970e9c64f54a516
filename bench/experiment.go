package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"stoa/bench/contender"
	"stoa/bench/proc"
	"stoa/bench/stoa"
)

// experiment measures one or more figures and adds their rows to the report.
type experiment struct {
	ids   []string
	about string
	run   func(ctx context.Context, l *lab, wanted func(...string) bool, r *report) error
}

var experiments = []experiment{
	{[]string{"START"}, "start to the first 200 on /health, idle memory", startup},
	{[]string{"P1", "P2", "P3", "P10", "SQLITE"}, "calls per second against a2a-go, pgbench, without row-level security, on SQLite", throughput},
	{[]string{"P4"}, "a cold tenant's first call against a hot call", cold},
	{[]string{"P5"}, "heap of a loaded idle tenant", heap},
	{[]string{"P7"}, "memory after many calls against memory after few", memory},
	{[]string{"QUEUE", "PICKUP"}, "how fast the queue is worked off, how soon a run in it begins", queue},
	{[]string{"P9"}, "a quiet tenant while another one floods its queue", neighbours},
	{[]string{"P9", "BODIES", "PATTERNS", "PAUSES", "BLOCKING"}, "a quiet tenant during attacks: expanding bodies, hostile patterns, paused runs, blocking calls", attacks},
	{[]string{"P11"}, "processor time of a long stream against a short one, time to the first token", streams},
	{[]string{"READS"}, "list, get and card against a handler that does nothing", reads},
	{[]string{"FIRST"}, "how soon a stream sends its first event, over each transport", firstEvents},
	{[]string{"P12"}, "the role check with many tenants against with few", roles},
	{[]string{"SCALE"}, "two and three processes against what a model predicts from one, and the model's figures of a fleet", scale},
	{[]string{"DOCS"}, "documents: how fast they are indexed, searches against the bare query in the database, memory, recall", docs},
}

// measure runs the experiments that only names, or all. An experiment that fails becomes rows that say why.
func (l *lab) measure(ctx context.Context, only []string) (*report, error) {
	r := &report{}
	var err error
	if r.facts, err = l.facts(ctx); err != nil {
		return nil, err
	}
	wanted := func(ids ...string) bool {
		return len(only) == 0 || slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(only, id) })
	}
	for _, e := range experiments {
		if !wanted(e.ids...) {
			continue
		}
		progress("%s: %s", strings.Join(e.ids, ", "), e.about)
		err := e.run(ctx, l, wanted, r)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			l.failed = l.failed || !errors.Is(err, errNoPostgres)
			progress("%v", err)
			r.rows = append(r.rows, missing(strings.Join(e.ids, ", "), err))
		}
	}
	return r, nil
}

// facts is the head of the report.
func (l *lab) facts(ctx context.Context) ([]string, error) {
	version, err := stoa.Version(ctx, l.binary)
	if err != nil {
		return nil, err
	}
	facts := []string{
		fmt.Sprintf("%s; %s", time.Now().UTC().Format("2006-01-02 15:04 MST"), proc.ThisMachine()),
		fmt.Sprintf("%s; a2a-go %s; both and the load on the same machine; bench built with %s", version, contender.Version(), runtime.Version()),
	}
	if l.cluster == nil {
		facts = append(facts, "PostgreSQL: none, "+errNoPostgres.Error())
	} else {
		version, settings, err := l.cluster.Settings(ctx)
		if err != nil {
			return nil, err
		}
		facts = append(facts, fmt.Sprintf("PostgreSQL %s: %s", version, settings))
	}
	if l.cache == nil {
		facts = append(facts, "Redis: none")
	} else {
		facts = append(facts, "Redis "+l.cache.version)
	}
	flush, err := proc.FlushTime(l.dir)
	if err != nil {
		return nil, err
	}
	facts = append(facts,
		fmt.Sprintf("the scratch folder's disk takes %d µs to write and flush 8 KiB (fdatasync, median)", flush.Microseconds()),
		fmt.Sprintf("%d rounds of %v, alternating; a figure is the median of its rounds (least to most)", l.rounds, l.span))
	if l.quick {
		facts = append(facts, "quick run: shorter and with fewer calls than the goals speak of")
	}
	return facts, nil
}
