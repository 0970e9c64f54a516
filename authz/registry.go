package authz

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

const (
	rollEvery = time.Second // how often a registry looks for changes that no signal told of
	rollLimit = 5 * time.Second
)

// RegistryOptions complete a [Registry]. HTTP is required.
type RegistryOptions struct {
	// HTTP returns the way to an issuer that an app brings, which may lie in a private network or not.
	HTTP func(private bool) *http.Client
	Kept *KeptKeys // see [RemoteOptions]
	Log  *slog.Logger
}

// Registry keeps the apps' own issuers on a [Verifier]'s roll as the database has them, in each process alike.
type Registry struct {
	apps     *tenancy.Service
	verifier *Verifier
	options  RegistryOptions
	wake     chan struct{}
	stop     func()

	mark string // of what is on the roll
	held map[db.ID]*registered
}

// registered is an app's issuer on the roll.
type registered struct {
	as    tenancy.AppIssuer
	entry *entry
	keys  *RemoteKeys
}

// OpenRegistry puts the apps' issuers on v's roll. Close the registry when done.
func OpenRegistry(ctx context.Context, apps *tenancy.Service, v *Verifier, o RegistryOptions) (*Registry, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	r := &Registry{apps: apps, verifier: v, options: o, wake: make(chan struct{}, 1), held: map[db.ID]*registered{}}
	if err := r.look(ctx); err != nil {
		return nil, err
	}
	r.stop = apps.Watch(func() {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	})
	return r, nil
}

// Run follows the apps until ctx ends.
func (r *Registry) Run(ctx context.Context) error {
	tick := time.NewTicker(rollEvery)
	defer tick.Stop()
	healthy := true
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-r.wake:
		}
		err := r.look(ctx)
		if ctx.Err() == nil && (err == nil) != healthy {
			if healthy = err == nil; !healthy {
				r.options.Log.ErrorContext(ctx, "the apps' issuers are accepted as last known", "error", err)
			}
		}
	}
}

// Close takes nothing off the roll and lets go of what fetches keys. Call it after Run has returned.
func (r *Registry) Close() {
	r.stop()
	for _, x := range r.held {
		x.keys.Close()
	}
}

// look brings the roll up to date if anything has changed.
func (r *Registry) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rollLimit)
	defer cancel()
	mark, err := r.apps.IssuersMark(ctx) // before the list: what changes in between is seen at the next look
	if err != nil || mark == r.mark {
		return err
	}
	issuers, err := r.apps.Issuers(ctx)
	if err != nil {
		return err
	}
	r.put(issuers)
	r.mark = mark
	return nil
}

// put makes issuers those on the roll. One that is there already stays with the keys it has.
func (r *Registry) put(issuers []tenancy.AppIssuer) {
	before := r.held
	r.held = make(map[db.ID]*registered, len(issuers))
	var entries []*entry
	for _, i := range issuers {
		if r.verifier.Reserved(i.Auth.Issuer, i.Auth.Audience) {
			r.options.Log.Error("an app's issuer is not accepted: the server itself accepts its tokens", "app", i.Name, "issuer", i.Auth.Issuer, "audience", i.Auth.Audience)
			continue
		}
		x := before[i.App]
		if x == nil || x.as != i {
			x = r.register(i)
		}
		r.held[i.App] = x
		entries = append(entries, x.entry)
	}
	r.verifier.accept(entries)
	for id, x := range before {
		if r.held[id] != x {
			x.entry.gone.Store(true)
			x.keys.Close()
		}
	}
}

func (r *Registry) register(i tenancy.AppIssuer) *registered {
	keys := NewRemoteKeys(i.Auth.JWKSURL, RemoteOptions{HTTP: r.options.HTTP(i.Private), Refresh: i.Auth.Refresh(), Kept: r.options.Kept, Log: r.options.Log.With("app", i.Name)})
	return &registered{as: i, keys: keys, entry: &entry{Accepted: Accepted{
		Issuer: i.Auth.Issuer, Audience: i.Auth.Audience, Keys: keys, App: i.App, AppName: i.Name, ByName: i.Auth.RequireTenantID,
	}}}
}
