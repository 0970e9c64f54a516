package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"stoa/tenancy/audit"
)

// auditCmd is `stoa audit`: it reads the audit trail and verifies its hash chains. Its commands need the admin
// secret, except verifying a file.
type auditCmd struct {
	List   auditListCmd   `cmd:"" default:"withargs" help:"List the newest entries."`
	Export auditExportCmd `cmd:"" help:"Print the audit trail, a JSON object in each line."`
	Verify auditVerifyCmd `cmd:"" help:"Find entries that were changed, removed, inserted or moved."`
}

// auditFilter selects entries of the audit trail on the server.
type auditFilter struct {
	App    string `placeholder:"NAME" help:"Only of this app, by name or id."`
	Actor  string `placeholder:"NAME" help:"Only changes by this actor."`
	Action string `placeholder:"NAME" help:"Only this action, such as app.update, or all that begin with it, such as invoice."`
	Since  string `placeholder:"TIME" help:"Only from this time on, such as 2026-01-31T00:00:00Z."`
	Until  string `placeholder:"TIME" help:"Only before this time."`
}

// queryValues returns the fields that were given as a query of the admin API.
func (f auditFilter) queryValues() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"app": f.App, "actor": f.Actor, "action": f.Action, "since": f.Since, "until": f.Until} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// auditListCmd is `stoa audit list`, also `stoa audit`.
type auditListCmd struct {
	serverFlag  `embed:""`
	auditFilter `embed:""`
	JSON        bool `name:"json" help:"Print the API's answer as JSON."`
}

// Run prints one page of entries, the newest first.
func (cmd *auditListCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.newAdminClient()
	if err != nil {
		return err
	}
	var answer json.RawMessage
	if err := api.doJSON(ctx, http.MethodGet, "/admin/audit?"+cmd.queryValues().Encode(), nil, &answer); err != nil {
		return err
	}
	if cmd.JSON {
		return c.printJSON(answer)
	}
	var page struct {
		Entries []struct {
			At, Actor, Action, App, Client string
			Detail                         json.RawMessage
		}
	}
	if err := json.Unmarshal(answer, &page); err != nil {
		return fmt.Errorf("read the audit trail: %w", err)
	}
	rows := make([][]string, len(page.Entries))
	for i, e := range page.Entries {
		rows[i] = []string{e.At, e.Actor, e.Action, e.App, e.Client, string(e.Detail)}
	}
	return c.printTable([]string{"AT", "ACTOR", "ACTION", "APP", "CLIENT", "DETAIL"}, rows)
}

// auditExportCmd is `stoa audit export`.
type auditExportCmd struct {
	serverFlag  `embed:""`
	auditFilter `embed:""`
}

// Run prints the entries as the server sends them, one JSON object a line. The server ends a complete export with a
// line that has End set; without it the export is an error, because a connection that ends early looks like a shorter
// trail.
func (cmd *auditExportCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.newAdminClient()
	if err != nil {
		return err
	}
	complete := false
	err = streamExport(ctx, api, cmd.queryValues(), func(raw []byte, line audit.Line) error {
		complete = line.End != nil
		_, err := c.out.Write(append(raw, '\n'))
		return err
	})
	if err == nil && !complete {
		err = errors.New("the export was cut off: its last line is missing")
	}
	return err
}

// auditVerifyCmd is `stoa audit verify`.
type auditVerifyCmd struct {
	serverFlag `embed:""`
	App        string   `placeholder:"NAME" help:"Only the chains of this app, by name or id."`
	Contains   []string `placeholder:"HASH" help:"Heads that were printed before: each must still exist."`
	File       string   `arg:"" optional:"" help:"An export; - for standard input. Without it, the server is asked for one."`
}

