package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"stoa/authz"
)

// taskCmd is `stoa task`: the tasks of an app, as far as the caller's token reaches.
type taskCmd struct {
	List    taskListCmd    `cmd:"" help:"List tasks, the newest first."`
	Get     taskGetCmd     `cmd:"" help:"Show a task with its messages and what it waits for."`
	Log     taskLogCmd     `cmd:"" help:"Show the log of a task: its steps in order, with what each model call used."`
	Cancel  taskCancelCmd  `cmd:"" help:"Cancel a task."`
	Approve taskApproveCmd `cmd:"" help:"Approve the tool calls that a task waits with."`
	Reject  taskRejectCmd  `cmd:"" help:"Reject the tool calls that a task waits with, which ends the task."`
}

// taskRecord is a task in the JSON of the API.
type taskRecord struct {
	TaskID      string          `json:"task_id"`
	ContextID   string          `json:"context_id"`
	Agent       string          `json:"agent"`
	Status      datedStatus     `json:"status"`
	History     []roledMessage  `json:"history"`
	Artifacts   []artifact      `json:"artifacts"`
	Approvals   []approval      `json:"approvals"`
	Credentials []credential    `json:"credentials"`
	raw         json.RawMessage // the answer that has the task
}

// datedStatus is a status with the time from which on the task has it.
type datedStatus struct {
	status
	Timestamp string `json:"timestamp"`
}

// roledMessage is a message of a user or an agent.
type roledMessage struct {
	message
	Role string `json:"role"`
}

// describeRequests returns in one line what the task waits for, "" if for nothing.
func (t *taskRecord) describeRequests() string {
	var out []string
	for _, a := range t.Approvals {
		out = append(out, a.describe())
	}
	for _, w := range t.Credentials {
		out = append(out, fmt.Sprintf("a credential for %s at %s", w.Tool, w.Server))
	}
	if len(out) == 0 && t.Status.State == "input_required" {
		out = append(out, t.Status.Message.joinText())
	}
	return strings.Join(strings.Fields(strings.Join(out, ", ")), " ")
}

// taskFlags are the arguments of the commands about one task.
type taskFlags struct {
	tenantFlags `embed:""`
	ID          string `arg:"" help:"The task's id."`
	JSON        bool   `name:"json" help:"Print the API's answer as JSON."`
}

// readTask sends one request to subpath of the task and returns the task of the answer.
func (f *taskFlags) readTask(ctx context.Context, api *client, method, subpath string, body any) (*taskRecord, error) {
	t := &taskRecord{}
	if err := api.doJSON(ctx, method, f.taskPath(f.ID)+subpath, body, &t.raw); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(t.raw, t); err != nil {
		return nil, fmt.Errorf("read the task: %w", err)
	}
	return t, nil
}

// printResult prints the answer with --json, else a line with the task's state.
func (f *taskFlags) printResult(c *console, t *taskRecord) error {
	if f.JSON {
		return c.printJSON(t.raw)
	}
	c.printStatus("task %s is %s", t.TaskID, t.Status.State)
	return nil
}

// taskListCmd is `stoa task list`.
type taskListCmd struct {
	tenantFlags `embed:""`
	Agent       string `placeholder:"NAME" help:"Only of this agent."`
	State       string `placeholder:"STATE" help:"Only in this state: submitted, working, input_required, auth_required, completed, failed, cancelled or rejected."`
	Context     string `placeholder:"ID" help:"Only of this conversation."`
	Since       string `placeholder:"TIME" help:"Only those opened from this time or day on, such as 2026-11-01."`
	Until       string `placeholder:"TIME" help:"Only those opened before this time or day."`
	Text        string `placeholder:"TEXT" help:"Only those with this text in their first or last message."`
	Limit       int    `placeholder:"N" help:"At most so many tasks, up to 100 (50)."`
	Cursor      string `placeholder:"TOKEN" help:"Continue a list after the page that ended with this token."`
	JSON        bool   `name:"json" help:"Print the API's answer as JSON."`
}

// Run prints one page of tasks, and how to get the next one.
func (cmd *taskListCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.newTenantClient()
	if err != nil {
		return err
	}
	query := url.Values{}
	for name, value := range map[string]string{
		"agent": cmd.Agent, "status": cmd.State, "context_id": cmd.Context, "since": cmd.Since, "until": cmd.Until, "text": cmd.Text, "page_token": cmd.Cursor, "page_size": strconv.Itoa(cmd.Limit),
	} {
		if value != "" && value != "0" {
			query.Set(name, value)
		}
	}
	var answer json.RawMessage
	if err := api.doJSON(ctx, http.MethodGet, strings.TrimSuffix(cmd.appPath("/tasks")+"?"+query.Encode(), "?"), nil, &answer); err != nil {
		return err
	}
	if cmd.JSON {
		return c.printJSON(answer)
	}
	var page struct {
		Tasks []taskRecord
		Next  string `json:"next_page_token"`
	}
	if err := json.Unmarshal(answer, &page); err != nil {
		return fmt.Errorf("read the list of tasks: %w", err)
	}
	rows := make([][]string, len(page.Tasks))
	for i, t := range page.Tasks {
		rows[i] = []string{t.TaskID, t.Agent, t.Status.State, t.Status.Timestamp, t.ContextID, t.describeRequests()}
	}
	if err := c.printTable([]string{"ID", "AGENT", "STATE", "SINCE", "CONTEXT", "WAITS FOR"}, rows); err != nil {
		return err
	}
	c.printNextPage(page.Next)
	return nil
}

