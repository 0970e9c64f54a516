package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"stoa/bench/proc"
)

// cost is the processor time of one call, by process. A negative one could not be measured.
type cost struct {
	server, postgres, redis, load time.Duration
}

const unknown = time.Duration(-1)

// meter reads what each process has used so far.
type meter struct {
	lab    *lab
	server *proc.Process // nil: none
}

func (m meter) read() cost {
	c := cost{server: unknown, postgres: unknown, redis: unknown, load: unknown}
	if m.server != nil {
		if d, err := proc.CPU(m.server.PID()); err == nil {
			c.server = d
		}
	}
	if m.lab.cluster != nil {
		if d, err := m.lab.cluster.CPU(); err == nil {
			c.postgres = d
		}
	}
	if m.lab.cache != nil {
		if d, err := m.lab.cache.cpu(); err == nil {
			c.redis = d
		}
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err == nil {
		c.load = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	}
	return c
}

// since is the cost per call of what happened after the reading c.
func (m meter) since(c cost, calls int) cost {
	now := m.read()
	each := func(a, b time.Duration) time.Duration {
		if a == unknown || b == unknown || calls == 0 {
			return unknown
		}
		return (b - a) / time.Duration(calls)
	}
	return cost{
		server: each(c.server, now.server), postgres: each(c.postgres, now.postgres),
		redis: each(c.redis, now.redis), load: each(c.load, now.load),
	}
}

// Where a server and its database take less than calm of a second, and for that restTime is waited, nothing is left to
// do of what came before.
const (
	calm     = 100 * time.Millisecond
	restTime = 3 * time.Minute
)

// settle waits until a server has done what it does after its answers, such as to chain the audit trail.
func (l *lab) settle(ctx context.Context, server *proc.Process) error {
	m := meter{lab: l, server: server}
	for began := time.Now(); time.Since(began) < restTime; {
		before := m.read()
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
		if took := m.since(before, 1); took.server+took.postgres < calm {
			return nil
		}
	}
	progress("the server is not calm %v later", restTime)
	return nil
}

// micros is a cost for the table; what is too small to see in a clock of 10 ms is a dash too.
func micros(got series) string {
	if m := got.median(); m > 0 {
		return fmt.Sprintf("%.0f", m)
	}
	return "-"
}
