package ops

import (
	"bytes"
	"encoding/json"
	"maps"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/authz"
	"stoa/tenancy"
	"stoa/tenancy/grant"
)

// What comes in.
type (
	createBody struct {
		Name        string            `json:"name"`
		Config      document          `json:"config"`
		Secrets     map[string]string `json:"secrets"`
		DisplayName string            `json:"display_name"`
		Labels      map[string]string `json:"labels"`
		Grants      grant.List        `json:"grants"`
		Plan        string            `json:"plan"`

		Limits tenancy.LimitsChange `json:"limits"`
		Auth   tenancy.IssuerConfig `json:"auth"`
	}
	updateBody struct {
		Config      document          `json:"config"`
		Secrets     map[string]string `json:"secrets"`
		DisplayName *string           `json:"display_name"`
		Labels      map[string]string `json:"labels"`
		Grants      grant.List        `json:"grants"`
		Plan        *string           `json:"plan"`

		Limits tenancy.LimitsChange `json:"limits"`
		Auth   authField            `json:"auth"`
	}
	decisionBody struct {
		CallID    string          `json:"call_id"`
		Arguments json.RawMessage `json:"arguments"`
		Comment   string          `json:"comment"`
	}
	reasonBody struct {
		Reason string `json:"reason"`
	}
	secretBody struct {
		Value *string `json:"value"`
	}
	tokenBody struct {
		Sub   string   `json:"sub"`
		Roles []string `json:"roles"`
		Scope string   `json:"scope"`
		TTL   string   `json:"ttl"`
	}
	keyBody struct {
		Name      string   `json:"name"`
		Roles     []string `json:"roles"`
		Scope     string   `json:"scope"`
		ExpiresAt string   `json:"expires_at"`
	}
	rotateBody struct {
		Overlap string `json:"overlap"`
	}
	revokeBody struct {
		Sub string `json:"sub"`
	}
	requeueBody struct {
		App   string `json:"app"`
		Agent string `json:"agent"`
		Error string `json:"error"`
	}
	acceptBody struct {
		Hash string `json:"hash"`
	}
)

