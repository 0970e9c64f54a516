package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"stoa/bench/load"
	"stoa/bench/stoa"
)

// scaleWidth is how many connections all processes together are driven with.
const scaleWidth = 32

// fleet is an installation that the model is applied to.
type fleet struct {
	processes, processCores float64
	postgresCores           float64
	redisCores              float64 // a Redis runs its commands in one thread
	walPerSecond            float64 // bytes, sequential writes of an ordinary network disk
	calls                   float64 // a second
	apps                    float64
	memoryPerApp            float64 // bytes in each process that has the app loaded: the goal of P5
}

var hosted = fleet{
	processes: 10, processCores: 2, postgresCores: 8, redisCores: 1, walPerSecond: 125 << 20, calls: 1000, apps: 10_000, memoryPerApp: 64 << 10,
}

// unitCost is what one call costs each part, measured with some number of connections to a process. Calls that a process
// has under way at the same time share statements and commits, so that the cost of one falls with their number.
type unitCost struct {
	cost
	wal, stored float64 // bytes that PostgreSQL writes to its log, and by which the database grows
}

// work is the processor time of a call of all that runs on this machine.
func (u unitCost) work() time.Duration {
	return max(u.server, 0) + max(u.postgres, 0) + max(u.redis, 0) + max(u.load, 0)
}

// scale measures what a call costs with one process, predicts from that what two and three processes reach on this
// machine, measures them, and applies the same costs to a fleet. The model has no queues: a part can do as many calls a
// second as its cores have time for, and the part that has least time decides.
func scale(ctx context.Context, l *lab, _ func(...string) bool, r *report) error {
	database, err := l.database(ctx)
	if err != nil {
		return err
	}
	// The first process creates the schema; the others would wait for it.
	var servers []*stoa.Server
	defer func() {
		for _, s := range servers {
			s.Stop()
		}
	}()
	for range 3 {
		s, err := l.stoa(ctx, l.cluster.URL(database))
		if err != nil {
			return err
		}
		servers = append(servers, s)
	}
	app := stoa.Plain("acme")
	app.Limits = map[string]any{"rate": []any{map[string]any{"per": "app", "type": "count", "window": "day", "limit": 1_000_000_000}}}
	token, err := servers[0].Create(ctx, app)
	if err != nil {
		return err
	}
	targets := make([]load.Target, len(servers))
	for i, s := range servers {
		if targets[i], err = s.Blocking(token, "assistant", text); err != nil {
			return err
		}
	}
	var alone unitCost // with one connection: nothing is shared
	ratios := map[int]series{}
	for range l.rounds {
		one, _, err := l.driveFleet(ctx, database, servers[:1], targets, 1)
		if err != nil {
			return err
		}
		alone = cheaper(alone, one)
		_, whole, err := l.driveFleet(ctx, database, servers[:1], targets, scaleWidth)
		if err != nil {
			return err
		}
		for n := 2; n <= len(servers); n++ {
			// One process with as many connections as each of n has costs as much for each call as each of them.
			part, _, err := l.driveFleet(ctx, database, servers[:1], targets, scaleWidth/n)
			if err != nil {
				return err
			}
			_, rps, err := l.driveFleet(ctx, database, servers[:n], targets, scaleWidth/n)
			if err != nil {
				return err
			}
			// All cores are as busy as with one process and all connections.
			predicted := whole.busy * float64(time.Second) / float64(part.work())
			ratios[n] = append(ratios[n], rps.rate/predicted)
			progress("%d processes: %.0f calls/s, predicted %.0f", n, rps.rate, predicted)
		}
	}
	for n := 2; n <= len(servers); n++ {
		r.rows = append(r.rows, within("SCALE", fmt.Sprintf("calls/s of %d processes on this machine ÷ what the model predicts from one, c=%d", n, scaleWidth), 0.8, 1.25, ratios[n]))
	}
	hosted.addRows(alone, r)
	return nil
}

// fleetRate is what processes did together: calls a second, and how many cores everything on this machine kept busy.
type fleetRate struct{ rate, busy float64 }

