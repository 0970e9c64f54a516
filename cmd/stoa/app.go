package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"stoa/agentsvc/config/document"
	"stoa/tenancy/grant"
)

// appCmd is `stoa app`, the client of the admin API. Its commands need the admin secret: STOA_ADMIN_SECRET,
// STOA_ADMIN_SECRET_FILE, or the file that a server on SQLite keeps next to its database (findAdminSecret).
type appCmd struct {
	Create    appCreateCmd    `cmd:"" help:"Create an app from a configuration file."`
	List      appListCmd      `cmd:"" help:"List the apps."`
	Get       appGetCmd       `cmd:"" help:"Show an app and its configuration."`
	Update    appUpdateCmd    `cmd:"" help:"Change an app; flags that are not given change nothing."`
	Suspend   appSuspendCmd   `cmd:"" help:"Refuse an app's calls and stop its runs."`
	Resume    appResumeCmd    `cmd:"" help:"Resume a suspended app."`
	Export    appExportCmd    `cmd:"" help:"Write a suspended app with everything it owns to a file, for its customer or another installation."`
	Import    appImportCmd    `cmd:"" help:"Make the app in a file one of this installation."`
	Delete    appDeleteCmd    `cmd:"" help:"Delete an app with everything it owns."`
	Revisions appRevisionsCmd `cmd:"" help:"List an app's configurations so far."`
	Restore   appRestoreCmd   `cmd:"" help:"Make an earlier configuration of an app its current one."`
	Secret    appSecretCmd    `cmd:"" help:"Manage the secrets that an app's configuration uses as $${NAME}."`
	Token     appTokenCmd     `cmd:"" help:"Print a new access token for an app."`
	Key       appKeyCmd       `cmd:"" help:"Manage the API keys with which programs call an app."`
	Revoke    appRevokeCmd    `cmd:"" help:"Revoke the tokens that an app's callers hold."`
}

// appRecord is an app in the JSON of the admin API.
type appRecord struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	DisplayName string            `json:"display_name"`
	Status      string            `json:"status"`
	Revision    int64             `json:"revision"`
	ETag        string            `json:"etag"`   // for update --if-match
	Config      json.RawMessage   `json:"config"` // a string of YAML, or an object; secrets are masked
	Grants      grant.List        `json:"grants"`
	Plan        string            `json:"plan"`
	Limits      limitsRecord      `json:"limits"`
	Auth        map[string]any    `json:"auth"` // the app's own issuer, empty without one
	Labels      map[string]string `json:"labels"`
	CreatedAt   string            `json:"created_at"`
	UpdatedAt   string            `json:"updated_at"`

	Warnings []document.Problem `json:"warnings"`
}

// appFlags are the arguments of the commands about one app.
type appFlags struct {
	serverFlag `embed:""`
	Name       string `arg:"" help:"The app's name."`
	JSON       bool   `name:"json" help:"Print the API's answer as JSON."`
}

// callAPI sends one request to subpath of the app and prints the response: unchanged with --json, else with show.
func (f *appFlags) callAPI(ctx context.Context, c *console, method, subpath string, body any, show func(json.RawMessage) error) error {
	api, err := f.newAdminClient()
	if err != nil {
		return err
	}
	var answer json.RawMessage
	if err := api.doJSON(ctx, method, "/admin/apps/"+url.PathEscape(f.Name)+subpath, body, &answer); err != nil {
		return err
	}
	// A response without a body (204) is reported by show, also with --json.
	if f.JSON && len(answer) > 0 {
		return c.printJSON(answer)
	}
	return show(answer)
}

// newAppPrinter returns a function that reads an app from a response and prints the warnings about its configuration,
// and a line with its name, the text format, its revision and its status.
func (f *appFlags) newAppPrinter(c *console, format string) func(json.RawMessage) error {
	return func(answer json.RawMessage) error {
		var a appRecord
		if err := json.Unmarshal(answer, &a); err != nil {
			return fmt.Errorf("read the app: %w", err)
		}
		a.printWarnings(c)
		c.printStatus("%s "+format+" (revision %d, %s)", a.Name, a.Revision, a.Status)
		return nil
	}
}

// printWarnings prints the warnings about the app's configuration. One about what its text no longer has is without a position.
func (a *appRecord) printWarnings(c *console) {
	for _, w := range a.Warnings {
		position := ""
		if w.Line > 0 {
			position = fmt.Sprintf("line %d, column %d: ", w.Line, w.Column)
		}
		c.printStatus("%swarning: %s: %s", position, w.Path, w.Message)
	}
}

// appListCmd is `stoa app list`.
type appListCmd struct {
	serverFlag `embed:""`
	Status     string `placeholder:"STATUS" help:"Only apps that are active, suspended or deleting."`
	JSON       bool   `name:"json" help:"Print the API's answer as JSON."`
}

