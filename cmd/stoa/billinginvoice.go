package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
)

// billingCreditCmd is `stoa billing credit`.
type billingCreditCmd struct {
	List   creditListCmd   `cmd:"" help:"List the credits of an app in the order in which they pay."`
	Grant  creditGrantCmd  `cmd:"" help:"Grant an app a credit."`
	Revoke creditRevokeCmd `cmd:"" help:"Revoke the rest of a credit."`
}

// creditListCmd is `stoa billing credit list`.
type creditListCmd struct {
	billingFlags `embed:""`
	App          string `arg:"" help:"The app's name."`
}

// Run prints the credits of an app.
func (cmd *creditListCmd) Run(ctx context.Context, c *console) error {
	return cmd.listBilling(ctx, c, appPath(cmd.App, "credits"), "credits", url.Values{}, []column{
		{"ID", "id"}, {"STATUS", "status"}, {"CURRENCY", "currency"}, {"AMOUNT", "amount_decimal"}, {"REMAINING", "remaining_decimal"}, {"PENDING", "pending_decimal"},
		{"EXPIRES", "expires_at"}, {"NOTE", "note"},
	})
}

// creditGrantCmd is `stoa billing credit grant`.
type creditGrantCmd struct {
	billingFlags `embed:""`
	App          string `arg:"" help:"The app's name."`
	Amount       string `arg:"" help:"In whole units of the currency, such as 12.50."`
	Currency     string `placeholder:"CODE" help:"Such as USD (the one in which the app is charged)."`
	Expires      string `placeholder:"DAY" help:"When it expires (never)."`
	Note         string `placeholder:"TEXT" help:"What it is for."`
}

// Run grants a credit.
func (cmd *creditGrantCmd) Run(ctx context.Context, c *console) error {
	body := map[string]string{"amount_decimal": cmd.Amount, "currency": cmd.Currency, "expires_at": cmd.Expires, "note": cmd.Note}
	return cmd.sendBody(ctx, c, http.MethodPost, appPath(cmd.App, "credits"), body, "id", "granted")
}

// creditRevokeCmd is `stoa billing credit revoke`.
type creditRevokeCmd struct {
	deletionFlags `embed:""`
	App           string `arg:"" help:"The app's name."`
	ID            string `arg:"" help:"The credit's id."`
}

// Run revokes a credit.
func (cmd *creditRevokeCmd) Run(ctx context.Context, c *console) error {
	return cmd.deleteBilling(ctx, c, "revoke the rest of the credit "+cmd.ID+" of "+cmd.App, appPath(cmd.App, "credits")+"/"+url.PathEscape(cmd.ID), cmd.ID, "revoked")
}

// billingInvoiceCmd is `stoa billing invoice`.
type billingInvoiceCmd struct {
	List     invoiceListCmd     `cmd:"" default:"withargs" help:"List the invoices of an app, or of all apps."`
	Print    invoicePrintCmd    `cmd:"" help:"Write an invoice as a page to print, a table or JSON."`
	Finalize invoiceFinalizeCmd `cmd:"" help:"Make the draft of a month final."`
	Reverse  invoiceReverseCmd  `cmd:"" help:"Reverse a final invoice by a credit note."`
	Reissue  invoiceReissueCmd  `cmd:"" help:"Invoice a reversed month again."`
}

// invoiceListCmd is `stoa billing invoice list`.
type invoiceListCmd struct {
	billingFlags `embed:""`
	App          string `arg:"" optional:"" help:"The app's name, or the id of a deleted app. Without it all apps are listed."`
	Drafts       bool   `help:"Of all apps: the drafts instead of the final ones."`
	Month        string `placeholder:"MONTH" help:"Of all apps: those of a month such as 2026-11."`
}

// Run prints invoices and credit notes, the newest first.
func (cmd *invoiceListCmd) Run(ctx context.Context, c *console) error {
	if cmd.App != "" && (cmd.Drafts || cmd.Month != "") {
		return &exitError{code: exitUsage, cause: fmt.Errorf("--drafts and --month are for the list of all apps")}
	}
	query := url.Values{"month": {cmd.Month}}
	if cmd.Drafts {
		query.Set("status", "draft")
	}
	return cmd.listBilling(ctx, c, appPath(cmd.App, "invoices"), "invoices", query, []column{
		{"NUMBER", "number"}, {"APP", "app"}, {"ID", "id"}, {"KIND", "kind"}, {"STATUS", "status"}, {"CURRENCY", "totals.currency"}, {"CHARGE", "totals.charge_decimal"},
		{"CREDITS", "totals.credits_decimal"}, {"CARRIED", "totals.carried_decimal"}, {"NET", "totals.net_decimal"}, {"TAX", "totals.tax_decimal"}, {"DUE", "totals.due_decimal"},
	})
}

