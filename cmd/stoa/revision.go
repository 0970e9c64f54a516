package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// appRevisionsCmd is `stoa app revisions`.
type appRevisionsCmd struct {
	appFlags `embed:""`
}

// Run prints the app's revisions and marks the current one.
func (cmd *appRevisionsCmd) Run(ctx context.Context, c *console) error {
	return cmd.callAPI(ctx, c, http.MethodGet, "/revisions", nil, func(answer json.RawMessage) error {
		var list struct {
			Revisions []struct {
				Revision  int64  `json:"revision"`
				Actor     string `json:"actor"`
				CreatedAt string `json:"created_at"`
				Current   bool   `json:"current"`
			} `json:"revisions"`
		}
		if err := json.Unmarshal(answer, &list); err != nil {
			return fmt.Errorf("read the list of revisions: %w", err)
		}
		rows := make([][]string, len(list.Revisions))
		for i, r := range list.Revisions {
			mark := ""
			if r.Current {
				mark = "current"
			}
			rows[i] = []string{strconv.FormatInt(r.Revision, 10), r.CreatedAt, r.Actor, mark}
		}
		return c.printTable([]string{"REVISION", "CREATED", "BY", ""}, rows)
	})
}

// appRestoreCmd is `stoa app restore`.
type appRestoreCmd struct {
	appFlags `embed:""`
	Revision int64 `arg:"" help:"The revision whose configuration to restore."`
	DryRun   bool  `help:"Only check: change nothing."`
}

// Run copies the configuration of an earlier revision into a new revision, which becomes the current one.
func (cmd *appRestoreCmd) Run(ctx context.Context, c *console) error {
	subpath, verb := fmt.Sprintf("/revisions/%d:restore", cmd.Revision), "restored"
	if cmd.DryRun {
		subpath, verb = subpath+"?dry_run=true", "would be restored"
	}
	return cmd.callAPI(ctx, c, http.MethodPost, subpath, nil, cmd.newAppPrinter(c, fmt.Sprintf("%s from revision %d", verb, cmd.Revision)))
}
