package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/duration"
	"stoa/tenancy/db"
	"stoa/tenancy/grant"
)

// IssuerConfig is an OpenID Connect issuer of an app's own. Tokens with this Issuer and Audience that are signed by a
// key from JWKSURL are accepted for this app and for no other (docs/identity.md). The zero value means that there is no
// issuer. Its JSON is the stored form.
type IssuerConfig struct {
	Issuer   string `json:"issuer"`
	JWKSURL  string `json:"jwks_url"`
	Audience string `json:"audience"`
	// ClientID is the public OAuth client id for pages that log in.
	ClientID string `json:"client_id,omitempty"`
	// RefreshInterval is how often the keys are fetched, as a Go duration; "" means defaultRefresh.
	RefreshInterval string `json:"refresh_interval,omitempty"`
	// RequireTenantID accepts only tokens whose claim tenant_id is the app's name, so that several apps can share an
	// issuer and audience.
	RequireTenantID bool `json:"require_tenant_id,omitempty"`
}

// The bounds of an issuer's fields; maxAuthText is in characters.
const (
	maxAuthText    = 500
	defaultRefresh = 15 * time.Minute
	minRefresh     = 30 * time.Second
	maxRefresh     = 24 * time.Hour
)

// KeyRefreshInterval returns how often the issuer's keys are fetched.
func (c IssuerConfig) KeyRefreshInterval() time.Duration {
	if d, err := duration.Parse(c.RefreshInterval); err == nil {
		return d
	}
	return defaultRefresh
}

// checkFields returns an error with [agentsvc.CodeInvalid] for the first bad field. Keys may be fetched over plain
// HTTP, or from a private address, only with the grant private_network: who can change the response on its way could
// sign tokens.
func (c IssuerConfig) checkFields(grants grant.List) error {
	for _, f := range []struct{ name, value string }{
		{"issuer", c.Issuer}, {"jwks_url", c.JWKSURL}, {"audience", c.Audience}, {"client_id", c.ClientID},
	} {
		if f.value == "" && f.name != "client_id" {
			return agentsvc.NewInvalidError("auth."+f.name, "is missing")
		}
		if err := checkText("auth."+f.name, f.value, maxAuthText); err != nil {
			return err
		}
	}
	u, err := url.Parse(c.JWKSURL)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http":
		return agentsvc.NewInvalidError("auth.jwks_url", "must be an address such as https://login.example.com/jwks.json")
	case u.Scheme == "http" && !grants.Has(grant.PrivateNetwork):
		return agentsvc.NewInvalidError("auth.jwks_url", "must begin with https://: whoever changes the answer on its way could sign tokens (an app with the grant %s may use http)", grant.PrivateNetwork)
	case isPrivateHost(u.Hostname()) && !grants.Has(grant.PrivateNetwork):
		return agentsvc.NewInvalidError("auth.jwks_url", "lies in a private network: the keys are never fetched from there without the grant %s", grant.PrivateNetwork)
	}
	if c.RefreshInterval != "" {
		if d, err := duration.Parse(c.RefreshInterval); err != nil || d < minRefresh || d > maxRefresh {
			return agentsvc.NewInvalidError("auth.refresh_interval", "must be a duration from 30s to 24h")
		}
	}
	return nil
}

// checkIssuerHost resolves the host of the issuer's keys and refuses it if the app may not reach it. It skips the check
// if neither the URL nor the grant that allowed it has changed, so that an unrelated change does not depend on DNS.
func (s *Service) checkIssuerHost(ctx context.Context, app, previous *App) error {
	private, before := app.Grants.Has(grant.PrivateNetwork), previous.Grants.Has(grant.PrivateNetwork)
	if s.store.options.CheckHost == nil || app.Auth == (IssuerConfig{}) || app.Auth.JWKSURL == previous.Auth.JWKSURL && (private || !before) {
		return nil
	}
	u, err := url.Parse(app.Auth.JWKSURL)
	if err != nil {
		return agentsvc.NewInvalidError("auth.jwks_url", "is no address")
	}
	if err := s.store.options.CheckHost(ctx, u.Hostname(), private); err != nil {
		return agentsvc.NewInvalidError("auth.jwks_url", "%s", err)
	}
	return nil
}

// isPrivateHost reports whether host is written as an address or a name of a private network. Names that resolve to
// private addresses are found by Options.CheckHost.
func isPrivateHost(host string) bool {
	if host = strings.ToLower(strings.TrimSuffix(host, ".")); host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	ip = ip.Unmap()
	return err == nil && (!ip.IsGlobalUnicast() || ip.IsPrivate())
}

// uniqueKey returns the value of the column auth_key, which has a unique index: no two apps may have the same one,
// because it determines the app of a token. It is "" if there is no issuer. It contains the app's name if tokens must
// name the app.
func (c IssuerConfig) uniqueKey(app string) string {
	switch {
	case c == IssuerConfig{}:
		return ""
	case c.RequireTenantID:
		return c.sharedKeyPrefix() + app
	}
	return c.Issuer + "\n" + c.Audience
}