// invoiceFlags are the arguments of the commands about one invoice.
type invoiceFlags struct {
	billingFlags `embed:""`
	App          string `arg:"" help:"The app's name, or the id of a deleted app."`
	ID           string `arg:"" help:"The invoice's id: its month, such as 2026-11."`
}

// changeInvoice sends an action about the invoice and reports what came of it.
func (f *invoiceFlags) changeInvoice(ctx context.Context, c *console, action string, body any) error {
	path := appPath(f.App, "invoices") + "/" + url.PathEscape(f.ID) + ":" + action
	return f.callBilling(ctx, c, http.MethodPost, path, body, func(inv map[string]any) error {
		c.printStatus("%s %s is number %s, due %s %s", formatMember(inv, "kind"), formatMember(inv, "id"), formatMember(inv, "number"),
			formatMember(inv, "totals.due_decimal"), formatMember(inv, "totals.currency"))
		return nil
	})
}

// invoicePrintCmd is `stoa billing invoice print`.
type invoicePrintCmd struct {
	serverFlag `embed:""`
	App        string `arg:"" help:"The app's name, or the id of a deleted app."`
	ID         string `arg:"" help:"The invoice's id: its month, such as 2026-11."`
	Format     string `enum:"html,csv,json" default:"html" help:"html, csv or json (${default})."`
	Output     string `short:"o" placeholder:"FILE" help:"Write it to this file instead of standard output."`
}

// Run writes the invoice in the format.
func (cmd *invoicePrintCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.newAdminClient()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	resp, err := api.sendRequest(ctx, http.MethodGet, appPath(cmd.App, "invoices")+"/"+url.PathEscape(cmd.ID+"."+cmd.Format), "*/*", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes))
	if err != nil {
		return fmt.Errorf("read invoice %s: %w", cmd.ID, err)
	}
	if cmd.Output != "" {
		return os.WriteFile(cmd.Output, text, 0o600)
	}
	c.printText(string(text))
	return nil
}

// invoiceFinalizeCmd is `stoa billing invoice finalize`.
type invoiceFinalizeCmd struct {
	invoiceFlags `embed:""`
	Force        bool `help:"Also if the month is running: the rest of its usage is on the next invoice."`
}

// Run makes a draft final.
func (cmd *invoiceFinalizeCmd) Run(ctx context.Context, c *console) error {
	return cmd.changeInvoice(ctx, c, "finalize", map[string]bool{"force": cmd.Force})
}

// invoiceReverseCmd is `stoa billing invoice reverse`.
type invoiceReverseCmd struct {
	invoiceFlags `embed:""`
}

// Run reverses an invoice.
func (cmd *invoiceReverseCmd) Run(ctx context.Context, c *console) error {
	return cmd.changeInvoice(ctx, c, "reverse", nil)
}

// invoiceReissueCmd is `stoa billing invoice reissue`.
type invoiceReissueCmd struct {
	invoiceFlags `embed:""`
}

// Run invoices a reversed month again.
func (cmd *invoiceReissueCmd) Run(ctx context.Context, c *console) error {
	return cmd.changeInvoice(ctx, c, "reissue", nil)
}

// partyFlags are the arguments of the commands about a party of invoices.
type partyFlags struct {
	billingFlags `embed:""`
	File         string `arg:"" optional:"" help:"A file with a JSON object, - for standard input. Without it the party is shown."`
}

// runParty shows the party at a path, or sets it by the file.
func (f *partyFlags) runParty(ctx context.Context, c *console, path string) error {
	if f.File != "" {
		file := fileFlags{f.billingFlags, f.File}
		return file.sendFile(ctx, c, http.MethodPut, path, "name", "set")
	}
	return f.callBilling(ctx, c, http.MethodGet, path, nil, func(party map[string]any) error {
		return c.printColumns([]column{{"NAME", "name"}, {"ADDRESS", "address"}, {"TAX ID", "tax_id"}, {"EMAIL", "email"}, {"NOTE", "note"}}, []any{party})
	})
}

// billingSellerCmd is `stoa billing seller`.
type billingSellerCmd struct {
	partyFlags `embed:""`
}

// Run shows or sets the seller.
func (cmd *billingSellerCmd) Run(ctx context.Context, c *console) error {
	return cmd.runParty(ctx, c, "/admin/seller")
}

// billingBuyerCmd is `stoa billing buyer`.
type billingBuyerCmd struct {
	App        string `arg:"" help:"The app's name."`
	partyFlags `embed:""`
}

// Run shows or sets the buyer on an app's invoices.
func (cmd *billingBuyerCmd) Run(ctx context.Context, c *console) error {
	return cmd.runParty(ctx, c, appPath(cmd.App, "buyer"))
}
