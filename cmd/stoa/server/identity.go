package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"stoa/agentsvc/egress"
	"stoa/agentsvc/runtime"
	"stoa/authz"
	"stoa/authz/jwks"
	"stoa/ratelimit"
	"stoa/tenancy"
	"stoa/tenancy/apikey"
	"stoa/tenancy/audit"
)

// identity is what authenticates callers: the built-in issuer and its keys, API keys, the issuer of server.auth, and the
// issuers of apps. The issuer of a token decides its tenant: tokens of the built-in issuer and of server.auth name their
// app in a claim, an app's own issuer speaks for that app only (see [authz.TrustedIssuer]).
type identity struct {
	platformIdentity
	appIdentity
}

// platformIdentity is the part of identity that the process decides.
type platformIdentity struct {
	// issuer signs the server's own access tokens, verifier accepts those of all trusted issuers.
	issuer   *authz.BuiltInIssuer
	verifier *authz.Verifier
	keyCache *jwks.Cache
}

// appIdentity is the part of identity that apps decide.
type appIdentity struct {
	// registry keeps the apps' own issuers in the verifier as the database has them.
	registry *authz.IssuerRegistry
	// apiKeys verifies API keys, each of which belongs to one app.
	apiKeys *authz.APIKeys
	// failures counts failed authentications and writes them to the audit trail.
	failures *audit.FailedCredentials
	// adminAttempts counts wrong admin secrets for all processes on the database together.
	adminAttempts *ratelimit.Throttle
}

// openVerifier returns the built-in issuer and the verifier that accepts its tokens and those of server.auth's issuer.
// It returns an error if the keys of the latter can be neither fetched nor read from the database's cache, because every
// token of that issuer would be refused. A worker serves no tenant's requests and does not fetch them.
func openVerifier(ctx context.Context, o Options, d runtime.Dependencies, c *closers) (p platformIdentity, err error) {
	p.issuer, err = authz.OpenBuiltInIssuer(ctx, d.DB, d.Keys, authz.BuiltInIssuerOptions{Name: o.Settings.Cards.PublicURL, Log: o.Log})
	if err != nil {
		return p, err
	}
	p.keyCache = jwks.NewCache(d.DB)
	accepted := []authz.TrustedIssuer{p.issuer.TrustedIssuer()}
	// The issuer of server.auth. Its tokens name their app, like those of the built-in issuer.
	if a := o.DefaultApp.authConfig(); a.Enabled && o.Settings.Role != roleWorker {
		if a.Issuer == accepted[0].Issuer {
			return p, fmt.Errorf("server.auth.issuer: %s is the built-in issuer of this server, whose tokens are accepted anyway: name the other one", a.Issuer)
		}
		keys := jwks.NewRemoteSet(a.JWKSURL, jwks.Options{HTTP: d.PrivateEgress.HTTP(), Refresh: a.RefreshInterval, Cache: p.keyCache, Log: o.Log})
		c.add(func() error { keys.Close(); return nil })
		// Fetched from the issuer, else read from the cache of the database, within the age that the cache allows.
		if err := keys.EnsureFetched(ctx); err != nil {
			return p, fmt.Errorf("server.auth: without the keys of %s no caller can be authenticated: %w", a.Issuer, err)
		}
		accepted = append(accepted, authz.TrustedIssuer{Issuer: a.Issuer, Audience: a.Audience, Keys: keys})
	}
	p.verifier = authz.NewVerifier(accepted...)
	return p, nil
}

// openAppIdentity returns the registry of the apps' issuers, which it adds to the verifier of p, the API keys, and the
// counts of failed credentials.
func openAppIdentity(ctx context.Context, apps *tenancy.Service, p platformIdentity, d runtime.Dependencies, c *closers) (appIdentity, error) {
	registry, err := authz.OpenIssuerRegistry(ctx, apps, p.verifier, authz.IssuerRegistryOptions{HTTP: func(private bool) *http.Client { return IssuerHTTPClient(d, private) }, Cache: p.keyCache, Log: d.Log})
	if err != nil {
		return appIdentity{}, err
	}
	c.add(func() error { registry.Close(); return nil })
	keys, err := d.Keys.DeriveKeys("throttle of the admin secret")
	if err != nil {
		return appIdentity{}, err
	}
	attempts := ratelimit.NewThrottle(ratelimit.ThrottleOptions{Shared: d.RateCounts.Shared, Tenant: tenancy.DefaultID, Key: keys[0]})
	return appIdentity{registry, authz.NewAPIKeys(apikey.NewStore(d.DB, apps), p.issuer), audit.NewFailedCredentials(apps.Trail), attempts}, nil
}

// IssuerHTTPClient returns the client that fetches the keys of an app's issuer. private is the app's grant
// private_network.
func IssuerHTTPClient(d runtime.Dependencies, private bool) *http.Client {
	return issuerEgress(d, private).HTTP()
}

// issuerEgress returns the client that reaches the hosts of an app's issuer.
func issuerEgress(d runtime.Dependencies, private bool) *egress.Client {
	if private {
		return d.PrivateEgress
	}
	return d.PublicEgress
}

// resolveTimeout bounds the DNS lookup of an issuer's host in a request of the admin API.
const resolveTimeout = 2 * time.Second

// Errors of checkIssuerHost; the admin API shows them after the name of the field.
var (
	errPrivateNetwork = errors.New("leads into a private network: the keys are never fetched from there without the grant private_network")
	errHostNotFound   = errors.New("names a host that does not resolve: correct it, or try again when it does")
)

// checkIssuerHost checks the host of the jwks_url of an app's issuer when it is configured, so that a mistake is
// reported at once. It returns an error if the host does not exist or resolves to a refused address. If the resolver
// fails, it logs a warning and accepts the host: every fetch of the keys checks the address again, so that this check
// is a convenience and not the protection.
func checkIssuerHost(ctx context.Context, d runtime.Dependencies, host string, private bool) error {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	err := issuerEgress(d, private).CheckHost(ctx, host)
	var unknown *net.DNSError
	// The resolver's error distinguishes a host that does not exist from a resolver that does not answer.
	switch {
	case errors.As(err, new(*egress.NotAllowedError)) && !private:
		return errPrivateNetwork
	case errors.As(err, new(*egress.NotAllowedError)):
		return errors.New("leads to an address that is never called")
	case errors.As(err, &unknown) && unknown.IsNotFound:
		return errHostNotFound
	case err != nil:
		d.Log.WarnContext(ctx, "the host of an app's issuer could not be looked up: its keys are fetched with the first token", "host", host, "error", err)
	}
	return nil
}
