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
	apps      *Service
	hosts     []hostPattern
	stopWatch func()

	lookups      singleflight.Group
	mu           sync.RWMutex
	generation   uint64                // grows with each signal
	knownNames   map[string]cachedName // names of apps
	unknownNames map[string]cachedName // names of none
}

type cachedName struct {
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
	r := &Router{apps: s, hosts: patterns, knownNames: map[string]cachedName{}, unknownNames: map[string]cachedName{}}
	r.stopWatch = s.bus.WatchTopic(TopicName, r.forgetName)
	return r, nil
}

// Close ends the router's wait for signals.
func (r *Router) Close() { r.stopWatch() }

// FindApp returns the app that v is for, or why it is turned away before any app is looked at. The app need not exist:
// [AccessRequest.CheckApp] has the last word.
func (r *Router) FindApp(ctx context.Context, v *AccessRequest) (db.ID, error) {
	id, name, err := v.targetApp()
	if err != nil || id != "" {
		return id, err
	}
	id, err = r.lookupName(ctx, name)
	if err == nil && id == "" {
		err = v.missingAppError()
	}
	return id, err
}

// lookupName returns the id of the app of that name, "" if there is none.
func (r *Router) lookupName(ctx context.Context, name string) (db.ID, error) {
	if !IsValidAppName(name) {
		return "", nil
	}
	if name == DefaultName {
		return r.apps.FindAppID(ctx, name)
	}
	r.mu.RLock()
	n, ok := r.knownNames[name]
	if !ok {
		n, ok = r.unknownNames[name]
	}
	r.mu.RUnlock()
	if ok && time.Now().Before(n.until) {
		return n.id, nil
	}
	pending := r.lookups.DoChan(name, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
		defer cancel()
		r.mu.RLock()
		generation := r.generation
		r.mu.RUnlock()
		id, err := r.apps.FindAppID(ctx, name)
		if err == nil {
			r.cacheName(name, id, generation)
		}
		return id, err
	})
	select {
	case got := <-pending:
		return got.Val.(db.ID), got.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// cacheName keeps what was found unless a signal came meanwhile.
func (r *Router) cacheName(name string, id db.ID, generation uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.generation != generation {
		return
	}
	here, other := r.knownNames, r.unknownNames
	if id == "" {
		here, other = other, here
	}
	if len(here) >= maxNames {
		clear(here)
	}
	delete(other, name)
	here[name] = cachedName{id, time.Now().Add(nameTTL)}
}

func (r *Router) forgetName(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation++
	r.lookups.Forget(name)
	if name == "" {
		clear(r.knownNames)
		clear(r.unknownNames)
		return
	}
	delete(r.knownNames, name)
	delete(r.unknownNames, name)
}
