package main

import (
	"context"
	"net/http"
	"net/url"
)

// appSuspendCmd is `stoa app suspend`.
type appSuspendCmd struct {
	appFlags `embed:""`
	Reason   string `placeholder:"TEXT" help:"Why, for the audit log."`
}

// Run suspends the app: its calls are refused and its runs stop until it is resumed.
func (cmd *appSuspendCmd) Run(ctx context.Context, c *console) error {
	return cmd.callAPI(ctx, c, http.MethodPost, ":suspend", newReasonBody(cmd.Reason), cmd.newAppPrinter(c, "suspended"))
}

// appResumeCmd is `stoa app resume`.
type appResumeCmd struct {
	appFlags `embed:""`
	Reason   string `placeholder:"TEXT" help:"Why, for the audit log."`
}

// Run ends the suspension of the app. Its postponed runs continue.
func (cmd *appResumeCmd) Run(ctx context.Context, c *console) error {
	return cmd.callAPI(ctx, c, http.MethodPost, ":resume", newReasonBody(cmd.Reason), cmd.newAppPrinter(c, "resumed"))
}

// appDeleteCmd is `stoa app delete`.
type appDeleteCmd struct {
	serverFlag  `embed:""`
	confirmFlag `embed:""`
	Name        string `arg:"" help:"The app's name."`
	Moved       bool   `help:"The app was imported into another installation: its accounts are not settled here, and its vector stores stay."`
}

// Run deletes the app with every row, secret and key it owns. At a terminal the user must type the name again, because
// nothing can be restored.
func (cmd *appDeleteCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.newAdminClient()
	if err != nil {
		return err
	}
	if err := cmd.confirm(c, "delete the app "+cmd.Name+" with everything it owns", func() bool {
		typed, _ := c.promptLine(ctx, "This cannot be undone. Type the app's name to delete it: ", false)
		return typed == cmd.Name
	}); err != nil {
		return err
	}
	query := ""
	if cmd.Moved {
		query = "?moved=true"
	}
	if err := api.doJSON(ctx, http.MethodDelete, "/admin/apps/"+url.PathEscape(cmd.Name)+query, nil, nil); err != nil {
		return err
	}
	c.printStatus("%s deleted", cmd.Name)
	return nil
}

// newReasonBody returns the request body with the reason for the audit log, without the field if why is "".
func newReasonBody(why string) map[string]string {
	if why == "" {
		return map[string]string{}
	}
	return map[string]string{"reason": why}
}
