package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"stoa/agentsvc/config/document"
	"stoa/tenancy/grant"
)

// appSettings are the settings of an app that create and update share. What was not given is nil or "" and stays as
// it is.
type appSettings struct {
	Config      string   `placeholder:"FILE" help:"The configuration, or - to read it from standard input."`
	Secret      []string `sep:"none" placeholder:"NAME=VALUE" help:"A secret that the configuration uses as $${NAME}; NAME alone takes the value from the environment. Repeatable."`
	Grant       []string `placeholder:"GRANT" help:"A power of the host that the configuration may use: command=FOLDER, filesystem=FOLDER, stdio, private_network, sqlite, operator_models. Repeatable, also with several folders; \"\" removes all."`
	Plan        *string  `help:"The plan the app is billed by."`
	Weight      *int64   `placeholder:"N" help:"Runs that the app gets in each turn of the queue (1)."`
	MaxTasks    *int64   `name:"max-concurrent-tasks" placeholder:"N" help:"The app's tasks at work at a time; 0 for any number."`
	QueueDepth  *int64   `placeholder:"N" help:"The app's tasks that may wait for a worker (10000)."`
	Rate        []string `sep:"none" placeholder:"RATE" help:"A limit of the app's callers: app, key, agent or agent/NAME, then count or token, a window and a number, such as app:count:minute=100. Those given replace all limits. Repeatable; \"\" removes all."`
	Label       []string `sep:"none" placeholder:"KEY=VALUE" help:"A label. Repeatable; labels that are not given stay, \"\" alone removes all."`
	Auth        []string `sep:"none" placeholder:"KEY=VALUE" help:"A field of an issuer of the app's own: issuer, jwks_url, audience, client_id, refresh_interval, require_tenant_id. Repeatable; fields that are not given stay, \"\" alone removes the issuer."`
	DisplayName *string  `placeholder:"TEXT" help:"The name shown to people."`
	DryRun      bool     `help:"Only check: change nothing."`
}

// newBody returns the request body of the admin API with the settings that were given. It reads the configuration's
// file. A list with the only element "" was given to remove all.
func (s *appSettings) newBody(c *console) (map[string]any, error) {
	for name, given := range map[string][]string{"--label": s.Label, "--auth": s.Auth} {
		if len(given) > 1 && slices.Contains(given, "") {
			return nil, &exitError{code: exitUsage, cause: fmt.Errorf(`%s "" removes all and stands alone: add others with a second call`, name)}
		}
	}
	// The API distinguishes an absent member (unchanged) from an empty one (removed), so that only what was given is
	// set.
	body := map[string]any{}
	if s.Config != "" {
		content, err := c.readInput(s.Config)
		if err != nil {
			return nil, err
		}
		body["config"] = content
	}
	if s.Secret != nil {
		// A name without a value is read from the environment, so that the secret is not on the command line.
		secrets, err := parsePairs("--secret", s.Secret, os.LookupEnv)
		if err != nil {
			return nil, err
		}
		body["secrets"] = secrets
	}
	if s.Label != nil {
		labels, err := parsePairs("--label", s.Label, nil)
		if err != nil {
			return nil, err
		}
		if body["labels"] = labels; len(labels) == 0 {
			body["labels"] = nil // in a merge patch an empty object changes nothing
		}
	}
	if s.Auth != nil {
		auth, err := parsePairs("--auth", s.Auth, nil)
		if err != nil {
			return nil, err
		}
		body["auth"] = parseIssuer(auth)
	}
	if s.Grant != nil {
		body["grants"] = grant.ParseList(withoutEmpty(s.Grant))
	}
	if s.Plan != nil {
		body["plan"] = *s.Plan
	}
	limits := map[string]any{}
	// A pointer distinguishes 0 (unlimited) from a flag that was not given.
	for name, n := range map[string]*int64{"weight": s.Weight, "max_concurrent_tasks": s.MaxTasks, "queue_depth": s.QueueDepth} {
		if n != nil {
			limits[name] = *n
		}
	}
	if s.Rate != nil {
		rates, err := parseRates(withoutEmpty(s.Rate))
		if err != nil {
			return nil, err
		}
		limits["rate"] = rates
	}
	if len(limits) > 0 {
		body["limits"] = limits
	}
	if s.DisplayName != nil {
		body["display_name"] = *s.DisplayName
	}
	return body, nil
}

// parseIssuer returns the JSON object of an issuer, nil if there are no fields, which removes the app's issuer.
func parseIssuer(fields map[string]string) map[string]any {
	if len(fields) == 0 {
		return nil
	}
	auth := map[string]any{}
	for key, value := range fields {
		if auth[key] = value; key == "require_tenant_id" {
			auth[key] = value == "true"
		}
	}
	return auth
}

