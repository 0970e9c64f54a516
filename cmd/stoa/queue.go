package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// queueCmd is `stoa queue`: it shows the runs that wait for a worker and the dead letters, and requeues them. Its
// commands need the admin secret.
type queueCmd struct {
	List    queueListCmd    `cmd:"" default:"withargs" help:"Show how many runs wait, run, need input and failed, by app."`
	Dead    queueDeadCmd    `cmd:"" help:"List the dead letters: runs that failed for good, and why."`
	Requeue queueRequeueCmd `cmd:"" help:"Start new tasks that continue where dead letters ended."`
}

// queueListCmd is `stoa queue list`, also `stoa queue`.
type queueListCmd struct {
	serverFlag `embed:""`
	JSON       bool `name:"json" help:"Print the API's answer as JSON."`
}

// Run prints the numbers of runs by state, and the apps with pending or running runs.
func (cmd *queueListCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.newAdminClient()
	if err != nil {
		return err
	}
	var answer json.RawMessage
	if err := api.doJSON(ctx, http.MethodGet, "/admin/queue", nil, &answer); err != nil {
		return err
	}
	if cmd.JSON {
		return c.printJSON(answer)
	}
	var q struct {
		Pending, Running, Completed, Failed int64

		InputRequired int64   `json:"input_required"`
		Oldest        float64 `json:"oldest_pending_seconds"`
		Apps          []struct {
			App              string
			Pending, Running int64
		}
	}
	if err := json.Unmarshal(answer, &q); err != nil {
		return fmt.Errorf("read the queue: %w", err)
	}
	c.printText(fmt.Sprintf("pending %d (the oldest for %.0f s), running %d, waiting for somebody %d, failed %d, completed %d\n",
		q.Pending, q.Oldest, q.Running, q.InputRequired, q.Failed, q.Completed))
	if len(q.Apps) == 0 {
		return nil
	}
	rows := make([][]string, len(q.Apps))
	for i, a := range q.Apps {
		rows[i] = []string{a.App, strconv.FormatInt(a.Pending, 10), strconv.FormatInt(a.Running, 10)}
	}
	c.printText("\n")
	return c.printTable([]string{"APP", "PENDING", "RUNNING"}, rows)
}

// selector is a flag that narrows what a command does. An empty value, such as that of a variable that is not set, is
// refused: the command would do it to everything.
type selector string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *selector) UnmarshalText(text []byte) error {
	if *s = selector(text); *s == "" {
		return errors.New("is empty; leave it out to select all")
	}
	return nil
}

// deadFilter selects dead letters. The server combines the given fields with AND; an empty filter selects all.
type deadFilter struct {
	App   selector `json:"app,omitempty" placeholder:"NAME" help:"Only of this app."`
	Agent selector `json:"agent,omitempty" placeholder:"NAME" help:"Only of this agent."`
	Error selector `json:"error,omitempty" placeholder:"TEXT" help:"Only those whose error contains this text."`
}

// queueDeadCmd is `stoa queue dead`.
type queueDeadCmd struct {
	serverFlag `embed:""`
	deadFilter `embed:""`
	JSON       bool `name:"json" help:"Print the API's answer as JSON."`
}

// Run lists the selected dead letters of all pages.
func (cmd *queueDeadCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.newAdminClient()
	if err != nil {
		return err
	}
	all, answer, err := readPages(ctx, api, "/admin/queue/dead", "runs", url.Values{"app": {string(cmd.App)}, "agent": {string(cmd.Agent)}, "error": {string(cmd.Error)}})
	if err != nil {
		return err
	}
	if cmd.JSON {
		return c.printJSON(answer)
	}
	rows := make([][]string, len(all))
	for i, raw := range all {
		var d struct {
			ID, App, Agent string
			Attempts       int64
			LastError      string `json:"last_error"`
			FailedAt       string `json:"failed_at"`
		}
		if err := json.Unmarshal(raw, &d); err != nil {
			return fmt.Errorf("read the dead letters: %w", err)
		}
		rows[i] = []string{d.ID, d.App, d.Agent, strconv.FormatInt(d.Attempts, 10), d.FailedAt, d.LastError}
	}
	return c.printTable([]string{"ID", "APP", "AGENT", "ATTEMPTS", "FAILED", "ERROR"}, rows)
}

// queueRequeueCmd is `stoa queue requeue`.
type queueRequeueCmd struct {
	serverFlag `embed:""`
	deadFilter `embed:""`
	ID         []string `arg:"" optional:"" help:"Dead letters by their ids."`
	All        bool     `help:"All dead letters, or all that match the filters."`
}

// Run requeues the named dead letters, or those that the filter selects. It refuses to requeue everything unless
// --all is given. Each dead letter continues as a new task.
func (cmd *queueRequeueCmd) Run(ctx context.Context, c *console) error {
	filtered := cmd.deadFilter != deadFilter{}
	// Exactly one of the two ways to select: ids, or a filter (possibly --all).
	if (len(cmd.ID) > 0) == (cmd.All || filtered) {
		return &exitError{code: exitUsage, cause: errors.New("name dead letters, or choose them with --app, --agent and --error, or take --all")}
	}
	api, err := cmd.newAdminClient()
	if err != nil {
		return err
	}
	for _, id := range cmd.ID {
		var next struct {
			TaskID string `json:"task_id"`
		}
		if err := api.doJSON(ctx, http.MethodPost, "/admin/queue/dead/"+url.PathEscape(id)+":requeue", map[string]any{}, &next); err != nil {
			return fmt.Errorf("requeue %s: %w", id, err)
		}
		c.printStatus("%s goes on as task %s", id, next.TaskID)
	}
	if len(cmd.ID) > 0 {
		return nil
	}
	// The filter is sent again in each request: the requeued ones no longer match it.
	// The server requeues a bounded number for each request and returns how many remain.
	for total := 0; ; {
		var did struct{ Requeued, Remaining int }
		if err := api.doJSON(ctx, http.MethodPost, "/admin/queue/dead:requeue", cmd.deadFilter, &did); err != nil {
			return err
		}
		// Nothing requeued although some remain means that the rest cannot be requeued: stop instead of looping.
		if total += did.Requeued; did.Requeued == 0 || did.Remaining == 0 {
			c.printStatus("%d requeued, %d remaining", total, did.Remaining)
			return nil
		}
	}
}
