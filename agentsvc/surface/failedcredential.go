package surface

import (
	"cmp"
	"errors"

	"stoa/agentsvc"
	"stoa/authz"
	"stoa/ratelimit"
	"stoa/tenancy/apikey"
	"stoa/tenancy/audit"
)

// Kinds of credentials and reasons in [audit.FailedCredential].
const (
	tokenCredential  = "token"
	apiKeyCredential = "api_key"
	adminCredential  = "admin_secret" // also any other text on a route of an app
	agentCredential  = "agent_key"    // a key that an agent requires, in a header of its own
	otherCredential  = "other"        // an Authorization header that is no bearer token

	MetricsCredential = "metrics_token"

	ReasonInvalid = "invalid"
	reasonExpired = "expired"
	reasonRevoked = "revoked" // also the credential of a deleted app
)

// credentialKind returns the kind of a bearer token, "" for none.
func credentialKind(bearer string) string {
	switch {
	case bearer == "":
		return ""
	case authz.IsToken(bearer):
		return tokenCredential
	case apikey.IsKey(bearer):
		return apiKeyCredential
	}
	return adminCredential
}

// reportFailedCredential reports for the audit trail that a credential was refused because of err. f has the kind ("" =
// the client sent none), the client's address, and the app and the reason where err does not have them. Errors that do not
// refuse a credential are not reported.
func (c *credentialVerifier) reportFailedCredential(f audit.FailedCredential, err error) {
	if f.Credential == "" || c.OnFailedCredential == nil || !errors.Is(err, agentsvc.CodeUnauthenticated) {
		return
	}
	f.Client = ratelimit.ClientNetwork(f.Client)
	var r *authz.Refusal
	if errors.As(err, &r) {
		f.AppID = cmp.Or(r.App, f.AppID)
		if r.Expired {
			f.Reason = reasonExpired
		}
	}
	c.OnFailedCredential(f)
}
