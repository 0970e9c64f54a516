package admin

import (
	"bytes"
	"encoding/json"
	"maps"
	"strconv"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/encode"
	"stoa/authz"
	"stoa/tenancy"
	"stoa/tenancy/grant"
)

// Request types. Unknown members are errors (mutation.decodeBody), so every member that acts is listed here.
type (
	// createBody is the body of POST /admin/apps.
	createBody struct {
		Name string `json:"name"`
		settingsBody
	}
	// settingsBody is what the operator sets of an app: the body of PUT /admin/apps/{app}.
	settingsBody struct {
		// Config is checked as a whole before anything is stored; problems are reported with line and column.
		Config document `json:"config,omitempty"`
		// Secrets are stored encrypted; the configuration refers to them as ${NAME}.
		Secrets     map[string]string `json:"secrets,omitempty"`
		DisplayName string            `json:"display_name"`
		Labels      map[string]string `json:"labels"`
		// Grants allow host resources, such as folders or commands, that a tenant's configuration may not use
		// otherwise.
		Grants grant.List `json:"grants"`
		// Plan is the name of a billing plan, "" = none.
		Plan string `json:"plan"`

		// Limits hold the operator's limits; nil members keep the plan's values or the defaults.
		Limits limitsRequest `json:"limits"`
		// Auth is a token issuer of the app's own, in addition to the built-in one; the zero value = none.
		Auth issuerBody `json:"auth"`
	}

	// reasonBody is the optional body of suspend and resume; the reason goes to the audit trail.
	reasonBody struct {
		Reason string `json:"reason"`
	}
	// secretBody sets a secret; a nil Value is a missing member, "" an empty secret.
	secretBody struct {
		Value *string `json:"value"`
	}
	// tokenBody describes the token to issue.
	tokenBody struct {
		// Sub is the subject: the user that the token's tasks belong to.
		Sub   string   `json:"sub"`
		Roles []string `json:"roles"`
		// Scope narrows what Roles grant; scopes are separated by spaces, "" = it does not.
		Scope string `json:"scope"`
		// TTL is a Go duration such as 1h, "" = the issuer's default.
		TTL string `json:"ttl"`
	}
	// keyBody describes the API key to create; ExpiresAt "" = it does not expire.
	keyBody struct {
		Name      string   `json:"name"`
		Roles     []string `json:"roles"`
		Scope     string   `json:"scope"`
		ExpiresAt string   `json:"expires_at"`
	}
	// rotateBody is the optional body of a rotation; Overlap is a Go duration, "" = defaultOverlap.
	rotateBody struct {
		Overlap string `json:"overlap"`
	}
	// revokeBody is the optional body of a revocation; without Sub the tokens of every subject are meant.
	revokeBody struct {
		Sub selector `json:"sub"`
	}
	// requeueBody selects runs that failed for good; one that is missing selects all. Error is a part of the error text.
	requeueBody struct {
		App   selector `json:"app"`
		Agent selector `json:"agent"`
		Error selector `json:"error"`
	}
	// acceptBody names the definition to accept by its hash, as drift.hash shows it.
	acceptBody struct {
		Hash string `json:"hash"`
	}
)

// selector is a member that narrows what a request changes. Missing, it is "" and everything is changed.
type selector struct {
	text  string
	given bool
}

// UnmarshalJSON decodes a text, or null as "".
func (s *selector) UnmarshalJSON(b []byte) error {
	s.given = true
	return json.Unmarshal(b, &s.text)
}

// check returns an error for a selector that is given and empty: a client whose variable is not set would change
// everything. all says what that is.
func (s selector) check(field, all string) error {
	if s.given && s.text == "" {
		return agentsvc.NewInvalidError(field, "is empty; leave it out to %s", all)
	}
	return nil
}