// driveFleet drives each of servers with conns connections and returns what a call cost.
func (l *lab) driveFleet(ctx context.Context, database string, servers []*stoa.Server, targets []load.Target, conns int) (u unitCost, f fleetRate, err error) {
	run := func(span time.Duration) (calls int, elapsed time.Duration, err error) {
		results, errs := make([]load.Result, len(servers)), make([]error, len(servers))
		began := time.Now()
		var wg sync.WaitGroup
		for i := range servers {
			wg.Go(func() { results[i], errs[i] = load.Run(ctx, targets[i], load.Options{Conns: conns, For: span}) })
		}
		wg.Wait()
		for i, got := range results {
			errs[i] = errors.Join(errs[i], got.Err)
			calls += got.Calls
		}
		return calls, time.Since(began), errors.Join(errs...)
	}
	if _, _, err = run(min(l.span/2, 2*time.Second)); err != nil {
		return u, f, err
	}
	if err = l.cluster.Checkpoint(ctx); err != nil {
		return u, f, err
	}
	before, err := l.cluster.Written(ctx, database)
	if err != nil {
		return u, f, err
	}
	readings := make([]cost, len(servers))
	for i, s := range servers {
		readings[i] = meter{lab: l, server: s.Process}.read()
	}
	calls, elapsed, err := run(l.span)
	if err != nil {
		return u, f, err
	}
	if calls == 0 {
		return u, f, errors.New("no call succeeded")
	}
	for i, s := range servers {
		c := meter{lab: l, server: s.Process}.since(readings[i], calls)
		c.server += max(u.server, 0) // each process has its own; the other readings are of all
		u.cost = c
	}
	after, err := l.cluster.Written(ctx, database)
	u.wal, u.stored = float64(after.WAL-before.WAL)/float64(calls), float64(after.Stored-before.Stored)/float64(calls)
	f.rate = float64(calls) / elapsed.Seconds()
	f.busy = f.rate * u.work().Seconds()
	return u, f, err
}

// cheaper returns the measurement that was disturbed less; a is empty in the first round.
func cheaper(a, b unitCost) unitCost {
	if a.work() == 0 || b.work() < a.work() {
		return b
	}
	return a
}

// addRows adds what f does at its rate of calls and the rate at which its first part has no time left. The costs are those
// of calls that share nothing, as at a low rate on many processes; shared ones are cheaper.
func (f fleet) addRows(u unitCost, r *report) {
	type part struct {
		name string
		rate float64 // calls a second at which it has no time left
	}
	perSecond := func(cores float64, each time.Duration) float64 { return cores / max(each, time.Microsecond).Seconds() }
	parts := []part{
		{"the processes", perSecond(f.processes*f.processCores, u.server)},
		{"PostgreSQL's processors", perSecond(f.postgresCores, u.postgres)},
		{"Redis", perSecond(f.redisCores, u.redis)},
		{"PostgreSQL's log", f.walPerSecond / max(u.wal, 1)},
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.rate, b.rate) })
	shares := ""
	for _, p := range parts {
		shares += fmt.Sprintf(", %s %.0f%%", p.name, 100*f.calls/p.rate)
	}
	name := fmt.Sprintf("%.0f processes of %.0f cores, PostgreSQL of %.0f", f.processes, f.processCores, f.postgresCores)
	r.rows = append(r.rows,
		plain("SCALE", name+": what "+number(f.calls)+" calls a second take", shares[2:]),
		plain("SCALE", name+": what has no time left first, and at how many calls a second", fmt.Sprintf("%s, %.0f", parts[0].name, parts[0].rate)),
		plain("SCALE", name+": GB a day that the database grows at "+number(f.calls)+" calls a second, before retention", number(u.stored*f.calls*86400/1e9)),
		plain("SCALE", fmt.Sprintf("memory of a process with %.0f apps loaded, MB, by the goal of P5", f.apps), number(f.apps*f.memoryPerApp/1e6)),
	)
}