// Run recomputes every hash of the exported trail and prints, for each chain, its last hash and its flaws. Any flaw
// is an error. --contains detects a chain that was cut off at its end, which hashes alone cannot show: the caller
// supplies hashes noted earlier.
func (cmd *auditVerifyCmd) Run(ctx context.Context, c *console) error {
	var rows [][]string
	flaws := int64(0)
	// report prints the flaws of one chain. It counts in flaws also those that the verifier did not list.
	report := func(v audit.Result, name string) {
		for _, f := range v.Flaws {
			where := name
			if f.Seq > 0 {
				where += fmt.Sprintf(", entry %d (%s)", f.Seq, f.ID)
			}
			c.printStatus("%s: %s", where, f.Text)
		}
		if v.OmittedFlaws > 0 {
			c.printStatus("%s: and %d more", name, v.OmittedFlaws)
		}
		flaws += int64(len(v.Flaws)) + v.OmittedFlaws
	}
	// The verifier reads line by line: a trail may be larger than memory.
	v := audit.Verifier{RequiredHashes: cmd.Contains, OnResult: func(v audit.Result) {
		name, state := formatChainName(v), "good"
		if len(v.Flaws) > 0 {
			state = "BAD"
		}
		report(v, name)
		rows = append(rows, []string{name, v.AppID, strconv.FormatInt(v.Entries, 10), state, v.Hash})
	}}
	err := cmd.readLines(ctx, c, func(_ []byte, line audit.Line) error {
		v.AddLine(line)
		return nil
	})
	if err != nil {
		return err
	}
	report(v.Close(), "the trail")
	if err := c.printTable([]string{"CHAIN", "APP ID", "ENTRIES", "STATE", "HEAD"}, rows); err != nil {
		return err
	}
	// Without this check a misspelled name would look like a verified trail.
	if cmd.App != "" && cmd.File == "" && len(rows) == 0 {
		return fmt.Errorf("there is no chain of an app %s", cmd.App)
	}
	if flaws > 0 {
		return fmt.Errorf("the audit trail is not as it was written: %d flaws", flaws)
	}
	return nil
}

// formatChainName returns how a chain is shown: by the app's last name, "(platform)" for the chain without an app, or
// "(no entries)".
func formatChainName(v audit.Result) string {
	switch {
	case v.AppID == "":
		return "(platform)"
	case v.App == "":
		return "(no entries)"
	}
	return v.App
}

// readLines calls use for each line of the export: from the server, from a file, or from standard input for "-".
func (cmd *auditVerifyCmd) readLines(ctx context.Context, c *console, use func(raw []byte, line audit.Line) error) error {
	switch cmd.File {
	case "":
		api, err := cmd.newAdminClient()
		if err != nil {
			return err
		}
		return streamExport(ctx, api, auditFilter{App: cmd.App}.queryValues(), use)
	case "-":
		return scanLines(c.in, use)
	}
	f, err := os.Open(cmd.File)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return scanLines(f, use)
}

// streamExport requests an export from the server and calls use for each line as it arrives.
func streamExport(ctx context.Context, api *client, q url.Values, use func(raw []byte, line audit.Line) error) error {
	resp, err := api.sendRequest(ctx, http.MethodGet, "/admin/audit/export?"+q.Encode(), "application/x-ndjson", nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return scanLines(resp.Body, use)
}

// maxLineBytes bounds one line of an export, in bytes; the buffer grows to it only if a line is that long.
const maxLineBytes = 4 << 20

// scanLines calls use for each line that is not empty. A line that is not JSON is an error with the line's number.
func scanLines(from io.Reader, use func(raw []byte, line audit.Line) error) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLineBytes)
	for n := 1; lines.Scan(); n++ {
		raw := bytes.TrimSpace(lines.Bytes())
		if len(raw) == 0 {
			continue
		}
		var line audit.Line
		if err := json.Unmarshal(raw, &line); err != nil {
			return fmt.Errorf("line %d is not a line of an export: %w", n, err)
		}
		if err := use(raw, line); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the export: %w", err)
	}
	return nil
}