// What goes out.
type (
	appBody struct {
		Name        string                `json:"name"`
		DisplayName string                `json:"display_name"`
		Status      string                `json:"status"`
		Revision    int64                 `json:"revision"`
		Config      map[string]any        `json:"config,omitempty"`
		Grants      grant.List            `json:"grants"`
		Plan        string                `json:"plan"`
		Limits      limitsBody            `json:"limits"`
		Auth        *tenancy.IssuerConfig `json:"auth,omitempty"`
		Labels      map[string]string     `json:"labels"`
		CreatedAt   *string               `json:"created_at"`
		UpdatedAt   *string               `json:"updated_at"`

		AwaitsRestart []string `json:"awaits_restart,omitempty"` // keys of the default app's file
	}
	limitsBody struct {
		Weight             int64          `json:"weight"`
		MaxConcurrentTasks int64          `json:"max_concurrent_tasks"`
		QueueDepth         int64          `json:"queue_depth"`
		Rates              []tenancy.Rate `json:"rate"`
	}
	appList struct {
		Apps          []appBody `json:"apps"`
		NextPageToken string    `json:"next_page_token"`
		TotalSize     int       `json:"total_size"`
	}
	checkpointBody struct {
		ID     int64  `json:"id"`
		Reason string `json:"reason"`
		Step   int    `json:"step"`
		Agent  string `json:"agent,omitempty"` // path of the sub-agent
		At     string `json:"at"`
	}
	checkpointList struct {
		Checkpoints []checkpointBody `json:"checkpoints"`
	}
	revisionBody struct {
		Revision  int64   `json:"revision"`
		Actor     string  `json:"actor"`
		CreatedAt *string `json:"created_at"`
		Current   bool    `json:"current"`
	}
	secretInfo struct {
		Name      string  `json:"name"`
		CreatedAt *string `json:"created_at"`
		UpdatedAt *string `json:"updated_at"`
	}
	pinBody struct {
		Server     string          `json:"server"`
		Tool       string          `json:"tool"`
		Status     string          `json:"status"`
		Hash       string          `json:"hash"`
		Definition json.RawMessage `json:"definition"`
		PinnedAt   *string         `json:"pinned_at"`
		Drift      *driftBody      `json:"drift,omitempty"`
	}
	driftBody struct {
		Hash       string          `json:"hash"`
		Definition json.RawMessage `json:"definition"`
		At         *string         `json:"at"`
	}
	tokenAnswer struct {
		AccessToken string `json:"access_token,omitempty"`
		TokenType   string `json:"token_type"`
		ExpiresIn   int64  `json:"expires_in"`
	}
	keyRecord struct {
		ID          string   `json:"id"`
		Name        string   `json:"name"`
		Key         string   `json:"key,omitempty"` // shown once
		Prefix      string   `json:"prefix"`
		Sub         string   `json:"sub"`
		Roles       []string `json:"roles"`
		Scope       string   `json:"scope"`
		CreatedAt   *string  `json:"created_at"`
		RotatedAt   *string  `json:"rotated_at"`
		FormerUntil *string  `json:"former_until,omitempty"` // until when the key before the rotation is good
		ExpiresAt   *string  `json:"expires_at"`
		LastUsedAt  *string  `json:"last_used_at"`
	}
	keyList struct {
		Keys []keyRecord `json:"keys"`
	}
	entryBody struct {
		ID        string         `json:"id"`
		At        *string        `json:"at"`
		Actor     string         `json:"actor"`
		Issuer    string         `json:"issuer"`
		Action    string         `json:"action"`
		App       string         `json:"app"`
		AppID     string         `json:"app_id"`
		Client    string         `json:"client"`
		RequestID string         `json:"request_id"`
		Detail    map[string]any `json:"detail"`
		Seq       int64          `json:"seq"`
		Hash      string         `json:"hash"`
	}
	auditList struct {
		Entries       []entryBody `json:"entries"`
		NextPageToken string      `json:"next_page_token"`
		Flaws         []flawBody  `json:"flaws"`
	}
	flawBody struct {
		App     string  `json:"app"`
		AppID   string  `json:"app_id"`
		Seq     int64   `json:"seq"`
		ID      string  `json:"id"`
		Flaw    string  `json:"flaw"`
		FoundAt *string `json:"found_at"`
	}
	queueBody struct {
		Pending              int64      `json:"pending"`
		Running              int64      `json:"running"`
		Completed            int64      `json:"completed"`
		Failed               int64      `json:"failed"`
		InputRequired        int64      `json:"input_required"`
		OldestPendingSeconds float64    `json:"oldest_pending_seconds"`
		Apps                 []queueApp `json:"apps"`
	}
	queueApp struct {
		App     string `json:"app"`
		Pending int64  `json:"pending"`
		Running int64  `json:"running"`
	}
	deadLetterBody struct {
		ID        string  `json:"id"`
		App       string  `json:"app"`
		Agent     string  `json:"agent"`
		TaskID    string  `json:"task_id"`
		Attempts  int64   `json:"attempts"`
		LastError string  `json:"last_error"`
		FailedAt  *string `json:"failed_at"`
	}
	deadLetterList struct {
		Runs          []deadLetterBody `json:"runs"`
		NextPageToken string           `json:"next_page_token"`
		TotalSize     int              `json:"total_size"`
	}
	requeuedBody struct {
		ID     string `json:"id"`
		App    string `json:"app"`
		TaskID string `json:"task_id"` // of the task that goes on
	}
	requeuedAllBody struct {
		Requeued  int `json:"requeued"`
		Remaining int `json:"remaining"`
	}
	memoryBody struct {
		MemoryID  string  `json:"memory_id"`
		User      string  `json:"user"`
		Issuer    string  `json:"issuer"`
		Agent     string  `json:"agent"`
		ContextID string  `json:"context_id"`
		TaskID    string  `json:"task_id"`
		Role      string  `json:"role"`
		Text      string  `json:"text"`
		CreatedAt *string `json:"created_at"`
	}
	notificationList struct {
		Notifications []notificationBody `json:"notifications"`
	}
	notificationBody struct {
		ID        string `json:"id"`
		Form      string `json:"form"`
		Status    string `json:"status"`
		Attempts  int64  `json:"failed_attempts"`
		Error     string `json:"error,omitempty"`
		CreatedAt string `json:"created_at"`
	}
	credentialBody struct {
		Tool      string  `json:"tool"`
		Header    string  `json:"header"`
		Server    string  `json:"server"`
		CreatedAt *string `json:"created_at"`
	}
	credentialList struct {
		Credentials []credentialBody `json:"credentials"`
	}
	memoryList struct {
		Memories      []memoryBody `json:"memories"`
		NextPageToken string       `json:"next_page_token"`
	}
	taskList struct {
		Tasks         []surface.TaskRecord `json:"tasks"`
		NextPageToken string               `json:"next_page_token"`
		TotalSize     int                  `json:"total_size"`
	}
)

