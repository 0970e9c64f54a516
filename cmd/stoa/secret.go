package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// appSecretCmd is `stoa app secret`.
type appSecretCmd struct {
	Set    secretSetCmd    `cmd:"" help:"Set a secret."`
	List   secretListCmd   `cmd:"" help:"List the names of the secrets, never their values."`
	Delete secretDeleteCmd `cmd:"" help:"Delete a secret."`
}

// secretPath returns the path of an app's secret in the admin API, or of the list of its secrets if name is "".
func secretPath(app, name string) string {
	path := "/admin/apps/" + url.PathEscape(app) + "/secrets"
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}

// secretSetCmd is `stoa app secret set`.
type secretSetCmd struct {
	serverFlag `embed:""`
	App        string `arg:"" help:"The app's name."`
	Name       string `arg:"" help:"The secret's name, as in $${NAME}."`
	Value      string `arg:"" optional:"" help:"Its value. Without it, it is read from standard input, so that no process list and no history shows it."`
}

// Run sets the secret. Without a value on the command line it asks for it, or reads standard input.
func (cmd *secretSetCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.newAdminClient()
	if err != nil {
		return err
	}
	value := cmd.Value
	// From the safest source that is available: the argument, a prompt without echo, a pipe.
	switch {
	case value != "":
	case c.interactive:
		value, _ = c.promptLine(ctx, "value of "+cmd.Name+": ", true)
	default:
		value, err = c.readInput("-")
	}
	if err != nil {
		return err
	}
	// Files and echo end in a line feed that is not part of the secret.
	if value = strings.TrimRight(value, "\r\n"); value == "" {
		return errors.New("the secret has no value, so nothing was set")
	}
	if err := api.doJSON(ctx, http.MethodPut, secretPath(cmd.App, cmd.Name), map[string]string{"value": value}, nil); err != nil {
		return err
	}
	c.printStatus("%s of %s set", cmd.Name, cmd.App)
	return nil
}

// secretListCmd is `stoa app secret list`.
type secretListCmd struct {
	appFlags `embed:""`
}

// Run prints the names of the app's secrets. The API never returns their values.
func (cmd *secretListCmd) Run(ctx context.Context, c *console) error {
	return cmd.callAPI(ctx, c, http.MethodGet, "/secrets", nil, func(answer json.RawMessage) error {
		var list struct {
			Secrets []struct {
				Name      string `json:"name"`
				CreatedAt string `json:"created_at"`
				UpdatedAt string `json:"updated_at"`
			} `json:"secrets"`
		}
		if err := json.Unmarshal(answer, &list); err != nil {
			return fmt.Errorf("read the list of secrets: %w", err)
		}
		rows := make([][]string, len(list.Secrets))
		for i, s := range list.Secrets {
			rows[i] = []string{s.Name, s.CreatedAt, s.UpdatedAt}
		}
		return c.printTable([]string{"NAME", "CREATED", "UPDATED"}, rows)
	})
}

// secretDeleteCmd is `stoa app secret delete`.
type secretDeleteCmd struct {
	serverFlag  `embed:""`
	confirmFlag `embed:""`
	App         string `arg:"" help:"The app's name."`
	Name        string `arg:"" help:"The secret's name."`
}

// Run deletes the secret.
func (cmd *secretDeleteCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.newAdminClient()
	if err != nil {
		return err
	}
	if err := cmd.confirmYes(ctx, c, "delete the secret "+cmd.Name+" of "+cmd.App); err != nil {
		return err
	}
	if err := api.doJSON(ctx, http.MethodDelete, secretPath(cmd.App, cmd.Name), nil, nil); err != nil {
		return err
	}
	c.printStatus("%s of %s deleted", cmd.Name, cmd.App)
	return nil
}