// dryRunQuery returns the query that makes the server check the request and change nothing.
func (s *appSettings) dryRunQuery() string {
	if s.DryRun {
		return "?dry_run=true"
	}
	return ""
}

// describeResult returns verb, or "would be" and verb for a dry run.
func (s *appSettings) describeResult(verb string) string {
	if s.DryRun {
		return "would be " + verb
	}
	return verb
}

// explainProblems prints the configuration's errors from a response with their lines in the file, as stoa validate
// does. Any other error is returned as it is.
func (s *appSettings) explainProblems(c *console, err error) error {
	// The response has the problems with positions in the text that newBody sent, which is the file.
	var refused *apiError
	if !errors.As(err, &refused) || len(refused.Problems) == 0 {
		return err
	}
	return c.printProblems(&document.Error{File: s.Config, Problems: refused.Problems})
}

// appCreateCmd is `stoa app create`.
type appCreateCmd struct {
	appFlags    `embed:""`
	appSettings `embed:""`
}

// Run creates the app, or prints every error of its configuration.
func (cmd *appCreateCmd) Run(ctx context.Context, c *console) error {
	if cmd.Config == "" {
		return &exitError{code: exitUsage, cause: errors.New("an app needs --config FILE (see stoa app create --help)")}
	}
	body, err := cmd.newBody(c)
	if err != nil {
		return err
	}
	body["name"] = cmd.Name
	api, err := cmd.newAdminClient()
	if err != nil {
		return err
	}
	var answer json.RawMessage
	if err := api.doJSON(ctx, http.MethodPost, "/admin/apps"+cmd.dryRunQuery(), body, &answer); err != nil {
		return cmd.explainProblems(c, err)
	}
	if cmd.JSON {
		return c.printJSON(answer)
	}
	return cmd.newAppPrinter(c, cmd.describeResult("created"))(answer)
}

// appUpdateCmd is `stoa app update`.
type appUpdateCmd struct {
	appFlags    `embed:""`
	appSettings `embed:""`
	IfMatch     string `placeholder:"ETAG" help:"Change nothing unless the app still has this ETag, as app get shows it."`
}

// Run changes the settings that were given, as a merge patch. --if-match becomes an If-Match header, so that an update
// made meanwhile is not overwritten.
func (cmd *appUpdateCmd) Run(ctx context.Context, c *console) error {
	body, err := cmd.newBody(c)
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return &exitError{code: exitUsage, cause: errors.New("nothing to change (see stoa app update --help)")}
	}
	api, err := cmd.newAdminClient()
	if err != nil {
		return err
	}
	if cmd.IfMatch != "" {
		// An ETag is quoted (RFC 9110, 8.8.3), and a shell removes quotes.
		api.header.Set("If-Match", strconv.Quote(strings.Trim(cmd.IfMatch, `"`)))
	}
	var answer json.RawMessage
	if err := api.doJSON(ctx, http.MethodPatch, "/admin/apps/"+url.PathEscape(cmd.Name)+cmd.dryRunQuery(), body, &answer); err != nil {
		return cmd.explainProblems(c, err)
	}
	if cmd.JSON {
		return c.printJSON(answer)
	}
	return cmd.newAppPrinter(c, cmd.describeResult("updated"))(answer)
}

// parsePairs parses NAME=VALUE arguments. A name without a value takes it from lookup, unless lookup is nil; an empty
// argument is skipped. flag is the name for error messages.
func parsePairs(flag string, args []string, lookup func(string) (string, bool)) (map[string]string, error) {
	found := map[string]string{}
	for _, arg := range withoutEmpty(args) {
		name, value, ok := strings.Cut(arg, "=")
		if !ok && lookup != nil {
			if value, ok = lookup(name); !ok {
				return nil, &exitError{code: exitUsage, cause: fmt.Errorf("%s %s: no such variable in the environment", flag, name)}
			}
		}
		if !ok || name == "" {
			return nil, &exitError{code: exitUsage, cause: fmt.Errorf("%s takes NAME=VALUE, it is %q", flag, arg)}
		}
		found[name] = value
	}
	return found, nil
}

// formatGrants returns grants in the syntax of --grant, separated by commas.
func formatGrants(list grant.List) string {
	words := make([]string, len(list))
	for i, g := range list {
		words[i] = g.String()
	}
	return strings.Join(words, ", ")
}

// withoutEmpty returns args without empty strings, never nil: an empty list removes all entries, nil would leave
// them.
func withoutEmpty(args []string) []string {
	kept := []string{}
	for _, arg := range args {
		if arg != "" {
			kept = append(kept, arg)
		}
	}
	return kept
}
