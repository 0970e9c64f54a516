package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"stoa/agentsvc/config"
	"stoa/agentsvc/egress"
	"stoa/authz"
)

// authConfig returns server.auth of the operator's file: whether the default app requires authentication, and whose
// tokens it accepts.
func (h *server) authConfig() config.Auth {
	if cfg := h.defaultApp.cfg.Load(); cfg != nil {
		return cfg.Server.Auth
	}
	return config.Auth{}
}

// openIdentity composes what authenticates callers: the built-in issuer and its keys, API keys, the issuer of
// server.auth, and the issuers of apps. The issuer of a token decides its tenant: tokens of the built-in issuer and
// of server.auth name their app in a claim, an app's own issuer speaks for that app only (see [authz.TrustedIssuer]).
//
// It returns an error if the keys of server.auth's issuer can be neither fetched nor read from the database's cache,
// because every token of that issuer would be refused. A worker serves no tenant's requests and does not fetch them.
func (h *server) openIdentity(ctx context.Context) (err error) {
	if h.issuer, err = authz.OpenIssuer(ctx, h.db, h.keyring, authz.IssuerOptions{Name: h.settings.publicURL, Log: h.log}); err != nil {
		return err
	}
	kept := authz.NewJWKSCache(h.db)
	h.apiKeys = authz.NewAPIKeys(h.apps, h.issuer)
	accepted := []authz.TrustedIssuer{h.issuer.TrustedIssuer()}
	// The issuer of server.auth. Its tokens name their app, like those of the built-in issuer.
	if a := h.authConfig(); a.Enabled && h.settings.role != roleWorker {
		if a.Issuer == accepted[0].Issuer {
			return fmt.Errorf("server.auth.issuer: %s is the built-in issuer of this server, whose tokens are accepted anyway: name the other one", a.Issuer)
		}
		keys := authz.NewRemoteKeySet(a.JWKSURL, authz.RemoteKeySetOptions{HTTP: h.deps.PrivateEgress.HTTP(), Refresh: a.RefreshInterval, JWKSCache: kept, Log: h.log})
		h.addCloser(func() error { keys.Close(); return nil })
		// Fetched from the issuer, else read from the cache of the database, within the age that the cache allows.
		if err := keys.EnsureFetched(ctx); err != nil {
			return fmt.Errorf("server.auth: without the keys of %s no caller can be authenticated: %w", a.Issuer, err)
		}
		accepted = append(accepted, authz.TrustedIssuer{Issuer: a.Issuer, Audience: a.Audience, Keys: keys})
	}
	h.verifier = authz.NewVerifier(accepted...)
	h.issuerRegistry, err = authz.OpenIssuerRegistry(ctx, h.apps, h.verifier, authz.IssuerRegistryOptions{HTTP: h.issuerHTTPClient, JWKSCache: kept, Log: h.log})
	if err != nil {
		return err
	}
	h.addCloser(func() error { h.issuerRegistry.Close(); return nil })
	return nil
}

// issuerHTTPClient returns the client that fetches the keys of an app's issuer. private is the app's grant
// private_network.
func (h *server) issuerHTTPClient(private bool) *http.Client {
	if private {
		return h.deps.PrivateEgress.HTTP()
	}
	return h.deps.PublicEgress.HTTP()
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
func (h *server) checkIssuerHost(ctx context.Context, host string, private bool) error {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	transport := h.deps.PublicEgress
	if private {
		transport = h.deps.PrivateEgress
	}
	err := transport.CheckHost(ctx, host)
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
		h.log.WarnContext(ctx, "the host of an app's issuer could not be looked up: its keys are fetched with the first token", "host", host, "error", err)
	}
	return nil
}

// isReservedIssuer reports whether the process itself accepts tokens of issuer for audience. An app cannot claim such
// a pair: it would otherwise decide about tokens of the whole platform.
func (h *server) isReservedIssuer(issuer, audience string) bool {
	return h.verifier.IsReserved(issuer, audience)
}
