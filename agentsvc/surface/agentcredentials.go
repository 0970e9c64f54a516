package surface

import (
	"context"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/authz"
	"stoa/tenancy"
)

// isDiscovery reports whether k only asks what is here, which needs no credential: visibility decides what it sees. The
// default app's card under /.well-known is open as far as the operator leaves it so.
func (s *Server) isDiscovery(k Credentials, a tenancy.Address) bool {
	if !k.Discovery || a.App != "" && a.App != tenancy.DefaultName {
		return k.Discovery
	}
	return !strings.HasPrefix(a.Path, "/.well-known/") || s.options.Auth.AllowsAnonymous(a.Path)
}

// newAnonymousPrincipal returns the principal of a caller without a credential: of the default app, which knows no other where
// nobody has one, everything; else a mere caller.
func (s *Server) newAnonymousPrincipal(app *tenancy.App) authz.Principal {
	switch {
	case app.ID != tenancy.DefaultID:
		return authz.AnonymousPrincipal(app.ID, app.Name)
	case s.options.Auth.Enabled:
		return authz.AnonymousPrincipal(app.ID, app.Name, authz.RoleCaller)
	}
	return authz.AnonymousPrincipal(app.ID, app.Name, authz.BuiltInRoleNames()...)
}

// bearerScheme is what the door itself asks for.
var bearerScheme = agentsvc.Scheme{Name: "bearer", Format: "JWT"}

// SecuritySchemes returns the credentials that c's agent takes from its callers, and the names of those that it takes all of:
// its own, and the bearer credential that lets callers into the app where the path at which the agent is called needs one.
func (v *Request) SecuritySchemes(c agentsvc.Card, path string) (schemes []agentsvc.Scheme, require []string) {
	schemes, require = c.Schemes, c.RequiredSchemes
	own := v.App.ID == tenancy.DefaultID
	if own && !v.server.options.Auth.Enabled {
		return schemes, require
	}
	i := slices.IndexFunc(schemes, func(s agentsvc.Scheme) bool { return s.Header == "" })
	if i < 0 {
		schemes, i = append(slices.Clip(schemes), bearerScheme), len(schemes)
	}
	if name := schemes[i].Name; !slices.Contains(require, name) && !(own && v.server.options.Auth.AllowsAnonymous(path)) {
		require = append(slices.Clip(require), name)
	}
	return schemes, require
}

// requireAgentCredentials holds the caller to the credentials that an agent asks for itself. A caller who showed none at the door and
// has a key that the agent asks for is from then on the key's principal. It returns an [authz.ErrUnauthenticated].
func (v *Request) requireAgentCredentials(ctx context.Context, agent string) error {
	c, ok := v.runtime.Card(agent)
	if !ok || len(c.RequiredSchemes) == 0 || c.Visibility == agentsvc.Private {
		return nil
	}
	p, err := v.verifyAgentCredentials(ctx, c)
	switch {
	case err == nil:
		v.Principal = p
	case c.Visibility == agentsvc.Internal && v.Principal.Anonymous:
		return nil // such an agent is not there, and what it asks for is not told
	}
	return err
}

// verifyAgentCredentials returns whom the credentials that c's agent asks for speak for.
func (v *Request) verifyAgentCredentials(ctx context.Context, c agentsvc.Card) (authz.Principal, error) {
	p := v.Principal
	for _, s := range c.Schemes {
		switch {
		case !slices.Contains(c.RequiredSchemes, s.Name):
		case s.Header == "":
			if v.Principal.Anonymous {
				return p, authz.ErrUnauthenticated
			}
		case v.server.options.Keys == nil:
			return p, authz.ErrUnauthenticated
		default:
			key, err := v.server.options.Keys.VerifyKey(ctx, v.requestHeader(s.Header), v.App.Generation)
			if err != nil {
				return p, err
			}
			if key.App != v.App.ID {
				return p, authz.ErrUnauthenticated
			}
			if p.Anonymous {
				p = key
			}
		}
	}
	return p, nil
}
