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

// auth is what the operator's file says of who may call.
func (h *house) auth() config.Auth {
	if cfg := h.own.cfg.Load(); cfg != nil {
		return cfg.Server.Auth
	}
	return config.Auth{}
}

// openIdentity makes known whose tokens and keys are accepted. Where the server's own issuer does not show its keys it
// refuses: whom that issuer vouches for, nobody could tell. A process that answers no requests does not ask.
func (h *house) openIdentity(ctx context.Context) (err error) {
	if h.issuer, err = authz.OpenIssuer(ctx, h.db, h.keys, authz.IssuerOptions{Name: h.settings.publicURL, Log: h.log}); err != nil {
		return err
	}
	kept := authz.NewKeptKeys(h.db)
	h.apiKeys = authz.NewAPIKeys(h.apps, h.issuer)
	accepted := []authz.Accepted{h.issuer.Accepted()}
	if a := h.auth(); a.Enabled && h.settings.role != roleWorker {
		if a.Issuer == accepted[0].Issuer {
			return fmt.Errorf("server.auth.issuer: %s is the built-in issuer of this server, whose tokens are accepted anyway: name the other one", a.Issuer)
		}
		keys := authz.NewRemoteKeys(a.JWKSURL, authz.RemoteOptions{HTTP: h.shared.Inside.HTTP(), Refresh: a.RefreshInterval, Kept: kept, Log: h.log})
		h.closing(func() error { keys.Close(); return nil })
		if err := keys.Fetch(ctx); err != nil {
			return fmt.Errorf("server.auth: without the keys of %s nobody could be let in: %w", a.Issuer, err)
		}
		accepted = append(accepted, authz.Accepted{Issuer: a.Issuer, Audience: a.Audience, Keys: keys})
	}
	h.verifier = authz.NewVerifier(accepted...)
	h.registry, err = authz.OpenRegistry(ctx, h.apps, h.verifier, authz.RegistryOptions{HTTP: h.wayTo, Kept: kept, Log: h.log})
	if err != nil {
		return err
	}
	h.closing(func() error { h.registry.Close(); return nil })
	return nil
}

// wayTo returns the way to an issuer that an app brings.
func (h *house) wayTo(private bool) *http.Client {
	if private {
		return h.shared.Inside.HTTP()
	}
	return h.shared.Outside.HTTP()
}

// reachTime bounds how long looking up an issuer's host may take.
const reachTime = 2 * time.Second

var (
	errInside = errors.New("leads into a private network: the keys are never fetched from there without the grant private_network")
	errNoHost = errors.New("names a host that does not resolve: correct it, or try again when it does")
)

// reach looks up the host that an app's issuer shows its keys at. While the resolver cannot be asked, any will do: each fetch
// asks again.
func (h *house) reach(ctx context.Context, host string, private bool) error {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	way := h.shared.Outside
	if private {
		way = h.shared.Inside
	}
	err := way.Resolve(ctx, host)
	var unknown *net.DNSError
	switch {
	case errors.As(err, new(*egress.NotAllowedError)) && !private:
		return errInside
	case errors.As(err, new(*egress.NotAllowedError)):
		return errors.New("leads to an address that is never called")
	case errors.As(err, &unknown) && unknown.IsNotFound:
		return errNoHost
	case err != nil:
		h.log.WarnContext(ctx, "the host of an app's issuer could not be looked up: its tokens show whether its keys can be had", "host", host, "error", err)
	}
	return nil
}

// reserved reports whether tokens of issuer for audience are the server's own to accept.
func (h *house) reserved(issuer, audience string) bool { return h.verifier.Reserved(issuer, audience) }
