package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

type appRevisionsCmd struct {
	appFlags `embed:""`
}

// Run lists the app's revisions.
func (cmd *appRevisionsCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.admin()
	if err != nil {
		return err
	}
	all, err := pages(ctx, api, "/admin/apps/"+url.PathEscape(cmd.Name)+"/revisions", "revisions", url.Values{})
	if err != nil {
		return err
	}
	if cmd.JSON {
		return c.json(map[string]any{"revisions": all})
	}
	rows := make([][]string, len(all))
	for i, raw := range all {
		var r struct {
			Revision  int64  `json:"revision"`
			Actor     string `json:"actor"`
			CreatedAt string `json:"created_at"`
			Current   bool   `json:"current"`
		}
		if err := json.Unmarshal(raw, &r); err != nil {
			return fmt.Errorf("read the list of revisions: %w", err)
		}
		mark := ""
		if r.Current {
			mark = "current"
		}
		rows[i] = []string{strconv.FormatInt(r.Revision, 10), r.CreatedAt, r.Actor, mark}
	}
	return c.table([]string{"REVISION", "CREATED", "BY", ""}, rows)
}

type appRestoreCmd struct {
	appFlags `embed:""`
	Revision int64 `arg:"" help:"The revision whose configuration to restore."`
}

// Run makes the configuration of an earlier revision the current one, as a new revision.
func (cmd *appRestoreCmd) Run(ctx context.Context, c *console) error {
	below := fmt.Sprintf("/revisions/%d:restore", cmd.Revision)
	return cmd.call(ctx, c, http.MethodPost, below, nil, cmd.shows(c, fmt.Sprintf("restored from revision %d", cmd.Revision)))
}
