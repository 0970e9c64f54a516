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

// authConfig is what the operator's file says of who may call.
func (h *server) authConfig() config.Auth {
	if cfg := h.defaultApp.cfg.Load(); cfg != nil {
		return cfg.Server.Auth
	}
	return config.Auth{}
}

// openIdentity makes known whose tokens and keys are accepted. Where the server's own issuer does not show its keys it
// refuses: whom that issuer vouches for, nobody could tell. A process that answers no requests does not ask.
func (h *server) openIdentity(ctx context.Context) (err error) {
	if h.issuer, err = authz.OpenIssuer(ctx, h.db, h.keyring, authz.IssuerOptions{Name: h.settings.publicURL, Log: h.log}); err != nil {
		return err
	}
	kept := authz.NewJWKSCache(h.db)
	h.apiKeys = authz.NewAPIKeys(h.apps, h.issuer)
	accepted := []authz.TrustedIssuer{h.issuer.TrustedIssuer()}
	if a := h.authConfig(); a.Enabled && h.settings.role != roleWorker {
		if a.Issuer == accepted[0].Issuer {
			return fmt.Errorf("server.auth.issuer: %s is the built-in issuer of this server, whose tokens are accepted anyway: name the other one", a.Issuer)
		}
		keys := authz.NewRemoteKeySet(a.JWKSURL, authz.RemoteKeySetOptions{HTTP: h.deps.PrivateEgress.HTTP(), Refresh: a.RefreshInterval, JWKSCache: kept, Log: h.log})
		h.addCloser(func() error { keys.Close(); return nil })
		if err := keys.EnsureFetched(ctx); err != nil {
			return fmt.Errorf("server.auth: without the keys of %s nobody could be let in: %w", a.Issuer, err)
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

// issuerHTTPClient returns the way to an issuer that an app brings.
func (h *server) issuerHTTPClient(private bool) *http.Client {
	if private {
		return h.deps.PrivateEgress.HTTP()
	}
	return h.deps.PublicEgress.HTTP()
}

// resolveTimeout bounds how long looking up an issuer's host may take.
const resolveTimeout = 2 * time.Second

var (
	errPrivateNetwork = errors.New("leads into a private network: the keys are never fetched from there without the grant private_network")
	errHostNotFound   = errors.New("names a host that does not resolve: correct it, or try again when it does")
)

// checkIssuerHost looks up the host that an app's issuer shows its keys at. While the resolver cannot be asked, any will do: each fetch
// asks again.
func (h *server) checkIssuerHost(ctx context.Context, host string, private bool) error {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	transport := h.deps.PublicEgress
	if private {
		transport = h.deps.PrivateEgress
	}
	err := transport.CheckHost(ctx, host)
	var unknown *net.DNSError
	switch {
	case errors.As(err, new(*egress.NotAllowedError)) && !private:
		return errPrivateNetwork
	case errors.As(err, new(*egress.NotAllowedError)):
		return errors.New("leads to an address that is never called")
	case errors.As(err, &unknown) && unknown.IsNotFound:
		return errHostNotFound
	case err != nil:
		h.log.WarnContext(ctx, "the host of an app's issuer could not be looked up: its tokens show whether its keys can be had", "host", host, "error", err)
	}
	return nil
}

// isReservedIssuer reports whether tokens of issuer for audience are the server's own to accept.
func (h *server) isReservedIssuer(issuer, audience string) bool {
	return h.verifier.IsReserved(issuer, audience)
}
