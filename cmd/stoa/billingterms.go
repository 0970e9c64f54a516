package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The commands of this file manage what usage costs and may cost: price books, plans and budgets. What is added is a JSON
// object in a file, as the admin API takes it.

// billingPriceCmd is `stoa billing price`.
type billingPriceCmd struct {
	List   priceListCmd   `cmd:"" default:"withargs" help:"List the price books."`
	Get    priceGetCmd    `cmd:"" help:"Show the prices of a book."`
	Add    priceAddCmd    `cmd:"" help:"Add a price book from a JSON file."`
	Delete priceDeleteCmd `cmd:"" help:"Withdraw a price book that is not in force yet."`
}

// priceListCmd is `stoa billing price list`.
type priceListCmd struct {
	billingFlags `embed:""`
}

// Run prints the price books.
func (cmd *priceListCmd) Run(ctx context.Context, c *console) error {
	return cmd.listBilling(ctx, c, "/admin/prices", "prices", url.Values{}, []column{{"VERSION", "version"}, {"CURRENCY", "currency"}, {"FROM", "effective_from"}, {"CREATED", "created_at"}})
}

// priceGetCmd is `stoa billing price get`.
type priceGetCmd struct {
	billingFlags `embed:""`
	Version      string `arg:"" help:"The book's version."`
}

// Run prints the items of a price book.
func (cmd *priceGetCmd) Run(ctx context.Context, c *console) error {
	return cmd.callBilling(ctx, c, http.MethodGet, "/admin/prices/"+url.PathEscape(cmd.Version), nil, func(answer map[string]any) error {
		items, _ := answer["items"].([]any)
		return c.printColumns([]column{{"KIND", "kind"}, {"METER", "meter"}, {"PROVIDER", "provider"}, {"MODEL", "model"}, {"AMOUNT", "amount_decimal"}, {"PER", "per"}}, items)
	})
}

// fileFlags are the arguments of the commands that send a file.
type fileFlags struct {
	billingFlags `embed:""`
	File         string `arg:"" help:"A file with a JSON object, - for standard input."`
}

// sendFile sends the file and reports the member name of the answer.
func (f *fileFlags) sendFile(ctx context.Context, c *console, method, path, name, did string) error {
	body, err := c.readObject(f.File)
	if err != nil {
		return err
	}
	return f.sendBody(ctx, c, method, path, body, name, did)
}

// sendBody sends body and reports the member name of the answer, with its amount of money: one that was given in the
// wrong unit is then seen at once.
func (f *billingFlags) sendBody(ctx context.Context, c *console, method, path string, body any, name, did string) error {
	return f.callBilling(ctx, c, method, path, body, func(answer map[string]any) error {
		line := formatMember(answer, name) + " " + did
		for _, member := range []string{"amount_decimal", "base_fee_decimal"} {
			if money, ok := answer[member].(string); ok && answer["currency"] != "" {
				line += fmt.Sprintf(", %s %s %s", strings.ReplaceAll(strings.TrimSuffix(member, "_decimal"), "_", " "), money, answer["currency"])
			}
		}
		c.printStatus("%s", line)
		warnings, _ := answer["warnings"].([]any)
		for _, w := range warnings {
			c.printStatus("warning: %v", w)
		}
		return nil
	})
}

// deletionFlags are the flags of the commands that delete something of billing.
type deletionFlags struct {
	billingFlags `embed:""`
	confirmFlag  `embed:""`
}

// deleteBilling asks for action, deletes what a path names and reports name.
func (f *deletionFlags) deleteBilling(ctx context.Context, c *console, action, path, name, did string) error {
	if err := f.confirmYes(ctx, c, action); err != nil {
		return err
	}
	return f.callBilling(ctx, c, http.MethodDelete, path, nil, func(map[string]any) error {
		c.printStatus("%s "+did, name)
		return nil
	})
}

// priceAddCmd is `stoa billing price add`.
type priceAddCmd struct {
	fileFlags `embed:""`
}

// Run adds a price book and reports from when on it is in force.
func (cmd *priceAddCmd) Run(ctx context.Context, c *console) error {
	body, err := c.readObject(cmd.File)
	if err != nil {
		return err
	}
	return cmd.callBilling(ctx, c, http.MethodPost, "/admin/prices", body, func(answer map[string]any) error {
		version, from := formatMember(answer, "version"), formatMember(answer, "effective_from")
		if at, err := time.Parse(time.RFC3339, from); err == nil && !at.After(time.Now()) {
			c.printStatus("%s added, in force since %s: usage after that time which is recorded from now on has its prices", version, from)
		} else {
			c.printStatus("%s added, in force from %s", version, from)
		}
		return nil
	})
}

// priceDeleteCmd is `stoa billing price delete`.
type priceDeleteCmd struct {
	deletionFlags `embed:""`
	Version       string `arg:"" help:"The book's version."`
}

// Run withdraws a price book.
func (cmd *priceDeleteCmd) Run(ctx context.Context, c *console) error {
	return cmd.deleteBilling(ctx, c, "withdraw the price book "+cmd.Version, "/admin/prices/"+url.PathEscape(cmd.Version), cmd.Version, "withdrawn")
}

