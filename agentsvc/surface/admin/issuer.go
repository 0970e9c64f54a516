package admin

import (
	"bytes"
	"encoding/json"

	"stoa/agentsvc"
)

// issuerBody is an app's own OpenID Connect issuer. Its fields are those of tenancy.IssuerConfig in the same order, so
// that one converts to the other.
type issuerBody struct {
	Issuer   string `json:"issuer"`
	JWKSURL  string `json:"jwks_url"`
	Audience string `json:"audience"`
	// ClientID is the public OAuth client id for pages that log in.
	ClientID string `json:"client_id,omitempty"`
	// RefreshInterval is how often the keys are fetched, as a Go duration; "" = the default.
	RefreshInterval string `json:"refresh_interval,omitempty"`
	// RequireTenantID accepts only tokens whose claim tenant_id is the app's name.
	RequireTenantID bool `json:"require_tenant_id,omitempty"`
}

// UnmarshalJSON refuses unknown members: a misspelt require_tenant_id would accept more tokens than intended.
func (b *issuerBody) UnmarshalJSON(raw []byte) error {
	type plain issuerBody
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode((*plain)(b)); err != nil {
		return agentsvc.NewInvalidError("auth", "must be {issuer, jwks_url, audience, client_id?, refresh_interval?, require_tenant_id?} or null")
	}
	return nil
}
