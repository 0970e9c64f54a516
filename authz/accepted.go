package authz

import (
	"slices"
	"strings"
	"sync/atomic"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Accepted is one issuer whose tokens are accepted: those that say exactly Issuer, and Audience among their audiences,
// and are signed by one of Keys.
type Accepted struct {
	Issuer   string
	Audience string
	Keys     KeySet

	// BuiltIn is the issuer of this house: its tokens name apps by name and immutable id.
	BuiltIn bool
	// App and AppName are the one app that the tokens speak for. Without them each token names its app.
	App     db.ID
	AppName string
	// ByName demands that tokens name AppName, where other apps have the same issuer and audience.
	ByName bool
}

// entry is an issuer on a verifier's roll.
type entry struct {
	Accepted
	gone atomic.Bool // it is accepted no longer
}

// stands reports whether a token that was verified at that version of e's keys still is.
func (e *entry) stands(version uint64) bool { return !e.gone.Load() && e.Keys.Version() == version }

// roll holds the accepted issuers by name.
type roll map[string][]*entry

// find returns the entry that said claims to come from. A token that more than one would have to answer for is refused:
// which app it speaks for must not be a matter of order.
func (r roll) find(said claims) (*entry, error) {
	var found *entry
	reason := "from an issuer that is not accepted"
	for _, e := range r[said.Issuer] {
		switch {
		case !said.Audience.Contains(e.Audience):
			if reason != elsewhere {
				reason = "meant for another audience"
			}
		case !e.speaksFor(said.AppName):
			reason = elsewhere
		case found != nil:
			return nil, refuse("fits more than one accepted issuer")
		default:
			found = e
		}
	}
	if found == nil {
		return nil, refuse(reason)
	}
	return found, nil
}

const elsewhere = "meant for another app than its issuer speaks for"

// speaksFor reports whether e's tokens may say name in tenant_id.
func (e *entry) speaksFor(name string) bool {
	return e.App == "" || name == e.AppName || name == "" && !e.ByName
}

// principal reads who c, a token of e's, is about.
func (e *entry) principal(c claims) (Principal, error) {
	if !validSubject(c.Subject) {
		return Principal{}, refuse("no usable sub")
	}
	if strings.HasPrefix(c.Subject, SubjectOfKey) {
		return Principal{}, refuse("speaks for an API key")
	}
	p := Principal{
		App: e.App, AppName: e.AppName, Issuer: c.Issuer, Subject: c.Subject,
		Roles: c.Roles, Scopes: narrowing(c.Scope), Issued: c.IssuedAt.Time(), Expires: c.Expiry.Time(),
	}
	if !e.BuiltIn {
		p.Ahead = skew
	}
	switch {
	case e.BuiltIn:
		if err := p.belong(c); err != nil {
			return Principal{}, err
		}
	case e.App == "" && c.AppName == "" && slices.Contains(c.Roles, RolePlatformOperator):
		p.Roles, p.Platform = []string{RolePlatformOperator}, true
	case e.App == "" && c.AppName == "":
		p.AppName = tenancy.DefaultName
	case e.App == "":
		p.AppName = c.AppName
	}
	if len(p.Roles) == 0 {
		p.Roles = []string{RoleCaller}
	}
	return p, nil
}

// belong takes over what a token of the built-in issuer says of its app, which it names by name and immutable id.
func (p *Principal) belong(c claims) error {
	p.App, p.AppName = c.App, c.AppName
	switch {
	case c.IssuedAt == nil:
		return refuse("no iat")
	case c.App == "" && c.AppName == "":
		return refuse("names no app")
	case c.App == "" || c.AppName == "":
		return refuse("names its app by half")
	}
	return nil
}
