package authz

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Principal is the authenticated caller of a request. Values are shared between requests through caches: the slices
// must not be modified.
type Principal struct {
	// App is the app that the principal belongs to, "" for the platform's operator and, until the app's record is
	// loaded, for tokens that name their app by name only.
	App db.ID
	// AppName is the name of that app when the credential was issued.
	AppName string

	// Issuer is the authority that identified Subject. Both together identify the owner of tasks and sessions.
	Issuer  string
	Subject string

	// Roles are the names of roles; the app's policy defines what they allow. Unknown names allow nothing.
	Roles []string
	// Scopes narrow the roles to these scopes; nil does not narrow them.
	Scopes []Scope

	// Issued and Expires are the credential's iat and exp; Expires is zero for a key that does not expire.
	Issued time.Time
	// MaxClockAhead is how far the issuer's clock may be ahead; see [tenancy.App.IsTokenRevoked].
	MaxClockAhead time.Duration
	Expires       time.Time

	// Anonymous means that the request had no credential and the app accepts such requests.
	Anonymous bool
	// Platform means that the principal is the platform's operator, who may use the admin API and nothing else.
	Platform bool
}

// AnonymousPrincipal returns the principal of a request without a credential to an app that accepts such requests.
func AnonymousPrincipal(app db.ID, name string, roles ...string) Principal {
	return Principal{App: app, AppName: name, Subject: "anonymous", Roles: roles, Anonymous: true}
}

// HypotheticalPrincipal returns the principal that a token of app with this subject, roles and scope would have, for
// explaining authorization. Without roles it is a caller; unknown roles are kept and allow nothing. A bad subject or an
// unknown scope is an error with [agentsvc.CodeInvalid].
func HypotheticalPrincipal(app *tenancy.App, subject string, roles []string, scope string) (Principal, error) {
	if !isValidSubject(subject) {
		return Principal{}, agentsvc.NewInvalidError("subject", "must be 1 to %d printable characters", maxSubjectLength)
	}
	if _, err := normalizeScope(scope); err != nil {
		return Principal{}, err
	}
	if len(roles) == 0 {
		roles = []string{RoleCaller}
	}
	return Principal{App: app.ID, AppName: app.Name, Subject: subject, Roles: roles, Scopes: parseNarrowingScopes(scope)}, nil
}

// Owner returns the principal as the owner of tasks and sessions.
func (p Principal) Owner() agentsvc.Owner {
	return agentsvc.Owner{Issuer: p.Issuer, Subject: p.Subject}
}

// ActorName returns the name of p as an actor, unique across issuers: two issuers may have the same subject.
func (p Principal) ActorName() string {
	if p.Issuer == "" {
		return p.Subject
	}
	return p.Issuer + "#" + p.Subject
}

// coversScope reports whether the scopes of p do not exclude s. For [AgentsCall], agent is the agent to be called, or
// "" for every agent.
func (p Principal) coversScope(s Scope, agent string) bool {
	switch {
	case p.Scopes == nil || slices.Contains(p.Scopes, s):
		return true
	case s == AgentsCall && agent != "":
		return slices.Contains(p.Scopes, callPrefix+Scope(agent))
	default:
		return false
	}
}

// RequireScope returns an error with [agentsvc.CodeDenied] if the scopes of p exclude s, for what is allowed by the name of a
// role and not by its policy.
func (p Principal) RequireScope(s Scope) error {
	if !p.coversScope(s, "") {
		return permissionDenied("the scope %q is needed, and your token is narrowed to others", s)
	}
	return nil
}

// narrowedAgents returns the agents to which the scopes of p restrict its calls; nil means any agent, an empty slice
// none.
func (p Principal) narrowedAgents() []string {
	if p.coversScope(AgentsCall, "") {
		return nil
	}
	names := []string{}
	for _, s := range p.Scopes {
		if name, ok := strings.CutPrefix(string(s), callPrefix); ok && name != "" {
			names = append(names, name)
		}
	}
	return names
}

// maxSubjectLength bounds a subject, in characters; OpenID Connect Core 1.0 (section 2) limits sub to 255.
const maxSubjectLength = 255

// isValidSubject reports whether sub has 1 to 255 printable characters.
func isValidSubject(sub string) bool {
	if sub == "" || len(sub) > maxSubjectLength*utf8.UTFMax || !utf8.ValidString(sub) || utf8.RuneCountInString(sub) > maxSubjectLength {
		return false
	}
	return !strings.ContainsFunc(sub, func(r rune) bool { return !unicode.IsPrint(r) })
}
