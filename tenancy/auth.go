package tenancy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"stoa/tenancy/db"
	"stoa/tenancy/grant"
)

// IssuerConfig is an issuer of an app's own. Tokens that say Issuer and Audience, and are signed by a key that lies at JWKSURL,
// speak for that app and for no other. The zero value is no issuer.
type IssuerConfig struct {
	Issuer          string `json:"issuer"`
	JWKSURL         string `json:"jwks_url"`
	Audience        string `json:"audience"`
	ClientID        string `json:"client_id,omitempty"`         // public, for pages that log in
	RefreshInterval string `json:"refresh_interval,omitempty"`  // how often its keys are fetched; "" = 15m
	RequireTenantID bool   `json:"require_tenant_id,omitempty"` // only tokens whose tenant_id is the app's name
}

// The bounds of an issuer's fields.
const (
	maxAuthText    = 500
	defaultRefresh = 15 * time.Minute
	minRefresh     = 30 * time.Second
	maxRefresh     = 24 * time.Hour
)

// UnmarshalJSON refuses fields that do not exist: a misspelt one would open more than was meant.
func (a *IssuerConfig) UnmarshalJSON(raw []byte) error {
	type plain IssuerConfig
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode((*plain)(a)); err != nil {
		return invalidField("auth", "must be {issuer, jwks_url, audience, client_id?, refresh_interval?, require_tenant_id?} or null")
	}
	return nil
}

// KeyRefreshInterval returns how often the issuer's keys are fetched.
func (a IssuerConfig) KeyRefreshInterval() time.Duration {
	if d, err := time.ParseDuration(a.RefreshInterval); err == nil {
		return d
	}
	return defaultRefresh
}

// checkFields says what is wrong with a. Only an app that may reach private networks may have its keys come unencrypted.
func (a IssuerConfig) checkFields(grants grant.List) error {
	for _, f := range []struct{ name, value string }{
		{"issuer", a.Issuer}, {"jwks_url", a.JWKSURL}, {"audience", a.Audience}, {"client_id", a.ClientID},
	} {
		if f.value == "" && f.name != "client_id" {
			return invalidField("auth."+f.name, "is missing")
		}
		if err := checkText("auth."+f.name, f.value, maxAuthText); err != nil {
			return err
		}
	}
	u, err := url.Parse(a.JWKSURL)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http":
		return invalidField("auth.jwks_url", "must be an address such as https://login.example.com/jwks.json")
	case u.Scheme == "http" && !grants.Has(grant.PrivateNetwork):
		return invalidField("auth.jwks_url", "must begin with https://: whoever changes the answer on its way could sign tokens (an app with the grant %s may use http)", grant.PrivateNetwork)
	case isPrivateHost(u.Hostname()) && !grants.Has(grant.PrivateNetwork):
		return invalidField("auth.jwks_url", "lies in a private network: the keys are never fetched from there without the grant %s", grant.PrivateNetwork)
	}
	if a.RefreshInterval != "" {
		if d, err := time.ParseDuration(a.RefreshInterval); err != nil || d < minRefresh || d > maxRefresh {
			return invalidField("auth.refresh_interval", "must be a duration from 30s to 24h")
		}
	}
	return nil
}

// checkIssuerHost looks up where the keys of an app's issuer lie, unless it is as it was.
func (s *Service) checkIssuerHost(ctx context.Context, app, previous *App) error {
	private, before := app.Grants.Has(grant.PrivateNetwork), previous.Grants.Has(grant.PrivateNetwork)
	if s.options.CheckHost == nil || app.Auth == (IssuerConfig{}) || app.Auth.JWKSURL == previous.Auth.JWKSURL && (private || !before) {
		return nil
	}
	u, err := url.Parse(app.Auth.JWKSURL)
	if err != nil {
		return invalidField("auth.jwks_url", "is no address")
	}
	if err := s.options.CheckHost(ctx, u.Hostname(), private); err != nil {
		return invalidField("auth.jwks_url", "%s", err)
	}
	return nil
}

// isPrivateHost reports whether host is written as an address that no other network reaches.
func isPrivateHost(host string) bool {
	if host = strings.ToLower(strings.TrimSuffix(host, ".")); host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	ip = ip.Unmap()
	return err == nil && (!ip.IsGlobalUnicast() || ip.IsPrivate())
}

// uniqueKey is what no two apps may have in common: it tells whose a token is. It is empty where there is no issuer.
func (a IssuerConfig) uniqueKey(app string) string {
	switch {
	case a == IssuerConfig{}:
		return ""
	case a.RequireTenantID:
		return a.sharedKeyPrefix() + app
	}
	return a.Issuer + "\n" + a.Audience
}

