package admin

import (
	"context"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/duration"
	"stoa/agentsvc/surface/mutation"
	"stoa/authz"
	"stoa/tenancy"
	"stoa/tenancy/audit"
)

// tokenHandler serves apps' tokens. It is read-only and used by value.
type tokenHandler struct {
	apps   *tenancy.Service
	issuer *authz.BuiltInIssuer
}

// mintToken issues a token for an app. The audit trail records its subject, roles, scope and lifetime; the token
// itself is stored nowhere, and a repetition under the same Idempotency-Key is answered without it.
func (h tokenHandler) mintToken(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	var b tokenBody
	if err := o.DecodeBody(&b, false); err != nil {
		return mutation.Result{}, err
	}
	spec := authz.TokenSpec{Subject: b.Sub, Roles: b.Roles, Scope: b.Scope}
	if b.TTL != "" {
		var err error
		if spec.TTL, err = duration.Parse(b.TTL); err != nil || spec.TTL <= 0 {
			return mutation.Result{}, agentsvc.NewInvalidError("ttl", "must be a duration such as 1h or 30d")
		}
	}
	app, err := h.apps.LoadApp(ctx, o.AppName())
	if err != nil {
		return mutation.Result{}, err
	}
	// A token would not be accepted; an error is clearer than a token that does not work.
	if app.Status == tenancy.Deleting {
		return mutation.Result{}, agentsvc.NewError(agentsvc.CodePrecondition, "precondition failed: the app %s is being deleted", app.Name)
	}
	token, err := h.issuer.IssueToken(ctx, &app, spec)
	if err != nil {
		return mutation.Result{}, err
	}
	err = h.apps.Trail.Record(ctx, audit.Entry{
		Actor: o.Actor, Action: "app.tokens.create", App: app.Name, AppID: app.ID,
		Detail: map[string]any{"sub": b.Sub, "roles": b.Roles, "scope": b.Scope, "ttl": token.TTL.String()},
	})
	// The recorded response must not hold the token.
	shown := tokenAnswer{AccessToken: token.Text, TokenType: "Bearer", ExpiresIn: int64(token.TTL.Seconds())}
	hidden := shown
	hidden.AccessToken = ""
	return mutation.Result{Status: http.StatusCreated, Body: shown, ReplayBody: hidden, AppID: app.ID}, err
}

// revokeTokens refuses all tokens of an app that were issued until now or, with sub, those of one subject.
func (h tokenHandler) revokeTokens(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	var b revokeBody
	if err := o.DecodeBody(&b, true); err != nil {
		return mutation.Result{}, err
	}
	if err := b.Sub.check("sub", "revoke all tokens"); err != nil {
		return mutation.Result{}, err
	}
	return mutation.Result{Status: http.StatusNoContent}, h.apps.Tokens.Revoke(ctx, o.Actor, o.AppName(), b.Sub.text)
}
