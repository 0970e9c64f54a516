package config

import "time"

// Auth says whose tokens are accepted.
type Auth struct {
	// Enabled turns authentication on.
	Enabled bool `yaml:"enabled" jsonschema:"default=false"`
	// JWKSURL is where the issuer's keys lie.
	JWKSURL string `yaml:"jwks_url"`
	// Issuer is the `iss` that tokens must have.
	Issuer string `yaml:"issuer"`
	// Audience is the `aud` that tokens must have.
	Audience string `yaml:"audience"`
	// ClientID is the public client id that web pages log in with.
	ClientID string `yaml:"client_id"`
	// RefreshInterval is how often the issuer's keys are fetched.
	RefreshInterval time.Duration `yaml:"refresh_interval" jsonschema:"default=15m"`
	// RequireAuth refuses requests without a token.
	RequireAuth bool `yaml:"require_auth" jsonschema:"default=true"`
	// ExcludedPaths are the paths that need no token.
	ExcludedPaths []string `yaml:"excluded_paths" jsonschema:"default=/health,default=/.well-known/agent-card.json"`
}

func (a *Auth) check(c *checks, s spot) {
	if a.Enabled {
		c.needs(s, "jwks_url", "issuer", "audience")
	}
}
