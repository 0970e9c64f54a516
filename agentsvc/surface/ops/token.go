package ops

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"stoa/agentsvc"
	"stoa/authz"
	"stoa/tenancy"
)

// mint makes a token for an app. That it was made stands in the audit trail, the token nowhere.
func (a admin) mint(ctx context.Context, o *order) (answer, error) {
	var b tokenBody
	if err := o.decode(&b, false); err != nil {
		return answer{}, err
	}
	spec := authz.TokenSpec{Subject: b.Sub, Roles: b.Roles, Scope: b.Scope}
	if b.TTL != "" {
		var err error
		if spec.TTL, err = time.ParseDuration(b.TTL); err != nil || spec.TTL <= 0 {
			return answer{}, agentsvc.Invalid("ttl", "must be a duration such as 1h")
		}
	}
	app, err := a.apps.Get(ctx, o.app())
	if err != nil {
		return answer{}, err
	}
	if app.Status == tenancy.Deleting {
		return answer{}, fmt.Errorf("%w: the app %s is being deleted", tenancy.ErrPrecondition, app.Name)
	}
	token, err := a.issuer.Mint(ctx, &app, spec)
	if err != nil {
		return answer{}, err
	}
	err = a.apps.Audit(ctx, tenancy.Entry{
		Actor: o.actor, Action: "app.tokens.create", App: app.Name, AppID: app.ID,
		Detail: map[string]any{"sub": b.Sub, "roles": b.Roles, "scope": b.Scope, "ttl": token.TTL.String()},
	})
	shown := tokenAnswer{AccessToken: token.Text, TokenType: "Bearer", ExpiresIn: int64(token.TTL.Seconds())}
	hidden := shown
	hidden.AccessToken = ""
	return answer{status: http.StatusCreated, body: shown, again: hidden, app: app.ID}, err
}

func (a admin) revoke(ctx context.Context, o *order) (answer, error) {
	var b revokeBody
	if err := o.decode(&b, true); err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, a.apps.Revoke(ctx, o.actor, o.app(), b.Sub)
}