// Response types. Times are pointers so that a missing time is null.
type (
	// appBody is an app. Config is only in answers about one app, and secrets in it are masked. Auth is the app's
	// own issuer.
	appBody struct {
		// ID never changes. Audit entries have it as app_id. It is missing in a dry run of a creation.
		ID          string `json:"id,omitempty"`
		Name        string `json:"name"`
		DisplayName string `json:"display_name"`
		// Status is active, suspended or deleting.
		Status string `json:"status"`
		// Revision is the number of the current configuration.
		Revision int64 `json:"revision"`
		// ETag is the tag of the whole record, for If-Match.
		ETag string `json:"etag,omitempty"`
		// Config is the current configuration as JSON, whatever form it was sent in, in the order of its text.
		Config json.RawMessage `json:"config,omitempty"`
		Grants grant.List      `json:"grants"`
		Plan   string          `json:"plan"`
		// Limits are the effective ones, see limitsBody.
		Limits limitsBody `json:"limits"`
		// Auth is missing if the app has no issuer of its own.
		Auth      *issuerBody       `json:"auth,omitempty"`
		Labels    map[string]string `json:"labels"`
		CreatedAt *string           `json:"created_at"`
		UpdatedAt *string           `json:"updated_at"`

		// AwaitsRestart lists the keys of the default app's file that were changed and act only after a restart of
		// the process.
		AwaitsRestart []string `json:"awaits_restart,omitempty"`
		// Warnings are what the configuration asks for and does not get, in answers to what checks it.
		Warnings []warningBody `json:"warnings,omitempty"`
	}
	// warningBody is a place of a configuration that has no effect, or another one. Its fields are those of
	// tenancy.Warning in the same order.
	warningBody struct {
		Path    string `json:"path"`
		Line    int    `json:"line"`
		Column  int    `json:"column"`
		Message string `json:"message"`
	}
	// limitsBody holds the effective limits: those of the app, else of its plan, else the defaults.
	limitsBody struct {
		// Weight is the number of runs per round of the queue's fair share.
		Weight int64 `json:"weight"`
		// MaxConcurrentTasks bounds the runs in progress in all processes together; 0 = unlimited.
		MaxConcurrentTasks int64 `json:"max_concurrent_tasks"`
		// QueueDepth bounds the runs that wait for a worker; more are refused.
		QueueDepth int64      `json:"queue_depth"`
		Rates      []rateBody `json:"rate"`
	}
	// appList is a page of apps. TotalSize counts all pages, here and in the other lists.
	appList struct {
		Apps          []appBody `json:"apps"`
		NextPageToken string    `json:"next_page_token"`
		TotalSize     int       `json:"total_size"`
	}

	// secretInfo is a secret without its value.
	secretInfo struct {
		Name      string  `json:"name"`
		CreatedAt *string `json:"created_at"`
		UpdatedAt *string `json:"updated_at"`
	}
	// pinBody is the accepted definition of an MCP tool. Status is accepted, or blocked while Drift shows another
	// definition.
	pinBody struct {
		Server     string          `json:"server"`
		Tool       string          `json:"tool"`
		Status     string          `json:"status"`
		Hash       string          `json:"hash"`
		Definition json.RawMessage `json:"definition"`
		// PinnedAt is when the definition was accepted: first seen, or accepted by an operator.
		PinnedAt *string    `json:"pinned_at"`
		Drift    *driftBody `json:"drift,omitempty"`
	}
	// driftBody is the definition that the server offers now.
	driftBody struct {
		Hash       string          `json:"hash"`
		Definition json.RawMessage `json:"definition"`
		At         *string         `json:"at"`
	}
	// tokenAnswer follows RFC 6749, 5.1. ExpiresIn is in seconds. AccessToken is missing in the answer to a
	// repetition.
	tokenAnswer struct {
		AccessToken string `json:"access_token,omitempty"`
		TokenType   string `json:"token_type"`
		ExpiresIn   int64  `json:"expires_in"`
	}
	// keyRecord is an API key.
	keyRecord struct {
		ID   string `json:"id"`
		Name string `json:"name"`
		Key  string `json:"key,omitempty"` // only in the answer that creates or rotates it
		// Prefix is the start of the key's text, by which a key found in a log or file can be identified.
		Prefix string `json:"prefix"`
		// Sub is the subject of the key's principal: the owner of its tasks.
		Sub       string   `json:"sub"`
		Roles     []string `json:"roles"`
		Scope     string   `json:"scope"`
		CreatedAt *string  `json:"created_at"`
		RotatedAt *string  `json:"rotated_at"`
		// FormerUntil is until when the text before the last rotation is valid; missing if it no longer is.
		FormerUntil *string `json:"former_until,omitempty"`
		ExpiresAt   *string `json:"expires_at"`
		// LastUsedAt is accurate to about a minute, since not every use is written.
		LastUsedAt *string `json:"last_used_at"`
	}
	keyList struct {
		Keys []keyRecord `json:"keys"`
	}
	// entryBody is an audit entry. Seq and Hash are its place in the hash chain; Seq is 0 until the entry has been
	// chained.
	entryBody struct {
		ID string  `json:"id"`
		At *string `json:"at"`
		// Actor is who acted; Issuer is the token issuer that authenticated it, "" for the operator and the
		// platform itself.
		Actor  string `json:"actor"`
		Issuer string `json:"issuer"`
		Action string `json:"action"`
		App    string `json:"app"`
		// AppID identifies the app after its name has been given to another one.
		AppID string `json:"app_id"`
		// Client is the address of the client, "" if the entry is not about a request.
		Client    string `json:"client"`
		RequestID string `json:"request_id"`
		// Detail has what changed; secret values are replaced by keyed hashes (docs/api/admin.md, The audit trail).
		Detail map[string]any `json:"detail"`
		Seq    int64          `json:"seq"`
		Hash   string         `json:"hash"`
	}
	// auditList is a page of the audit trail. Flaws are those of the whole chains, not of this page.
	auditList struct {
		Entries       []entryBody `json:"entries"`
		NextPageToken string      `json:"next_page_token"`
		Flaws         []flawBody  `json:"flaws"`
	}
	// flawBody is an inconsistency that the server has found in a hash chain; Seq 0 = in the chain as a whole.
	flawBody struct {
		App     string  `json:"app"`
		AppID   string  `json:"app_id"`
		Seq     int64   `json:"seq"`
		ID      string  `json:"id"`
		Flaw    string  `json:"flaw"`
		FoundAt *string `json:"found_at"`
	}
	// queueBody counts runs by state. Completed may be an estimate (docs/api/admin.md).
	queueBody struct {
		// Pending includes runs that wait for their session.
		Pending   int64 `json:"pending"`
		Running   int64 `json:"running"`
		Completed int64 `json:"completed"`
		Failed    int64 `json:"failed"`
		// InputRequired counts the runs whose task waits for a human.
		InputRequired int64 `json:"input_required"`
		// OldestPendingSeconds is how long the longest waiting run has been pending; the measure for too few
		// workers.
		OldestPendingSeconds float64 `json:"oldest_pending_seconds"`
		// Apps are those with runs pending or running, the busiest first, 100 at most.
		Apps []queueApp `json:"apps"`
	}
	// queueApp counts the runs of one of the busiest apps. Its fields are those of the store's type in the same
	// order.
	queueApp struct {
		App     string `json:"app"`
		Pending int64  `json:"pending"`
		Running int64  `json:"running"`
	}
	// deadLetterBody is a run that failed for good.
	deadLetterBody struct {
		ID     string `json:"id"`
		App    string `json:"app"`
		Agent  string `json:"agent"`
		TaskID string `json:"task_id"`
		// Attempts counts all executions of the run.
		Attempts int64 `json:"attempts"`
		// LastError is the error of the last attempt.
		LastError string  `json:"last_error"`
		FailedAt  *string `json:"failed_at"`
	}
	deadLetterList struct {
		Runs          []deadLetterBody `json:"runs"`
		NextPageToken string           `json:"next_page_token"`
		TotalSize     int              `json:"total_size"`
	}
	// requeuedBody is the answer to the requeue of one run.
	requeuedBody struct {
		ID     string `json:"id"`
		App    string `json:"app"`
		TaskID string `json:"task_id"` // the new task that continues
	}
	// requeuedAllBody counts the runs that were requeued and those of the filter that remain.
	requeuedAllBody struct {
		Requeued  int `json:"requeued"`
		Remaining int `json:"remaining"`
	}
)