// Roles, and what follows from them.
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
		BuiltIn     bool     `json:"built_in"`
	}
	roleList struct {
		Roles []roleBody `json:"roles"`
	}
	ruleBody struct {
		Role   string      `json:"role"`
		Scope  authz.Scope `json:"scope"`
		Object string      `json:"object"`
	}
	principalBody struct {
		Subject      string   `json:"subject"`
		Roles        []string `json:"roles"`
		UnknownRoles []string `json:"unknown_roles"` // which the app does not have
		Scopes       []string `json:"scopes"`        // that narrow the roles; none: nothing does
	}
	explainBody struct {
		Allowed   bool          `json:"allowed"`
		Rule      *ruleBody     `json:"rule"` // that gives the scope, null where none does
		Reason    string        `json:"reason"`
		Principal principalBody `json:"principal"`
		Action    string        `json:"action"`
		Object    string        `json:"object"`
		Tasks     string        `json:"tasks,omitempty"` // whose, where the action is about tasks: all, own or none
		Holders   []ruleBody    `json:"holders"`         // every rule that would give the scope
	}
)

// document is a configuration: a JSON object, or text that holds YAML.
type document []byte

// UnmarshalJSON takes either form.
func (d *document) UnmarshalJSON(raw []byte) error {
	switch {
	case bytes.Equal(raw, []byte("null")):
		return nil
	case raw[0] == '{':
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

// authField is an issuer that a change may set, take away (null) or leave as it is.
type authField struct {
	given bool
	auth  tenancy.IssuerConfig
}

// UnmarshalJSON takes an issuer or null.
func (f *authField) UnmarshalJSON(raw []byte) error {
	f.given, f.auth = true, tenancy.IssuerConfig{}
	if bytes.Equal(raw, []byte("null")) {
		return nil
	}
	return f.auth.UnmarshalJSON(raw)
}

func (f *authField) toChange() *tenancy.IssuerConfig {
	if !f.given {
		return nil
	}
	return &f.auth
}

func newAppBody(a tenancy.App) appBody {
	b := appBody{
		Name: a.Name, DisplayName: a.DisplayName, Status: string(a.Status), Revision: a.Revision, Config: a.Config,
		Grants: append(grant.List{}, a.Grants...), Plan: a.Plan, Limits: limitsBody(a.EffectiveLimits()), Labels: map[string]string{},
		CreatedAt: formatTime(a.CreatedAt), UpdatedAt: formatTime(a.UpdatedAt),
	}
	maps.Copy(b.Labels, a.Labels)
	b.Limits.Rates = append([]tenancy.Rate{}, b.Limits.Rates...)
	if a.Auth != (tenancy.IssuerConfig{}) {
		b.Auth = &a.Auth
	}
	return b
}

// formatTime returns t as text, nil for no time.
func formatTime(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	text := surface.FormatTime(t)
	return &text
}