// sharedKeyPrefix is how the keys of all apps begin that share issuer and audience and tell themselves apart by name.
func (a IssuerConfig) sharedKeyPrefix() string { return a.Issuer + "\n" + a.Audience + "\n" }

// encodeColumn returns a as the database holds it.
func (a IssuerConfig) encodeColumn() (string, error) {
	if a == (IssuerConfig{}) {
		return "", nil
	}
	doc, err := json.Marshal(a)
	return string(doc), err
}

func (a *IssuerConfig) decodeColumn(doc string) error {
	type plain IssuerConfig // the database may know fields that this process does not
	if *a = (IssuerConfig{}); doc == "" {
		return nil
	}
	return json.Unmarshal([]byte(doc), (*plain)(a))
}

// checkIssuerUnique decides whether the app may have its issuer beside all that other apps have, and what the process itself
// accepts. It returns [ErrExists] where a token could not be told to be this app's.
func (s *Service) checkIssuerUnique(ctx context.Context, tx *db.Tx, app *App) error {
	a := app.Auth
	if a == (IssuerConfig{}) {
		return nil
	}
	if s.options.IsReservedIssuer != nil && s.options.IsReservedIssuer(a.Issuer, a.Audience) {
		return errorOfKind(ErrExists, "tokens of the issuer %s for %s are the server's own to accept: choose another audience", a.Issuer, a.Audience)
	}
	other, sharedPrefix := "", a.sharedKeyPrefix()
	if a.RequireTenantID {
		sharedPrefix = "" // those that tell themselves apart by name are no offence to each other
	}
	err := tx.Query(ctx, func(row db.Row) error { return row.Scan(&other) },
		`SELECT name FROM app WHERE auth_key <> '' AND tenant <> $1
			AND (auth_key = $2 OR CAST($3 AS TEXT) <> '' AND substr(auth_key, 1, length(CAST($3 AS TEXT))) = $3) LIMIT 1`,
		string(app.ID), a.Issuer+"\n"+a.Audience, sharedPrefix)
	if err == nil && other != "" {
		err = errorOfKind(ErrExists, "tokens of the issuer %s for %s are accepted for the app %s already: choose another audience, or set require_tenant_id for both",
			a.Issuer, a.Audience, other)
	}
	return err
}

var errIssuerTaken = errorOfKind(ErrExists, "tokens of this issuer for this audience are accepted for another app")

// AppIssuer is an app's own issuer, together with whose it is.
type AppIssuer struct {
	App     db.ID
	Name    string
	Auth    IssuerConfig
	Private bool // its keys may lie in a private network
}

// ListIssuers returns the issuers of all apps.
func (s *Service) ListIssuers(ctx context.Context) ([]AppIssuer, error) {
	var all []AppIssuer
	var b db.Batch
	b.Query(func(row db.Row) error {
		var i AppIssuer
		var id, doc, grants string
		if err := row.Scan(&id, &i.Name, &doc, &grants); err != nil {
			return err
		}
		i.App = db.ID(id)
		var granted grant.List
		if err := json.Unmarshal([]byte(grants), &granted); err != nil {
			return fmt.Errorf("grants of app %s: %w", id, err)
		}
		i.Private = granted.Has(grant.PrivateNetwork)
		all = append(all, i)
		return all[len(all)-1].Auth.decodeColumn(doc)
	}, `SELECT tenant, name, auth, grants FROM app WHERE auth_key <> '' AND status <> 'deleting' ORDER BY tenant`)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read the apps' issuers: %w", err)
	}
	return all, nil
}

// IssuersVersion returns a text that is another one whenever [Service.ListIssuers] returns something else.
func (s *Service) IssuersVersion(ctx context.Context) (version string, err error) {
	var b db.Batch
	b.Query(func(row db.Row) error {
		var n, generations, at int64
		err := row.Scan(&n, &generations, &at)
		version = fmt.Sprintf("%d/%d/%d", n, generations, at)
		return err
	}, `SELECT COUNT(*), CAST(COALESCE(SUM(generation), 0) AS BIGINT), COALESCE(MAX(updated_at), 0) FROM app WHERE auth_key <> '' AND status <> 'deleting'`)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return "", fmt.Errorf("look at the apps' issuers: %w", err)
	}
	return version, nil
}

// WatchApps calls look whenever an app may have changed, until stop is called. It must return at once.
func (s *Service) WatchApps(probe func()) (stop func()) {
	return s.bus.WatchTopic(TopicApp, func(string) { probe() })
}