// Roles and explanations of decisions.
type (
	roleRequest struct {
		Name        string   `json:"name"`
		Scopes      []string `json:"scopes"`
		Description string   `json:"description"`
	}
	roleBody struct {
		Name        string   `json:"name"`
		Scopes      []string `json:"scopes"`
		Description string   `json:"description"`
		// BuiltIn roles exist in every app and cannot be changed.
		BuiltIn bool `json:"built_in"`
	}
	roleList struct {
		Roles []roleBody `json:"roles"`
	}
	// ruleBody is one line of a policy: the role grants the scope for the object, an agent or *. Its fields are
	// those of authz.Rule in the same order.
	ruleBody struct {
		Role   string      `json:"role"`
		Scope  authz.Scope `json:"scope"`
		Object string      `json:"object"`
	}
	// principalBody is the principal that a decision is explained for.
	principalBody struct {
		Subject      string   `json:"subject"`
		Roles        []string `json:"roles"`
		UnknownRoles []string `json:"unknown_roles"` // roles that the app does not have; they grant nothing
		Scopes       []string `json:"scopes"`        // narrow the roles; empty = they do not
	}
	// explainBody is the answer of authz/explain (docs/api/admin.md, Roles).
	explainBody struct {
		Allowed   bool          `json:"allowed"`
		Rule      *ruleBody     `json:"rule"` // the rule that grants the scope, null if none does
		Reason    string        `json:"reason"`
		Principal principalBody `json:"principal"`
		// Action is the operation in dotted form, such as app.update.
		Action  string     `json:"action"`
		Object  string     `json:"object"`
		Tasks   string     `json:"tasks,omitempty"` // for scopes about tasks: whose tasks are visible, all, own or none
		Holders []ruleBody `json:"holders"`         // every rule that grants the scope, of any role
	}
)

