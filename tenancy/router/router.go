// Package router finds the app of a request: by its token or API key, else by its host or path. [Router.FindApp] returns
// the app's id, and [AppRequest.CheckApp] decides on the app's record whether the request may use it. An app that the
// caller may not use is answered like an app that does not exist.
package router

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

const (
	// nameTTL is how long a cached name is used without asking the database again. It bounds the staleness after a lost
	// signal; a signal about it removes the name at once.
	nameTTL = time.Second
	// maxNames bounds each of the two name caches, so that requests for invented names cannot fill the memory.
	maxNames = 10_000
	// lookupTimeout bounds one query for a name, which any number of callers wait for.
	lookupTimeout = 5 * time.Second
)

// Router finds the app of a request. It caches names and is safe for concurrent use.
type Router struct {
	// apps, hosts and stopWatch are set by New and read-only afterwards.
	apps      *tenancy.Service
	hosts     []hostPattern
	stopWatch func()

	// lookups merges concurrent queries for the same name.
	lookups singleflight.Group
	// mu guards the fields below.
	mu sync.RWMutex
	// nameSignals counts the signals about names. A query that began before the latest of them may have read the state
	// before the change, so its result is not cached.
	nameSignals uint64
	// knownNames caches names that an app has, unknownNames names that no app has. They are separate so that requests
	// for invented names cannot evict the names of existing apps.
	knownNames   map[string]cachedName
	unknownNames map[string]cachedName
}

// cachedName is the result of a query; id is "" if no app had the name.
type cachedName struct {
	id    db.ID
	until time.Time
}

// New returns a router over the apps of s. Each element of hosts is a host name that contains {app} in the place
// of an app's name, as in {app}.agents.example.com. Call Close to stop it from receiving signals.
func New(s *tenancy.Service, hosts []string) (*Router, error) {
	patterns, err := parseHosts(hosts)
	if err != nil {
		return nil, err
	}
	r := &Router{apps: s, hosts: patterns, knownNames: map[string]cachedName{}, unknownNames: map[string]cachedName{}}
	r.stopWatch = s.WatchNames(r.forgetName)
	return r, nil
}

// Close ends the subscription to signals.
func (r *Router) Close() { r.stopWatch() }

// FindApp returns the id of the app that v is for, or the error that the caller gets before any app is loaded:
// [ErrUnauthenticated], [ErrOperator] or [agentsvc.CodeNotFound]. An id taken from a credential is returned without a
// look into the database, so the app need not exist; [AppRequest.CheckApp] makes the final decision.
func (r *Router) FindApp(ctx context.Context, v *AppRequest) (db.ID, error) {
	id, name, err := v.chooseApp()
	if err != nil || id != "" {
		return id, err
	}
	id, err = r.lookupName(ctx, name)
	if err == nil && id == "" {
		err = v.missingAppError()
	}
	return id, err
}

// lookupName returns the id of the app with that name, "" if there is none. The query continues without a caller that
// gives up, because others may wait for it.
func (r *Router) lookupName(ctx context.Context, name string) (db.ID, error) {
	if !tenancy.IsValidAppName(name) {
		return "", nil
	}
	if name == tenancy.DefaultName {
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
		// The query serves every caller that waits for this name, so it must not end with the first one's request.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
		defer cancel()
		r.mu.RLock()
		before := r.nameSignals
		r.mu.RUnlock()
		id, err := r.apps.FindAppID(ctx, name)
		if err == nil {
			r.cacheName(name, id, before)
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

// cacheName caches the result of a query that began when nameSignals was before, unless it has grown since. A full
// cache is cleared as a whole, which costs one query per name again.
func (r *Router) cacheName(name string, id db.ID, before uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nameSignals != before {
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

// forgetName handles a signal about a name: it removes the name, or all names if name is "", and detaches queries under
// way from later callers, since they may return the former state.
func (r *Router) forgetName(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nameSignals++
	r.lookups.Forget(name)
	if name == "" {
		clear(r.knownNames)
		clear(r.unknownNames)
		return
	}
	delete(r.knownNames, name)
	delete(r.unknownNames, name)
}
