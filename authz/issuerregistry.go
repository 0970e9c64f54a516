package authz

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"stoa/authz/jwks"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

const (
	// registryInterval is the time between two comparisons with the database; it bounds the delay of a change whose
	// signal was lost.
	registryInterval = time.Second
	// registryTimeout bounds one comparison.
	registryTimeout = 5 * time.Second
)

// IssuerRegistryOptions configure an [IssuerRegistry]. HTTP is required.
type IssuerRegistryOptions struct {
	// HTTP returns the client for fetching the keys of an app's issuer; private says whether it may reach private
	// networks.
	HTTP func(private bool) *http.Client
	// Cache is that of [jwks.Options].
	Cache *jwks.Cache
	Log   *slog.Logger
}

// IssuerRegistry keeps the apps' own issuers of a [Verifier] equal to those in the database, in every process.
type IssuerRegistry struct {
	apps     *tenancy.Service
	verifier *Verifier
	options  IssuerRegistryOptions
	// wake (capacity 1) makes Run compare at once.
	wake chan struct{}
	stop func()

	// lastMark is the version ([tenancy.Issuers.Version]) of the issuers that are set. It and registeredByApp
	// are used by OpenIssuerRegistry, then by Run's goroutine, then by Close.
	lastMark        string
	registeredByApp map[db.ID]*registeredIssuer
}

// registeredIssuer is an app's issuer that the verifier accepts, with its keys.
type registeredIssuer struct {
	config tenancy.AppIssuer
	entry  *issuerEntry
	keys   *jwks.RemoteSet
}

// OpenIssuerRegistry sets the apps' issuers of v and returns a registry that keeps them current while Run runs. Call
// Close when done.
func OpenIssuerRegistry(ctx context.Context, apps *tenancy.Service, v *Verifier, o IssuerRegistryOptions) (*IssuerRegistry, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	r := &IssuerRegistry{apps: apps, verifier: v, options: o, wake: make(chan struct{}, 1), registeredByApp: map[db.ID]*registeredIssuer{}}
	if err := r.refreshIfChanged(ctx); err != nil {
		return nil, err
	}
	r.stop = apps.WatchApps(func(string) {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	})
	return r, nil
}

// Run keeps the issuers current until ctx ends, whose error it returns. While the database does not answer, the last
// known issuers stay accepted; this is logged once per outage.
func (r *IssuerRegistry) Run(ctx context.Context) error {
	tick := time.NewTicker(registryInterval)
	defer tick.Stop()
	healthy := true
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-r.wake:
		}
		err := r.refreshIfChanged(ctx)
		if ctx.Err() == nil && (err == nil) != healthy {
			if healthy = err == nil; !healthy {
				r.options.Log.ErrorContext(ctx, "the apps' issuers are accepted as last known", "error", err)
			}
		}
	}
}

// Close ends the subscription to signals and the fetching of keys; the verifier keeps its issuers. Call it after Run
// has returned.
func (r *IssuerRegistry) Close() {
	r.stop()
	for _, x := range r.registeredByApp {
		x.keys.Close()
	}
}

// refreshIfChanged sets the issuers if their version has changed.
func (r *IssuerRegistry) refreshIfChanged(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	mark, err := r.apps.Issuers.Version(ctx) // read before the list: a change in between is found at the next comparison
	if err != nil || mark == r.lastMark {
		return err
	}
	issuers, err := r.apps.Issuers.List(ctx)
	if err != nil {
		return err
	}
	r.setIssuers(issuers)
	r.lastMark = mark
	return nil
}

// setIssuers makes issuers the accepted ones. An unchanged issuer keeps its entry with the fetched keys; a changed or
// removed one is marked as removed, which invalidates the verified tokens in the cache.
func (r *IssuerRegistry) setIssuers(issuers []tenancy.AppIssuer) {
	before := r.registeredByApp
	r.registeredByApp = make(map[db.ID]*registeredIssuer, len(issuers))
	var entries []*issuerEntry
	for _, i := range issuers {
		if r.verifier.IsReserved(i.Auth.Issuer, i.Auth.Audience) {
			r.options.Log.Error("an app's issuer is not accepted: the server itself accepts its tokens", "app", i.Name, "issuer", i.Auth.Issuer, "audience", i.Auth.Audience)
			continue
		}
		x := before[i.App]
		if x == nil || x.config != i {
			x = r.registerIssuer(i)
		}
		r.registeredByApp[i.App] = x
		entries = append(entries, x.entry)
	}
	r.verifier.setAppIssuers(entries)
	for id, x := range before {
		if r.registeredByApp[id] != x {
			x.entry.removed.Store(true)
			x.keys.Close()
		}
	}
}

// registerIssuer returns the entry of an app's issuer. Its tokens speak for this app only.
func (r *IssuerRegistry) registerIssuer(i tenancy.AppIssuer) *registeredIssuer {
	keys := jwks.NewRemoteSet(i.Auth.JWKSURL, jwks.Options{HTTP: r.options.HTTP(i.Private), Refresh: i.Auth.KeyRefreshInterval(), Cache: r.options.Cache, Log: r.options.Log.With("app", i.Name)})
	return &registeredIssuer{config: i, keys: keys, entry: &issuerEntry{TrustedIssuer: TrustedIssuer{
		Issuer: i.Auth.Issuer, Audience: i.Auth.Audience, Keys: keys, App: i.App, AppName: i.Name, RequireAppName: i.Auth.RequireTenantID,
	}}}
}