// document is a configuration in a request: a JSON object, or a text that holds YAML. Both are kept as bytes, since
// JSON is YAML and the configuration's own decoder reports lines and columns.
type document []byte

// UnmarshalJSON decodes either form; null leaves the document empty, which means no change.
func (d *document) UnmarshalJSON(raw []byte) error {
	switch {
	case bytes.Equal(raw, []byte("null")):
		return nil
	case raw[0] == '{':
		// raw belongs to the decoder (json.Unmarshaler), so it is copied.
		*d = bytes.Clone(raw)
		return nil
	case raw[0] == '"':
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return err
		}
		*d = document(text)
		return nil
	}
	return agentsvc.NewInvalidError("config", "must be an object, or a text that holds YAML")
}

// toChange returns the change that replaces all settings of an app. Secrets are added to the stored ones.
func (b *settingsBody) toChange() tenancy.AppChange {
	c := tenancy.AppChange{
		Config: b.Config, Secrets: b.Secrets, DisplayName: &b.DisplayName, Labels: b.Labels, Grants: b.Grants, Plan: &b.Plan, Limits: b.Limits.toReplacement(),
		Auth: (*tenancy.IssuerConfig)(&b.Auth),
	}
	// nil would leave them as they are.
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	if c.Grants == nil {
		c.Grants = grant.List{}
	}
	return c
}

// newAppBody returns an app as responses show it; lists and maps are never null.
func newAppBody(a tenancy.App) appBody {
	b := appBody{
		ID: string(a.ID), Name: a.Name, DisplayName: a.DisplayName, Status: string(a.Status), Revision: a.Revision, ETag: strconv.Quote(a.Tag()), Config: a.Config.JSON,
		Grants: append(grant.List{}, a.Grants...), Plan: a.Plan, Limits: newLimitsBody(a.EffectiveLimits()), Labels: map[string]string{},
		CreatedAt: encode.FormatOptionalTime(a.CreatedAt), UpdatedAt: encode.FormatOptionalTime(a.UpdatedAt),
	}
	maps.Copy(b.Labels, a.Labels)
	for _, w := range a.Config.Warnings {
		b.Warnings = append(b.Warnings, warningBody(w))
	}
	if a.Auth != (tenancy.IssuerConfig{}) {
		auth := issuerBody(a.Auth)
		b.Auth = &auth
	}
	return b
}
