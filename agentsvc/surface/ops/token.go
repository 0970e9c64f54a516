package ops

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"stoa/agentsvc"
	"stoa/authz"
	"stoa/tenancy"
	"stoa/tenancy/audit"
)

// mintToken issues a token for an app. The audit trail records its subject, roles, scope and lifetime; the token
// itself is stored nowhere, and a repetition under the same Idempotency-Key is answered without it.
func (a adminAPI) mintToken(ctx context.Context, o *mutation) (mutationResult, error) {
	var b tokenBody
	if err := o.decodeBody(&b, false); err != nil {
		return mutationResult{}, err
	}
	spec := authz.TokenSpec{Subject: b.Sub, Roles: b.Roles, Scope: b.Scope}
	if b.TTL != "" {
		var err error
		if spec.TTL, err = time.ParseDuration(b.TTL); err != nil || spec.TTL <= 0 {
			return mutationResult{}, agentsvc.NewInvalidError("ttl", "must be a duration such as 1h")
		}
	}
	app, err := a.apps.LoadApp(ctx, o.appName())
	if err != nil {
		return mutationResult{}, err
	}
	// A token would not be accepted; an error is clearer than a token that does not work.
	if app.Status == tenancy.Deleting {
		return mutationResult{}, fmt.Errorf("%w: the app %s is being deleted", tenancy.ErrPrecondition, app.Name)
	}
	token, err := a.issuer.IssueToken(ctx, &app, spec)
	if err != nil {
		return mutationResult{}, err
	}
	err = a.apps.Trail.Record(ctx, audit.Entry{
		Actor: o.actor, Action: "app.tokens.create", App: app.Name, AppID: app.ID,
		Detail: map[string]any{"sub": b.Sub, "roles": b.Roles, "scope": b.Scope, "ttl": token.TTL.String()},
	})
	// The recorded response must not hold the token.
	shown := tokenAnswer{AccessToken: token.Text, TokenType: "Bearer", ExpiresIn: int64(token.TTL.Seconds())}
	hidden := shown
	hidden.AccessToken = ""
	return mutationResult{status: http.StatusCreated, body: shown, replayBody: hidden, appID: app.ID}, err
}

// revokeTokens refuses all tokens of an app that were issued until now or, with sub, those of one subject.
func (a adminAPI) revokeTokens(ctx context.Context, o *mutation) (mutationResult, error) {
	var b revokeBody
	if err := o.decodeBody(&b, true); err != nil {
		return mutationResult{}, err
	}
	return mutationResult{status: http.StatusNoContent}, a.apps.Tokens.Revoke(ctx, o.actor, o.appName(), b.Sub)
}
