package surface

import (
	"context"
	"slices"

	"stoa/agentsvc"
	"stoa/authz"
	"stoa/tenancy"
	"stoa/tenancy/audit"
)

// newAnonymousPrincipal returns the principal of a caller without a credential. In the default app of a server without
// authentication it has every built-in role, since there is no other way to use that app. With authentication it is a
// caller there. In every other app it has no role.
func (c *credentialVerifier) newAnonymousPrincipal(app *tenancy.App) authz.Principal {
	switch {
	case app.ID != tenancy.DefaultID:
		return authz.AnonymousPrincipal(app.ID, app.Name)
	case c.Auth.Enabled:
		return authz.AnonymousPrincipal(app.ID, app.Name, authz.RoleCaller)
	}
	return authz.AnonymousPrincipal(app.ID, app.Name, authz.BuiltInRoleNames()...)
}

// bearerScheme is the security scheme on agent cards for the credential that [Server.Authenticate] verifies.
var bearerScheme = agentsvc.Scheme{Name: "bearer", Format: "JWT"}

// SecuritySchemes returns the security schemes for an agent's card, and the names of those that a caller must satisfy
// together: the agent's own, and the bearer credential of the app if path, where the agent is called, needs one.
func (a *Access) SecuritySchemes(c agentsvc.Card, path string) (schemes []agentsvc.Scheme, require []string) {
	schemes, require = c.Schemes, c.RequiredSchemes
	own := a.App.ID == tenancy.DefaultID
	if own && !a.server.options.Auth.Enabled {
		return schemes, require
	}
	// An agent's own scheme without a header is a bearer scheme; then the app's is not listed twice.
	i := slices.IndexFunc(schemes, func(s agentsvc.Scheme) bool { return s.Header == "" })
	if i < 0 {
		schemes, i = append(slices.Clip(schemes), bearerScheme), len(schemes)
	}
	if name := schemes[i].Name; !slices.Contains(require, name) && !(own && a.server.options.Auth.AllowsAnonymous(path)) {
		require = append(slices.Clip(require), name)
	}
	return schemes, require
}

// requireAgentCredentials verifies the credentials that an agent requires besides the app's. An anonymous caller with a
// key that the agent requires becomes the key's principal for the rest of the request. It returns an
// [authz.ErrUnauthenticated]. It returns nil for an agent that the caller must not know of, since the refusal would
// reveal it; [Access.FindAgent] then answers that the agent does not exist.
func (a *Access) requireAgentCredentials(ctx context.Context, agent string) error {
	c, ok := a.Runtime.Card(agent)
	if !ok || len(c.RequiredSchemes) == 0 || c.Visibility == agentsvc.Private {
		return nil
	}
	p, err := a.verifyAgentCredentials(ctx, c)
	switch {
	case err == nil:
		a.Principal = p
	case c.Visibility == agentsvc.Internal && a.Principal.Anonymous:
		return nil // FindAgent answers that the agent does not exist
	}
	return err
}

// verifyAgentCredentials returns the principal for the credentials that c's agent requires. A key must belong to the
// app of the request: keys of other apps are refused as if they did not exist. The app's generation makes a key that
// was revoked since it was cached be read again.
func (a *Access) verifyAgentCredentials(ctx context.Context, c agentsvc.Card) (authz.Principal, error) {
	p := a.Principal
	for _, s := range c.Schemes {
		switch {
		case !slices.Contains(c.RequiredSchemes, s.Name):
		case s.Header == "":
			if a.Principal.Anonymous {
				return p, authz.ErrUnauthenticated
			}
		case a.server.options.Keys == nil:
			return p, authz.ErrUnauthenticated
		default:
			text := a.requestHeader(s.Header)
			key, err := a.server.options.Keys.VerifyKey(ctx, text, a.App.Generation)
			if err == nil && key.App != a.App.ID {
				err = authz.ErrUnauthenticated
			}
			if err != nil {
				if text != "" {
					a.reportFailedKey(err)
				}
				return p, err
			}
			if p.Anonymous {
				p = key
			}
		}
	}
	return p, nil
}

// reportFailedKey reports that a key which an agent requires was refused because of err. A caller without another
// credential has not proven that it belongs to the app.
func (a *Access) reportFailedKey(err error) {
	f := audit.FailedCredential{AppID: a.App.ID, Credential: agentCredential, Reason: ReasonInvalid, Client: a.credentials.ClientAddress}
	if a.Principal.Anonymous {
		f.AppID = ""
	}
	a.server.credentials.reportFailedCredential(f, err)
}
