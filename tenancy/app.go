// Package tenancy administers the apps of an installation. An [App] is a tenant: a name that can be reused, an immutable
// id that every row of the app carries, a configuration with its revisions, secrets, grants, a plan, limits, roles and
// optionally an OpenID Connect issuer of its own.
//
// [Service] reads and changes apps in the platform's database. Each change is one transaction with its entry in the
// audit trail (package audit). The packages above this one find the app of a request (router), keep one built value per
// app (runtimecache) and store API keys (apikey).
//
// The steps of a change: [store.changeApp] reads the app, applies the change to the copy and checks it, writes it with
// the condition that the generation is unchanged, and publishes the app's id on [TopicApp]. If another change was
// committed first it starts again. Each process then reloads the app. The signal may be lost; the runtime cache
// therefore also compares generations every second.
//
// Which app a credential belongs to is decided in agentsvc/surface/authenticate.go; see the index in the package comment
// of cmd/stoa/server (server.go).
//
// The app of the process's own configuration file is the default app ([DefaultID]). It has no row in the table app;
// only its token revocations, roles and API keys are in the database.
package tenancy

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
	"stoa/tenancy/grant"
)

// DefaultID is the id of the app of the process's own configuration file. The table app has no row with this id.
const DefaultID db.ID = "default"

// DefaultName is the name of the default app. [Service.CreateApp] refuses it for any other app.
const DefaultName = "default"

// Status is the state of an app's life cycle.
type Status string

// The states of an app. [Service.CreateApp] makes it Active; [Service.SuspendApp] and [Service.ResumeApp] switch
// between Active and Suspended. Deleting is final: the app is answered as not found from then on, and its row
// disappears when all of its data is erased.
const (
	Active    Status = "active"
	Suspended Status = "suspended"
	Deleting  Status = "deleting"
)

// App is a tenant. A value is never modified after it was returned; callers share it and copy it before a change.
type App struct {
	ID          db.ID
	Name        string
	DisplayName string
	Status      Status
	Version
	// Grants are the powers over the host that the operator gave the app. Only the operator changes them.
	Grants grant.List
	// Plan is the name of the billing plan, "" for none. It supplies the limits that Limits leaves at zero.
	Plan string
	// Limits are the app's own limits. Use [App.EffectiveLimits] for those that apply.
	Limits Limits
	// Auth is the app's own OpenID Connect issuer; the zero value means that it has none.
	Auth IssuerConfig
	// Labels are the operator's annotations. Only [traceRatioLabel] has an effect.
	Labels map[string]string
	RoleSet
	// CreatedAt is the time of creation by the database's clock, zero for the default app. Tokens issued before it
	// belong to an earlier app of the same name and are refused.
	CreatedAt time.Time
	UpdatedAt time.Time

	// Config is the configuration with its secrets masked. It is empty unless the App was returned by a method of
	// [Service] about a single app, for an administrator.
	Config MaskedConfig

	// planLimits are the limits of the app's plan, read with the app; zero fields mean that the plan sets none.
	planLimits Limits

	// revocations maps a subject to the Unix second up to which its tokens are refused; "" stands for all subjects.
	revocations map[string]int64
}

// Tag returns what identifies the present state of the app's whole record: it differs after each change. The default
// app's is of this process only, since each process has its own file.
func (a *App) Tag() string {
	if a.ID == DefaultID {
		return fmt.Sprintf("%d.%x", a.Generation, a.UpdatedAt.UnixNano())
	}
	return strconv.FormatInt(a.Generation, 10)
}

// ConfigTag returns what identifies the app's configuration alone.
func (a *App) ConfigTag() string { return fmt.Sprintf("r%d", a.Revision) }

// Precondition is the state that an app must be in for a change. The zero value accepts any.
type Precondition struct {
	// ID is the id of the app whose credential asks for the change: since it was authenticated, that app may have been
	// deleted and its name given to another one.
	ID db.ID
	// IfMatch are the tags, see [App.Tag] and [App.ConfigTag], of which one must be the app's; none accepts any state.
	IfMatch []string
}

