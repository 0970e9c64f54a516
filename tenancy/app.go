// Package tenancy knows the apps that this installation serves. An [App] is a tenant: a name people use, an immutable
// id that everything of it carries, a configuration with its revisions, secrets, grants and a plan.
//
// [Service] administers apps in the platform's database. [Router] tells which app a request addresses and who is let
// in. [RuntimeCache] holds one built value per app, whatever the composition makes of its configuration, and keeps it current
// in every process.
package tenancy

import (
	"time"

	"stoa/tenancy/db"
	"stoa/tenancy/grant"
)

// DefaultID is the id of the app of the process's own config file. It has no row in the database.
const DefaultID db.ID = "default"

// DefaultName is the name of that app. No other can bear it.
const DefaultName = "default"

// Status is what an app is at present.
type Status string

// An app is made active, goes back and forth between active and suspended, and once deleting is never seen again.
const (
	Active    Status = "active"
	Suspended Status = "suspended"
	Deleting  Status = "deleting"
)

// App is a tenant. A value is never changed after it was handed out.
type App struct {
	ID          db.ID
	Name        string
	DisplayName string
	Status      Status
	Revision    int64 // of the configuration
	Inputs      int64 // grows with what a build reads beside the configuration: secrets, grants, plan, limits
	Generation  int64 // grows with every change, token marks included
	Grants      grant.List
	Plan        string
	Limits      Limits
	Auth        IssuerConfig
	Labels      map[string]string
	Roles       []Role    // its own, by name
	CreatedAt   time.Time // zero for the default app
	UpdatedAt   time.Time

	// RolesVersion grows whenever Roles change.
	RolesVersion int64

	// Config is the configuration with its secrets masked. Only the answers of [Service] about one app carry it.
	Config map[string]any

	planLimits Limits // of its plan

	revocations map[string]int64 // subject to the second up to which its tokens are refused; "" = the whole app
}

// IsTokenRevoked reports whether a token of subject sub, issued at iat, was revoked or belongs to an earlier app of this
// name. Tokens tell their time in whole seconds, so one of the very second of a revocation is refused whether it came
// before or after; see [App.TokenIssueTime]. So is one that its issuer, whose clock may be ahead by that much, may have dated
// later than a revocation which came after it. One that does not tell its time (iat is zero) is refused once anything was
// revoked.
func (a *App) IsTokenRevoked(sub string, iat time.Time, clockSkew time.Duration) bool {
	if iat.IsZero() {
		return a.revokedUntil(sub) > 0
	}
	return iat.Add(-clockSkew).Unix() <= a.revokedUntil(sub) || !a.CreatedAt.IsZero() && iat.Unix() < a.CreatedAt.Unix()
}

// TokenIssueTime returns the time of issue for a new token of sub: the second of now, or the first one
// after the last revocation.
func (a *App) TokenIssueTime(sub string, now time.Time) time.Time {
	return time.Unix(max(now.Unix(), a.revokedUntil(sub)+1), 0)
}

func (a *App) revokedUntil(sub string) int64 { return max(a.revocations[""], a.revocations[sub]) }

// hasSameBuild reports whether what was built for a is what a build for b would be.
func (a *App) hasSameBuild(b *App) bool { return a.Revision == b.Revision && a.Inputs == b.Inputs }

// withRecordOf returns a, as it was built, with what the newer record b says that no build reads.
func (a *App) withRecordOf(b *App) *App {
	c := *a
	c.Status, c.Labels, c.revocations, c.Roles, c.RolesVersion = b.Status, b.Labels, b.revocations, b.Roles, b.RolesVersion
	return &c
}
