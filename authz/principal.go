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

// Principal is who makes a call. It is shared between calls: its slices are not to be changed.
type Principal struct {
	App     db.ID  // the app it acts in; empty for the platform's operator
	AppName string // the name of that app when the credential was made

	Issuer  string // who vouches for Subject
	Subject string

	Roles  []string
	Scopes []Scope // what narrows the roles; nil: nothing does

	Issued        time.Time
	MaxClockAhead time.Duration // how far the clock of the issuer may be ahead
	Expires       time.Time

	Anonymous bool // no credential was presented, and the app is open to such callers
	Platform  bool // the platform's operator: welcome at the admin API and nowhere else
}

// AnonymousPrincipal returns the principal of a call to an open app that came without a credential.
func AnonymousPrincipal(app db.ID, name string, roles ...string) Principal {
	return Principal{App: app, AppName: name, Subject: "anonymous", Roles: roles, Anonymous: true}
}

// HypotheticalPrincipal returns the principal that a token of app with this subject, these roles and this scope would speak for,
// whether or not there is one. Without roles it is a caller; unknown roles are kept, they give nothing. A scope that does
// not exist is an [agentsvc.InvalidError].
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

// Owner is the principal as the owner of tasks and sessions.
func (p Principal) Owner() agentsvc.Owner {
	return agentsvc.Owner{Issuer: p.Issuer, Subject: p.Subject}
}

// ActorName tells p from everybody else who acts as an operator: two issuers may know the same subject.
func (p Principal) ActorName() string {
	if p.Issuer == "" {
		return p.Subject
	}
	return p.Issuer + "#" + p.Subject
}

// coversScope reports whether p's scopes leave s in place. For [AgentsCall] agent says which agent is to be called; the
// empty name stands for every agent.
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

// narrowedAgents returns the agents that p's scopes narrow its calls to, nil where they may be any.
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

const maxSubjectLength = 255

// isValidSubject reports whether sub can name a subject: 1 to 255 printable characters.
func isValidSubject(sub string) bool {
	if sub == "" || len(sub) > maxSubjectLength*utf8.UTFMax || !utf8.ValidString(sub) || utf8.RuneCountInString(sub) > maxSubjectLength {
		return false
	}
	return !strings.ContainsFunc(sub, func(r rune) bool { return !unicode.IsPrint(r) })
}