// Run prints the apps of all pages.
func (cmd *appListCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.newAdminClient()
	if err != nil {
		return err
	}
	all, answer, err := readPages(ctx, api, "/admin/apps", "apps", url.Values{"status": {cmd.Status}})
	if err != nil {
		return err
	}
	if cmd.JSON {
		return c.printJSON(answer)
	}
	rows := make([][]string, len(all))
	for i, raw := range all {
		var a appRecord
		if err := json.Unmarshal(raw, &a); err != nil {
			return fmt.Errorf("read the list of apps: %w", err)
		}
		rows[i] = []string{a.Name, a.Status, strconv.FormatInt(a.Revision, 10), cmp.Or(a.Plan, "-"), a.UpdatedAt, a.DisplayName}
	}
	return c.printTable([]string{"NAME", "STATUS", "REVISION", "PLAN", "UPDATED", "DISPLAY NAME"}, rows)
}

// appGetCmd is `stoa app get`.
type appGetCmd struct {
	appFlags `embed:""`
	Config   bool `help:"Print only the text of the configuration, as it was sent, with its secrets masked."`
}

// Run prints the app and its configuration, in which secrets are masked.
func (cmd *appGetCmd) Run(ctx context.Context, c *console) error {
	if cmd.Config {
		return cmd.printConfig(ctx, c)
	}
	return cmd.callAPI(ctx, c, http.MethodGet, "", nil, func(answer json.RawMessage) error {
		var a appRecord
		if err := json.Unmarshal(answer, &a); err != nil {
			return fmt.Errorf("read the app: %w", err)
		}
		var labels []string
		for _, key := range slices.Sorted(maps.Keys(a.Labels)) {
			labels = append(labels, key+"="+a.Labels[key])
		}
		if err := c.printTable([]string{"name", a.Name}, [][]string{
			{"id", a.ID},
			{"display name", cmp.Or(a.DisplayName, "-")},
			{"status", a.Status},
			{"revision", strconv.FormatInt(a.Revision, 10)},
			{"etag", a.ETag},
			{"grants", cmp.Or(formatGrants(a.Grants), "-")},
			{"plan", cmp.Or(a.Plan, "-")},
			{"limits", fmt.Sprintf("weight %d, %d tasks at a time (0: any number), %d waiting",
				a.Limits.Weight, a.Limits.MaxConcurrentTasks, a.Limits.QueueDepth)},
			{"rates", cmp.Or(a.Limits.formatRates(), "-")},
			{"issuer", formatIssuer(a.Auth)},
			{"labels", cmp.Or(strings.Join(labels, ", "), "-")},
			{"created", a.CreatedAt},
			{"updated", a.UpdatedAt},
		}); err != nil {
			return err
		}
		c.printText("\n" + formatConfig(a.Config) + "\n")
		return nil
	})
}

// printConfig prints the text of the app's configuration.
func (cmd *appGetCmd) printConfig(ctx context.Context, c *console) error {
	api, err := cmd.newAdminClient()
	if err != nil {
		return err
	}
	resp, err := api.sendRequest(ctx, http.MethodGet, "/admin/apps/"+url.PathEscape(cmd.Name), "application/yaml", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes))
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	c.printText(string(text))
	return nil
}

// formatIssuer returns one line about the app's own issuer, whose tokens it accepts in addition to the server's; "-"
// without one.
func formatIssuer(auth map[string]any) string {
	if len(auth) == 0 {
		return "-"
	}
	return fmt.Sprintf("%v for %v, keys at %v", auth["issuer"], auth["audience"], auth["jwks_url"])
}

// readPages is readList for a list that has pages, with the largest size of a page.
func readPages(ctx context.Context, api *client, path, key string, query url.Values) (all []json.RawMessage, answer map[string]any, err error) {
	query.Set("page_size", "100")
	return readList(ctx, api, path, key, query)
}

// readList returns the entries of all pages of a list of the admin API, and the API's answer as if they were on one page. Each
// page has its entries under key and the token of the next page under next_page_token; other members are those of the first
// page. Query parameters without a value are not sent. A token that repeats ends the list, so that a faulty server cannot cause
// an endless loop.
func readList(ctx context.Context, api *client, path, key string, query url.Values) (all []json.RawMessage, answer map[string]any, err error) {
	for name := range query {
		if query.Get(name) == "" {
			query.Del(name)
		}
	}
	all = []json.RawMessage{}
	for {
		var page map[string]json.RawMessage
		if err := api.doJSON(ctx, http.MethodGet, strings.TrimSuffix(path+"?"+query.Encode(), "?"), nil, &page); err != nil {
			return nil, nil, err
		}
		if answer == nil {
			answer = map[string]any{}
			for name, member := range page {
				answer[name] = member
			}
		}
		var entries []json.RawMessage
		if raw, ok := page[key]; ok {
			if err := json.Unmarshal(raw, &entries); err != nil {
				return nil, nil, fmt.Errorf("read the list of %s: %w", key, err)
			}
		}
		all = append(all, entries...)
		var next string
		if raw, ok := page["next_page_token"]; ok {
			_ = json.Unmarshal(raw, &next) // not a string: the last page
		}
		if next == "" || next == query.Get("page_token") {
			answer[key] = all
			if _, has := answer["next_page_token"]; has {
				answer["next_page_token"] = ""
			}
			return all, answer, nil
		}
		query.Set("page_token", next)
	}
}

// formatConfig returns a configuration for display: YAML as it was given, an object as indented JSON.
func formatConfig(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return strings.TrimRight(text, "\n")
	}
	var indented bytes.Buffer
	if json.Indent(&indented, raw, "", "  ") != nil {
		return string(raw)
	}
	return indented.String()
}