// sharedKeyPrefix is the common prefix of the keys of all apps that have this issuer and audience and require
// tenant_id.
func (c IssuerConfig) sharedKeyPrefix() string { return c.Issuer + "\n" + c.Audience + "\n" }

// encodeColumn returns the value of the column auth, "" if there is no issuer.
func (c IssuerConfig) encodeColumn() (string, error) {
	if c == (IssuerConfig{}) {
		return "", nil
	}
	doc, err := json.Marshal(c)
	return string(doc), err
}

// decodeColumn parses a value of the column auth. Unknown fields are ignored, since a newer version may have written
// them.
func (c *IssuerConfig) decodeColumn(doc string) error {
	if *c = (IssuerConfig{}); doc == "" {
		return nil
	}
	return json.Unmarshal([]byte(doc), c)
}

// checkIssuerUnique returns [agentsvc.CodeExists] if a token of the app's issuer could not be attributed to this app alone:
// another app, or the process itself, accepts the same issuer and audience. Apps that all require tenant_id may share
// them. The unique index on auth_key covers equal keys in concurrent transactions; the prefix comparison covers an app
// with tenant_id next to one without.
func (s *store) checkIssuerUnique(ctx context.Context, tx *db.Tx, app *App) error {
	a := app.Auth
	if a == (IssuerConfig{}) {
		return nil
	}
	if s.options.IsReservedIssuer != nil && s.options.IsReservedIssuer(a.Issuer, a.Audience) {
		return agentsvc.NewError(agentsvc.CodeExists, "tokens of the issuer %s for %s are the server's own to accept: choose another audience", a.Issuer, a.Audience)
	}
	other, sharedPrefix := "", a.sharedKeyPrefix()
	if a.RequireTenantID {
		sharedPrefix = "" // apps that all require tenant_id do not conflict
	}
	err := tx.Query(ctx, func(row db.Row) error { return row.Scan(&other) },
		`SELECT name FROM app WHERE auth_key <> '' AND tenant <> $1
			AND (auth_key = $2 OR CAST($3 AS TEXT) <> '' AND substr(auth_key, 1, length(CAST($3 AS TEXT))) = $3) LIMIT 1`,
		string(app.ID), a.Issuer+"\n"+a.Audience, sharedPrefix)
	if err == nil && other != "" {
		err = agentsvc.NewError(agentsvc.CodeExists, "tokens of the issuer %s for %s are accepted for the app %s already: choose another audience, or set require_tenant_id for both",
			a.Issuer, a.Audience, other)
	}
	return err
}

// errIssuerTaken is returned if the unique index on auth_key, not checkIssuerUnique, found the conflict.
var errIssuerTaken = agentsvc.NewError(agentsvc.CodeExists, "tokens of this issuer for this audience are accepted for another app")

// AppIssuer is an app's own issuer with its app.
type AppIssuer struct {
	App  db.ID
	Name string
	Auth IssuerConfig
	// Private reports that its keys may be fetched from a private network.
	Private bool
}

// Issuers are the apps' own issuers.
type Issuers struct{ store *store }

// List returns the issuers of all apps that are not being deleted.
func (i Issuers) List(ctx context.Context) ([]AppIssuer, error) {
	var all []AppIssuer
	var b db.Batch
	b.Query(func(row db.Row) error {
		var issuer AppIssuer
		var id, doc, grants string
		if err := row.Scan(&id, &issuer.Name, &doc, &grants); err != nil {
			return err
		}
		issuer.App = db.ID(id)
		var granted grant.List
		if err := json.Unmarshal([]byte(grants), &granted); err != nil {
			return fmt.Errorf("grants of app %s: %w", id, err)
		}
		issuer.Private = granted.Has(grant.PrivateNetwork)
		all = append(all, issuer)
		return all[len(all)-1].Auth.decodeColumn(doc)
	}, `SELECT tenant, name, auth, grants FROM app WHERE auth_key <> '' AND status <> 'deleting' ORDER BY tenant`)
	if err := i.store.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read the apps' issuers: %w", err)
	}
	return all, nil
}

// Version returns a text that changes whenever the result of [Issuers.List] may have changed. It is
// cheaper to read; the index app_auth contains exactly the apps with an issuer.
func (i Issuers) Version(ctx context.Context) (version string, err error) {
	var b db.Batch
	b.Query(func(row db.Row) error {
		var n, generations, at int64
		err := row.Scan(&n, &generations, &at)
		version = fmt.Sprintf("%d/%d/%d", n, generations, at)
		return err
	}, `SELECT COUNT(*), CAST(COALESCE(SUM(generation), 0) AS BIGINT), COALESCE(MAX(updated_at), 0) FROM app WHERE auth_key <> '' AND status <> 'deleting'`)
	if err := i.store.db.Platform().Do(ctx, &b); err != nil {
		return "", fmt.Errorf("read the apps' issuers: %w", err)
	}
	return version, nil
}