// checkPrecondition returns [agentsvc.CodeNotFound] for another app than that of p, and [agentsvc.CodePrecondition] if
// none of its tags is current.
func (a *App) checkPrecondition(p Precondition) error {
	if p.ID != "" && p.ID != a.ID {
		return errNoApp
	}
	return a.checkTag(p.IfMatch)
}

// checkTag returns [agentsvc.CodePrecondition] unless one of tags is a tag of the app or of its configuration, or there
// are none.
func (a *App) checkTag(tags []string) error {
	if len(tags) == 0 || slices.Contains(tags, a.Tag()) || slices.Contains(tags, a.ConfigTag()) {
		return nil
	}
	return agentsvc.NewError(agentsvc.CodePrecondition, "the app %s has been changed since: its ETag is %q now, that of its configuration %q; read it again", a.Name, a.Tag(), a.ConfigTag())
}

// Version numbers the states of an app.
type Version struct {
	// Revision is the number of the configuration in force, from 1. It grows by one with each new configuration text.
	Revision int64
	// Inputs grows with each change of what a build reads besides the configuration: secrets, grants, plan and limits.
	// Revision and Inputs together identify a build; see [App.HasSameBuild].
	Inputs int64
	// Generation grows with every change of the app, revocations, roles and API keys included. A change is written only
	// if it is still the one that was read (optimistic locking), and processes compare it to notice changes. Unlike a
	// revision, nothing is stored under it: an earlier generation cannot be read or restored.
	Generation int64
}

// RoleSet has the roles that an app defines in addition to the built-in ones.
type RoleSet struct {
	// Roles are ordered by name.
	Roles []Role
	// RolesVersion grows with each change of Roles. [storeRoles] writes only over the version that it read.
	RolesVersion int64
}

// IsTokenRevoked reports whether a token of subject sub, issued at iat, was revoked or belongs to an earlier app of
// this name. Tokens carry whole seconds (RFC 7519, NumericDate), so a token of the same second as a revocation is
// refused whether it was issued before or after; [App.TokenIssueTime] avoids that second for new tokens. clockSkew is
// how far the issuer's clock may be ahead: a token dated up to that much after a revocation may have been issued before
// it and is refused as well. A token without a time of issue (iat is zero) is refused as soon as anything was revoked.
func (a *App) IsTokenRevoked(sub string, iat time.Time, clockSkew time.Duration) bool {
	if iat.IsZero() {
		return a.revokedUntil(sub) > 0
	}
	return iat.Add(-clockSkew).Unix() <= a.revokedUntil(sub) || !a.CreatedAt.IsZero() && iat.Unix() < a.CreatedAt.Unix()
}

// TokenIssueTime returns the time of issue for a new token of sub: the current second, or the first one after the last
// revocation if that is later. Without it a token issued in the second of a revocation would be refused at once.
func (a *App) TokenIssueTime(sub string, now time.Time) time.Time {
	return time.Unix(max(now.Unix(), a.revokedUntil(sub)+1), 0)
}

// revokedUntil returns the later of the app's and the subject's revocation, in Unix seconds; 0 means none.
func (a *App) revokedUntil(sub string) int64 { return max(a.revocations[""], a.revocations[sub]) }

// HasSameBuild reports whether a build for b would read the same inputs as the build for a, so that it can be kept.
func (a *App) HasSameBuild(b *App) bool { return a.Revision == b.Revision && a.Inputs == b.Inputs }

// WithRecordOf returns a copy of a, the record of the existing build, with those fields of the newer record b that no
// build reads. They take effect at once, also while the build for b runs or fails: a suspension or a revocation must
// not depend on whether the new configuration can be built.
func (a *App) WithRecordOf(b *App) *App {
	c := *a
	c.Status, c.Labels, c.revocations, c.RoleSet = b.Status, b.Labels, b.revocations, b.RoleSet
	return &c
}
