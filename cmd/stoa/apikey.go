package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"stoa/agentsvc/duration"
)

// appKeyCmd is `stoa app key`.
type appKeyCmd struct {
	Create keyCreateCmd `cmd:"" help:"Print a new API key of an app. It is not shown again."`
	List   keyListCmd   `cmd:"" help:"List the API keys of an app, without the keys themselves."`
	Rotate keyRotateCmd `cmd:"" help:"Print a new text for an API key; the previous one stays valid for a while."`
	Delete keyDeleteCmd `cmd:"" help:"Delete an API key, which is then refused."`
}

// apiKeyRecord is an API key in the JSON of the admin API.
type apiKeyRecord struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Key is only in the response that creates or rotates the key: the server stores a hash of it.
	Key string `json:"key"`
	// Prefix is the beginning of the key, by which people recognise it.
	Prefix     string   `json:"prefix"`
	Roles      []string `json:"roles"`
	Scope      string   `json:"scope"`
	CreatedAt  string   `json:"created_at"`
	ExpiresAt  string   `json:"expires_at"`
	LastUsedAt string   `json:"last_used_at"`
}

// newKeyPrinter returns a function that prints the key alone to out, so that K=$(stoa app key create ...) works in a
// shell, and its id to err, which rotate and delete need.
func newKeyPrinter(c *console) func(json.RawMessage) error {
	return func(answer json.RawMessage) error {
		var k apiKeyRecord
		if err := json.Unmarshal(answer, &k); err != nil {
			return fmt.Errorf("read the key: %w", err)
		}
		if k.Key == "" {
			return errors.New("the server answered without a key")
		}
		if _, err := fmt.Fprintln(c.out, k.Key); err != nil {
			return err
		}
		c.printStatus("the key has the id %s", k.ID)
		return nil
	}
}

// keyCreateCmd is `stoa app key create`.
type keyCreateCmd struct {
	appFlags `embed:""`
	Label    string    `required:"" name:"name" placeholder:"TEXT" help:"What the key is for."`
	Role     []string  `placeholder:"ROLE" help:"A role in the app: admin, operator, developer, approver, caller (the default) or viewer. Repeatable."`
	Scope    string    `placeholder:"SCOPES" help:"Narrows the roles to these scopes, separated by spaces, such as \"agents:call tasks:read\"."`
	Expires  time.Time `format:"2006-01-02" placeholder:"YYYY-MM-DD" help:"The day at whose beginning (UTC) the key expires; without it, it does not."`
}

// Run creates the key and prints it.
func (cmd *keyCreateCmd) Run(ctx context.Context, c *console) error {
	// Empty roles and scope select the server's defaults.
	body := map[string]any{"name": cmd.Label, "roles": cmd.Role, "scope": cmd.Scope}
	if !cmd.Expires.IsZero() {
		body["expires_at"] = cmd.Expires.UTC().Format(time.RFC3339)
	}
	return cmd.callAPI(ctx, c, http.MethodPost, "/keys", body, newKeyPrinter(c))
}

// keyListCmd is `stoa app key list`.
type keyListCmd struct {
	appFlags `embed:""`
}

// Run prints the app's keys, the newest first, by their prefixes.
func (cmd *keyListCmd) Run(ctx context.Context, c *console) error {
	return cmd.callAPI(ctx, c, http.MethodGet, "/keys", nil, func(answer json.RawMessage) error {
		var list struct{ Keys []apiKeyRecord }
		if err := json.Unmarshal(answer, &list); err != nil {
			return fmt.Errorf("read the list of keys: %w", err)
		}
		rows := make([][]string, len(list.Keys))
		for i, k := range list.Keys {
			rows[i] = []string{k.ID, k.Name, k.Prefix + "...", strings.Join(k.Roles, " "), cmp.Or(k.Scope, "-"), k.CreatedAt, cmp.Or(k.ExpiresAt, "never"), cmp.Or(k.LastUsedAt, "never")}
		}
		return c.printTable([]string{"ID", "NAME", "KEY", "ROLES", "SCOPE", "CREATED", "EXPIRES", "USED"}, rows)
	})
}

// keyRotateCmd is `stoa app key rotate`.
type keyRotateCmd struct {
	appFlags `embed:""`
	ID       string             `arg:"" help:"The key's id."`
	Overlap  *duration.Duration `placeholder:"DURATION" help:"How long the previous text stays valid, at most 30d; 0s ends it at once (24h)."`
}

// Run gives the key a new text and prints it. The old text stays valid for the overlap.
func (cmd *keyRotateCmd) Run(ctx context.Context, c *console) error {
	body := map[string]any{}
	if cmd.Overlap != nil {
		body["overlap"] = time.Duration(*cmd.Overlap).String()
	}
	return cmd.callAPI(ctx, c, http.MethodPost, "/keys/"+url.PathEscape(cmd.ID)+":rotate", body, newKeyPrinter(c))
}

// keyDeleteCmd is `stoa app key delete`.
type keyDeleteCmd struct {
	appFlags    `embed:""`
	confirmFlag `embed:""`
	ID          string `arg:"" help:"The key's id."`
}

// Run deletes the key; it is refused from then on.
func (cmd *keyDeleteCmd) Run(ctx context.Context, c *console) error {
	if err := cmd.confirmYes(ctx, c, "delete the key "+cmd.ID+" of "+cmd.Name); err != nil {
		return err
	}
	return cmd.callAPI(ctx, c, http.MethodDelete, "/keys/"+url.PathEscape(cmd.ID), nil, func(json.RawMessage) error {
		c.printStatus("the key %s of %s deleted", cmd.ID, cmd.Name)
		return nil
	})
}
