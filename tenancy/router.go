package tenancy

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"stoa/tenancy/db"
)

const (
	// nameTTL is how long a name's app is remembered where no signal says that it changed.
	nameTTL = time.Second
	// maxNames bounds the names remembered, of apps and of none each.
	maxNames = 10_000
	// lookupTimeout bounds one look into the database, however many callers wait for it.
	lookupTimeout = 5 * time.Second
)

// Router tells which app a request is for.
type Router struct {
	apps  *Service
	hosts []hostPattern
	stop  func()

	flights singleflight.Group
	mu      sync.RWMutex
	epoch   uint64            // grows with each signal
	known   map[string]naming // names of apps
	unknown map[string]naming // names of none
}

type naming struct {
	id    db.ID
	until time.Time
}

// NewRouter returns a router over the apps of s. Each of hosts names an app by its place {app}, as in
// {app}.agents.example.com. Close the router when done.
func NewRouter(s *Service, hosts []string) (*Router, error) {
	patterns, err := parseHosts(hosts)
	if err != nil {
		return nil, err
	}
	r := &Router{apps: s, hosts: patterns, known: map[string]naming{}, unknown: map[string]naming{}}
	r.stop = s.bus.Watch(TopicName, r.forget)
	return r, nil
}

// Close ends the router's wait for signals.
func (r *Router) Close() { r.stop() }

// Route returns the app that v is for, or why it is turned away before any app is looked at. The app need not exist:
// [Visit.Admit] has the last word.
func (r *Router) Route(ctx context.Context, v *Visit) (db.ID, error) {
	id, name, err := v.target()
	if err != nil || id != "" {
		return id, err
	}
	id, err = r.lookup(ctx, name)
	if err == nil && id == "" {
		err = v.refused()
	}
	return id, err
}

// lookup returns the id of the app of that name, "" if there is none.
func (r *Router) lookup(ctx context.Context, name string) (db.ID, error) {
	if !ValidName(name) {
		return "", nil
	}
	if name == DefaultName {
		return r.apps.ID(ctx, name)
	}
	r.mu.RLock()
	n, ok := r.known[name]
	if !ok {
		n, ok = r.unknown[name]
	}
	r.mu.RUnlock()
	if ok && time.Now().Before(n.until) {
		return n.id, nil
	}
	looking := r.flights.DoChan(name, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
		defer cancel()
		r.mu.RLock()
		epoch := r.epoch
		r.mu.RUnlock()
		id, err := r.apps.ID(ctx, name)
		if err == nil {
			r.remember(name, id, epoch)
		}
		return id, err
	})
	select {
	case got := <-looking:
		return got.Val.(db.ID), got.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// remember keeps what was found unless a signal came meanwhile.
func (r *Router) remember(name string, id db.ID, epoch uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.epoch != epoch {
		return
	}
	here, other := r.known, r.unknown
	if id == "" {
		here, other = other, here
	}
	if len(here) >= maxNames {
		clear(here)
	}
	delete(other, name)
	here[name] = naming{id, time.Now().Add(nameTTL)}
}

func (r *Router) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch++
	r.flights.Forget(name)
	if name == "" {
		clear(r.known)
		clear(r.unknown)
		return
	}
	delete(r.known, name)
	delete(r.unknown, name)
}
