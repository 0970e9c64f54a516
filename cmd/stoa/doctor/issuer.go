package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"stoa/agentsvc/config"
	"stoa/agentsvc/egress"
	"stoa/authz/jwks"
)

// checkIssuer fetches the keys of the issuer of server.auth, as a server does at its start, and its discovery document,
// which pages that sign people in read. Issuers of apps are not asked.
func (i *inspector) checkIssuer(ctx context.Context) []Check {
	if i.Config == nil || !i.Config.Server.Auth.Enabled {
		return skipAll("server.auth is not enabled", "oidc_keys", "oidc_discovery")
	}
	auth := i.Config.Server.Auth
	return []Check{i.checkIssuerKeys(ctx, auth), i.checkDiscovery(ctx, auth)}
}

// checkIssuerKeys fetches the key set at jwks_url.
func (i *inspector) checkIssuerKeys(ctx context.Context, auth config.Auth) Check {
	const name = "oidc_keys"
	keys := jwks.NewRemoteSet(auth.JWKSURL, jwks.Options{HTTP: i.private.HTTP(), Refresh: auth.RefreshInterval, Log: slog.New(slog.DiscardHandler)})
	defer keys.Close()
	if err := keys.EnsureFetched(ctx); err != nil {
		reason := strings.TrimPrefix(err.Error(), jwks.ErrUnavailable.Error()+": ")
		return fail(name, reason, "correct server.auth.jwks_url, or let this machine reach the provider; without keys no server starts, unless another has stored them in the database")
	}
	return pass(name, "the keys of %s can be fetched", auth.Issuer)
}

// discoveryPath is where a provider describes itself, below its issuer (OpenID Connect Discovery 1.0, section 4).
const discoveryPath = "/.well-known/openid-configuration"

// checkDiscovery compares the description of the provider with server.auth.
func (i *inspector) checkDiscovery(ctx context.Context, auth config.Auth) Check {
	const name = "oidc_discovery"
	if u, err := url.Parse(auth.Issuer); err != nil || u.Host == "" {
		return skip(name, "the issuer is no URL: it publishes no description")
	}
	address := strings.TrimSuffix(auth.Issuer, "/") + discoveryPath
	found, err := fetchDiscovery(ctx, i.private.HTTP(), address)
	switch {
	case err != nil && auth.ClientID == "":
		return warn(name, address+": "+err.Error(), "correct server.auth.issuer if it is wrong: tokens must have exactly this issuer; tokens are verified without this document")
	case err != nil:
		return fail(name, address+": "+err.Error(), "correct server.auth.issuer: pages sign people in at what this document names")
	case found.Issuer != auth.Issuer:
		return fail(name, fmt.Sprintf("the provider calls itself %.200q, server.auth.issuer is %q: every token is refused", found.Issuer, auth.Issuer), "write server.auth.issuer exactly as the provider does, with or without a slash at its end")
	case found.JWKSURI != auth.JWKSURL:
		return warn(name, fmt.Sprintf("the provider publishes its keys at %.200q, server.auth.jwks_url is another address", found.JWKSURI), "use the provider's address, unless yours is a copy of it")
	}
	return pass(name, "%s describes itself as server.auth does", auth.Issuer)
}

// discovery is the part of a provider's description that is compared.
type discovery struct {
	Issuer  string `json:"issuer"`
	JWKSURI string `json:"jwks_uri"`
}

// fetchDiscovery returns the description at address. Its errors have nothing of another answer.
func fetchDiscovery(ctx context.Context, client *http.Client, address string) (d discovery, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return d, errors.New("it is no URL")
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return d, errors.New(egress.PublicMessage(err))
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return d, fmt.Errorf("the answer is %d", resp.StatusCode)
	}
	const maxBytes = 1 << 20
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBytes)).Decode(&d); err != nil || d.Issuer == "" {
		return d, errors.New("the answer is no description of a provider")
	}
	return d, nil
}
