package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"stoa/agentsvc/duration"
)

// appTokenCmd is `stoa app token`.
type appTokenCmd struct {
	appFlags `embed:""`
	Sub      string            `required:"" placeholder:"SUBJECT" help:"Who the token is for."`
	Role     []string          `placeholder:"ROLE" help:"A role in the app: admin, operator, developer, approver, caller (the default) or viewer. Repeatable."`
	Scope    string            `placeholder:"SCOPES" help:"Narrows the roles to these scopes, separated by spaces, such as \"agents:call tasks:read\"."`
	TTL      duration.Duration `name:"ttl" placeholder:"DURATION" help:"How long it is valid, at most 30d (1h)."`
}

// Run issues an access token and prints only the token, so that T=$(stoa app token ...) works in a shell.
func (cmd *appTokenCmd) Run(ctx context.Context, c *console) error {
	// What is not given is left out, so that the server's defaults apply.
	body := map[string]any{"sub": cmd.Sub}
	if len(cmd.Role) > 0 {
		body["roles"] = cmd.Role
	}
	if cmd.Scope != "" {
		body["scope"] = cmd.Scope
	}
	if cmd.TTL != 0 {
		body["ttl"] = time.Duration(cmd.TTL).String()
	}
	return cmd.callAPI(ctx, c, http.MethodPost, "/tokens", body, func(answer json.RawMessage) error {
		var t struct {
			AccessToken string `json:"access_token"`
		}
		if err := json.Unmarshal(answer, &t); err != nil {
			return fmt.Errorf("read the token: %w", err)
		}
		if t.AccessToken == "" {
			return errors.New("the server answered without a token")
		}
		_, err := fmt.Fprintln(c.out, t.AccessToken)
		return err
	})
}

// appRevokeCmd is `stoa app revoke`.
type appRevokeCmd struct {
	appFlags    `embed:""`
	confirmFlag `embed:""`
	Sub         selector `placeholder:"SUBJECT" help:"Only the tokens of this subject."`
}

// Run revokes every token that was issued before now, of the app or of one subject. Tokens issued later are valid.
func (cmd *appRevokeCmd) Run(ctx context.Context, c *console) error {
	body := map[string]selector{}
	whose := "all tokens of " + cmd.Name
	if cmd.Sub != "" {
		body["sub"] = cmd.Sub
		whose = "the tokens of " + string(cmd.Sub) + " in " + cmd.Name
	}
	if err := cmd.confirmYes(ctx, c, "revoke "+whose); err != nil {
		return err
	}
	return cmd.callAPI(ctx, c, http.MethodPost, "/tokens:revoke", body, func(json.RawMessage) error {
		c.printStatus("%s revoked", whose)
		return nil
	})
}
