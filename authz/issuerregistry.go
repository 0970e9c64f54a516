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
	registryInterval = time.Second // how often a registry looks for changes that no signal told of
	registryTimeout  = 5 * time.Second
)

// IssuerRegistryOptions complete a [IssuerRegistry]. HTTP is required.
type IssuerRegistryOptions struct {
	// HTTP returns the way to an issuer that an app brings, which may lie in a private network or not.
	HTTP      func(private bool) *http.Client
	JWKSCache *JWKSCache // see [RemoteKeySetOptions]
	Log       *slog.Logger
}

// IssuerRegistry keeps the apps' own issuers on a [Verifier]'s roll as the database has them, in each process alike.
type IssuerRegistry struct {
	apps     *tenancy.Service
	verifier *Verifier
	options  IssuerRegistryOptions
	wake     chan struct{}
	stop     func()

	lastMark        string // of what is on the roll
	registeredByApp map[db.ID]*registeredIssuer
}

// registeredIssuer is an app's issuer on the roll.
type registeredIssuer struct {
	config tenancy.AppIssuer
	entry  *issuerEntry
	keys   *RemoteKeySet
}

// OpenIssuerRegistry puts the apps' issuers on v's roll. Close the registry when done.
func OpenIssuerRegistry(ctx context.Context, apps *tenancy.Service, v *Verifier, o IssuerRegistryOptions) (*IssuerRegistry, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	r := &IssuerRegistry{apps: apps, verifier: v, options: o, wake: make(chan struct{}, 1), registeredByApp: map[db.ID]*registeredIssuer{}}
	if err := r.refreshIfChanged(ctx); err != nil {
		return nil, err
	}
	r.stop = apps.WatchApps(func() {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	})
	return r, nil
}

// Run follows the apps until ctx ends.
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

// Close takes nothing off the roll and lets go of what fetches keys. Call it after Run has returned.
func (r *IssuerRegistry) Close() {
	r.stop()
	for _, x := range r.registeredByApp {
		x.keys.Close()
	}
}

// refreshIfChanged brings the roll up to date if anything has changed.
func (r *IssuerRegistry) refreshIfChanged(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	mark, err := r.apps.IssuersVersion(ctx) // before the list: what changes in between is seen at the next look
	if err != nil || mark == r.lastMark {
		return err
	}
	issuers, err := r.apps.ListIssuers(ctx)
	if err != nil {
		return err
	}
	r.setIssuers(issuers)
	r.lastMark = mark
	return nil
}

// setIssuers makes issuers those on the roll. One that is there already stays with the keys it has.
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

func (r *IssuerRegistry) registerIssuer(i tenancy.AppIssuer) *registeredIssuer {
	keys := NewRemoteKeySet(i.Auth.JWKSURL, RemoteKeySetOptions{HTTP: r.options.HTTP(i.Private), Refresh: i.Auth.KeyRefreshInterval(), JWKSCache: r.options.JWKSCache, Log: r.options.Log.With("app", i.Name)})
	return &registeredIssuer{config: i, keys: keys, entry: &issuerEntry{TrustedIssuer: TrustedIssuer{
		Issuer: i.Auth.Issuer, Audience: i.Auth.Audience, Keys: keys, App: i.App, AppName: i.Name, RequireAppName: i.Auth.RequireTenantID,
	}}}
}