// taskGetCmd is `stoa task get`.
type taskGetCmd struct {
	taskFlags `embed:""`
}

// Help returns the text about exit codes that kong appends to --help.
func (cmd *taskGetCmd) Help() string {
	return "Exit codes are those of stoa call: 0 the task completed or is at work, 1 it failed or could not be read, " +
		"3 it was rejected or cancelled, 4 it waits for an answer, an approval or a credential."
}

// Run prints the task. Its state sets the exit code.
func (cmd *taskGetCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.newTenantClient()
	if err != nil {
		return err
	}
	t, err := cmd.readTask(ctx, api, http.MethodGet, "", nil)
	if err != nil {
		return err
	}
	if cmd.JSON {
		err = c.printJSON(t.raw)
	} else {
		err = t.print(c)
	}
	return cmp.Or(err, exitOfState(t.Status.State))
}

// exitOfState returns the error that sets the exit code for the state of a task, nil for one that has completed or is at
// work.
func exitOfState(state string) error {
	switch state {
	case "failed":
		return &exitError{code: exitFailed}
	case "rejected", "cancelled":
		return &exitError{code: exitRejected}
	case "input_required", "auth_required":
		return &exitError{code: exitWaiting}
	}
	return nil
}

// print writes the task, its messages and the names of its artifacts.
func (t *taskRecord) print(c *console) error {
	rows := [][]string{{"agent", t.Agent}, {"context", t.ContextID}, {"state", t.Status.State}, {"since", t.Status.Timestamp}}
	if waits := t.describeRequests(); waits != "" {
		rows = append(rows, []string{"waits for", waits})
	}
	for _, a := range t.Artifacts {
		rows = append(rows, []string{"artifact", cmp.Or(a.Name, a.ID)})
	}
	if err := c.printTable([]string{"id", t.TaskID}, rows); err != nil {
		return err
	}
	for _, m := range t.History {
		if text := m.joinText(); text != "" {
			c.printText("\n" + m.Role + ": " + strings.TrimRight(text, "\n") + "\n")
		}
		for _, call := range m.ToolCalls {
			c.printText("\n> " + call.Function.Name + "(" + call.Function.Arguments + ")\n")
		}
	}
	return nil
}

// taskCancelCmd is `stoa task cancel`.
type taskCancelCmd struct {
	taskFlags `embed:""`
}

// Run cancels the task.
func (cmd *taskCancelCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.newTenantClient()
	if err != nil {
		return err
	}
	t, err := cmd.readTask(ctx, api, http.MethodPost, "/cancel", nil)
	if err != nil {
		return err
	}
	return cmd.printResult(c, t)
}

// decisionFlags are the arguments of approve and reject.
type decisionFlags struct {
	taskFlags   `embed:""`
	confirmFlag `embed:""`
	Call        string `placeholder:"ID" help:"Only this call, of several that wait."`
}

// taskApproveCmd is `stoa task approve`.
type taskApproveCmd struct {
	decisionFlags `embed:""`
}

// Run approves the calls that wait, each after the human at the terminal has confirmed it. The task continues with the
// last one.
func (cmd *taskApproveCmd) Run(ctx context.Context, c *console) error {
	return cmd.decide(ctx, c, "approve", "", false)
}

// taskRejectCmd is `stoa task reject`.
type taskRejectCmd struct {
	decisionFlags `embed:""`
	Reason        string `placeholder:"TEXT" help:"Why, for the task's log."`
}

// Run rejects one call after the human at the terminal has confirmed it: one rejection ends the task.
func (cmd *taskRejectCmd) Run(ctx context.Context, c *console) error {
	return cmd.decide(ctx, c, "reject", cmd.Reason, true)
}

// decide shows the calls that wait and sends a decision for each, for the first only if one decides about the task.
func (f *decisionFlags) decide(ctx context.Context, c *console, verb, comment string, one bool) error {
	api, err := f.newTenantClient(authz.TasksRead)
	if err != nil {
		return err
	}
	t, err := f.readTask(ctx, api, http.MethodGet, "", nil)
	if err != nil {
		return err
	}
	waiting, err := t.selectApprovals(f.Call)
	if err != nil {
		return err
	}
	for _, a := range waiting {
		if a.Prompt != "" {
			c.printStatus("%s", a.Prompt)
		}
		c.printStatus("%s", a.describe())
		if err := f.confirmYes(ctx, c, verb+" this call"); err != nil {
			return err
		}
		body := map[string]string{"call_id": a.CallID}
		if comment != "" {
			body["comment"] = comment
		}
		if t, err = f.readTask(ctx, api, http.MethodPost, "/"+verb, body); err != nil {
			return err
		}
		if one {
			break
		}
	}
	return f.printResult(c, t)
}

// selectApprovals returns the calls that wait for a decision, or the one with an id that is not "".
func (t *taskRecord) selectApprovals(id string) ([]approval, error) {
	for _, a := range t.Approvals {
		if a.CallID == id {
			return []approval{a}, nil
		}
	}
	switch {
	case len(t.Approvals) == 0:
		return nil, fmt.Errorf("task %s waits for no decision: it is %s", t.TaskID, t.Status.State)
	case id != "":
		return nil, fmt.Errorf("task %s has no call %s that waits for a decision (stoa task get %s --json lists those that do)", t.TaskID, id, quoteWord(t.TaskID))
	}
	return t.Approvals, nil
}
