package config

import (
	"slices"
	"strings"
	"time"

	"stoa/agentsvc/config/document"
)

// Auth says whose tokens are accepted.
type Auth struct {
	// Enabled turns authentication on.
	Enabled bool `yaml:"enabled" jsonschema:"default=false"`
	// JWKSURL is the address of the issuer's keys.
	JWKSURL string `yaml:"jwks_url"`
	// Issuer is the `iss` that tokens must have.
	Issuer string `yaml:"issuer"`
	// Audience is the `aud` that tokens must have.
	Audience string `yaml:"audience"`
	// ClientID is the public client id that web pages log in with; `/health` returns it.
	ClientID string `yaml:"client_id"`
	// RefreshInterval is how old the issuer's keys may become before they are fetched again, at least 30s.
	RefreshInterval time.Duration `yaml:"refresh_interval" jsonschema:"default=15m"`
	// RequireAuth refuses calls without a credential. Without it they are callers of the default app.
	RequireAuth bool `yaml:"require_auth" jsonschema:"default=true"`
	// ExcludedPaths are the paths of the default app that need no credential: a path, or with a slash at its end all
	// that begins with it.
	ExcludedPaths []string `yaml:"excluded_paths" jsonschema:"default=/health,default=/.well-known/agent-card.json"`
}

// checkRules checks addresses, the refresh interval and excluded paths. The admin API can never be excluded.
func (a *Auth) checkRules(c *validation, s document.Location) {
	if a.Enabled {
		c.requireKeys(s, "jwks_url", "issuer", "audience")
	}
	c.checkAddress(s.Child("jwks_url"), a.JWKSURL)
	if at := s.Child("refresh_interval"); at.Value != nil && a.RefreshInterval < 30*time.Second {
		c.addProblem(at, "must be at least 30s: the keys are fetched no more often")
	}
	for i, p := range a.ExcludedPaths {
		at := s.Child("excluded_paths").Item(i)
		switch {
		case !strings.HasPrefix(p, "/"):
			c.addProblem(at, "must be a path, which begins with a slash")
		case p == "/admin" || strings.HasPrefix(p, "/admin/"):
			c.addProblem(at, "is the admin API's, which always needs the operator's credential")
		}
	}
}

// AllowsAnonymous reports whether a request to path, a path of the default app, needs no credential.
func (a *Auth) AllowsAnonymous(path string) bool {
	return !a.Enabled || !a.RequireAuth || a.IsExcluded(path)
}

// IsExcluded reports whether path is one of ExcludedPaths, or below one that ends in a slash.
func (a *Auth) IsExcluded(path string) bool {
	return slices.ContainsFunc(a.ExcludedPaths, func(p string) bool {
		return path == p || strings.HasSuffix(p, "/") && strings.HasPrefix(path, p)
	})
}