// billingPlanCmd is `stoa billing plan`.
type billingPlanCmd struct {
	List planListCmd `cmd:"" default:"withargs" help:"List the plans."`
	Get  planGetCmd  `cmd:"" help:"Show a plan as JSON, which plan set takes again."`
	Add  planAddCmd  `cmd:"" help:"Add a plan from a JSON file."`
	Set  planSetCmd  `cmd:"" help:"Change a plan as a whole by a JSON file."`
}

// planListCmd is `stoa billing plan list`.
type planListCmd struct {
	billingFlags `embed:""`
}

// Run prints the plans.
func (cmd *planListCmd) Run(ctx context.Context, c *console) error {
	return cmd.listBilling(ctx, c, "/admin/plans", "plans", url.Values{},
		[]column{{"NAME", "name"}, {"CURRENCY", "currency"}, {"BASE FEE", "base_fee_decimal"}, {"TAXES", "taxes.name"}, {"PERCENT", "taxes.percent"}, {"TIMEZONE", "timezone"}})
}

// planGetCmd is `stoa billing plan get`.
type planGetCmd struct {
	serverFlag `embed:""`
	Name       string `arg:"" help:"The plan's name."`
}

// Run prints a plan.
func (cmd *planGetCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.newAdminClient()
	if err != nil {
		return err
	}
	var answer json.RawMessage
	if err := api.doJSON(ctx, http.MethodGet, "/admin/plans/"+url.PathEscape(cmd.Name), nil, &answer); err != nil {
		return err
	}
	return c.printJSON(answer)
}

// planAddCmd is `stoa billing plan add`.
type planAddCmd struct {
	fileFlags `embed:""`
}

// Run adds a plan.
func (cmd *planAddCmd) Run(ctx context.Context, c *console) error {
	return cmd.sendFile(ctx, c, http.MethodPost, "/admin/plans", "name", "added")
}

// billingBudgetCmd is `stoa billing budget`.
type billingBudgetCmd struct {
	List   budgetListCmd   `cmd:"" default:"withargs" help:"List budgets with their balances."`
	Add    budgetAddCmd    `cmd:"" help:"Add a budget from a JSON file."`
	Set    budgetSetCmd    `cmd:"" help:"Change amount, hardness and thresholds of a budget by a JSON file."`
	Delete budgetDeleteCmd `cmd:"" help:"Delete a budget."`
}

// budgetFlags choose whose budgets a command is about.
type budgetFlags struct {
	App string `placeholder:"NAME" help:"Of this app. Without it, of all apps together."`
}

// budgetListCmd is `stoa billing budget list`.
type budgetListCmd struct {
	billingFlags `embed:""`
	budgetFlags  `embed:""`
}

// Run prints the budgets, amounts of money in whole units of their currency.
func (cmd *budgetListCmd) Run(ctx context.Context, c *console) error {
	return cmd.listBilling(ctx, c, appPath(cmd.App, "budgets"), "budgets", url.Values{}, []column{
		{"NAME", "name"}, {"UNIT", "unit"}, {"CURRENCY", "currency"}, {"AMOUNT", "amount"}, {"COMMITTED", "committed"},
		{"RESERVED", "reserved"}, {"REMAINING", "remaining"}, {"WINDOW", "window"}, {"HARD", "hard"}, {"RESETS", "resets_at"},
	})
}

// budgetAddCmd is `stoa billing budget add`.
type budgetAddCmd struct {
	fileFlags   `embed:""`
	budgetFlags `embed:""`
}

// Run adds a budget.
func (cmd *budgetAddCmd) Run(ctx context.Context, c *console) error {
	did := "added"
	if cmd.App == "" {
		did = "added for all apps together"
	}
	return cmd.sendFile(ctx, c, http.MethodPost, appPath(cmd.App, "budgets"), "name", did)
}

// budgetSetCmd is `stoa billing budget set`.
type budgetSetCmd struct {
	billingFlags `embed:""`
	budgetFlags  `embed:""`
	Name         string `arg:"" help:"The budget's name."`
	File         string `arg:"" help:"A file with a JSON object, - for standard input."`
}

// Run changes a budget.
func (cmd *budgetSetCmd) Run(ctx context.Context, c *console) error {
	f := fileFlags{cmd.billingFlags, cmd.File}
	return f.sendFile(ctx, c, http.MethodPut, appPath(cmd.App, "budgets")+"/"+url.PathEscape(cmd.Name), "name", "changed")
}

// budgetDeleteCmd is `stoa billing budget delete`.
type budgetDeleteCmd struct {
	deletionFlags `embed:""`
	budgetFlags   `embed:""`
	Name          string `arg:"" help:"The budget's name."`
}

// Run deletes a budget.
func (cmd *budgetDeleteCmd) Run(ctx context.Context, c *console) error {
	return cmd.deleteBilling(ctx, c, "delete the budget "+cmd.Name, appPath(cmd.App, "budgets")+"/"+url.PathEscape(cmd.Name), cmd.Name, "deleted")
}
