package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	Amount       string `arg:"" help:"In whole units of the currency, such as 12.50; above 0."`
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
	Show     invoiceShowCmd     `cmd:"" help:"Show an invoice as text."`
	Print    invoicePrintCmd    `cmd:"" help:"Write an invoice as a page to print, a table, text or JSON."`
	Finalize invoiceFinalizeCmd `cmd:"" help:"Make the draft of a month final, of an app or of all."`
	Reverse  invoiceReverseCmd  `cmd:"" help:"Reverse a final invoice by a credit note."`
	Reissue  invoiceReissueCmd  `cmd:"" help:"Invoice a reversed month again."`
}

// invoiceListCmd is `stoa billing invoice list`.
type invoiceListCmd struct {
	tableFlags `embed:""`
	App        string `arg:"" optional:"" help:"The app's name, or the id of a deleted app. Without it all apps are listed."`
	Drafts     bool   `help:"Of all apps: the drafts instead of the final ones."`
	Month      string `placeholder:"MONTH" help:"Of all apps: those of a month such as 2026-11."`
}

// Run prints invoices and credit notes, the newest first, and their sums in each currency.
func (cmd *invoiceListCmd) Run(ctx context.Context, c *console) error {
	if err := cmd.checkForm(); err != nil {
		return err
	}
	if cmd.App != "" && (cmd.Drafts || cmd.Month != "") {
		return &exitError{code: exitUsage, cause: errors.New("--drafts and --month are for the list of all apps")}
	}
	query := url.Values{"month": {cmd.Month}}
	if cmd.Drafts {
		query.Set("status", "draft")
	}
	columns := []column{
		{"NUMBER", "number"}, {"APP", "app"}, {"ID", "id"}, {"KIND", "kind"}, {"STATUS", "status"}, {"CURRENCY", "totals.currency"}, {"CHARGE", "totals.charge_decimal"},
		{"CREDITS", "totals.credits_decimal"}, {"CARRIED", "totals.carried_decimal"}, {"NET", "totals.net_decimal"}, {"TAX", "totals.tax_decimal"}, {"DUE", "totals.due_decimal"},
		{"UNPRICED", "unpriced_calls"}, {"MADE", "finalized_at"},
	}
	return cmd.showList(ctx, c, appPath(cmd.App, "invoices"), "invoices", query, func(invoices []any) error {
		rows := splitTotals(invoices)
		if cmd.CSV {
			return c.printCSV(columns, rows)
		}
		if err := c.printColumns(columns, invoices); err != nil {
			return err
		}
		return c.printInvoiceSums(rows)
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
		due := formatDue(inv)
		if formatMember(inv, "status") == "reversed" {
			due += "; it is reversed by " + formatMember(inv, "reversed_by")
		}
		switch n := formatMember(inv, "unpriced_calls"); n {
		case "-":
		case "1":
			due += "; 1 call on it has no price or is charged in part, see `stoa billing price`"
		default:
			due += fmt.Sprintf("; %s calls on it have no price or are charged in part, see `stoa billing price`", n)
		}
		c.printStatus("%s %s of %s is number %s, due %s", formatMember(inv, "kind"), formatMember(inv, "id"), formatMember(inv, "app"), formatMember(inv, "number"), due)
		return nil
	})
}

// formatDue returns what is due on an invoice in each currency, "nothing" if it has no amounts.
func formatDue(inv map[string]any) string {
	totals, _ := inv["totals"].([]any)
	amounts := make([]string, len(totals))
	for i, t := range totals {
		amounts[i] = formatMember(t, "due_decimal") + " " + formatMember(t, "currency")
	}
	return cmp.Or(strings.Join(amounts, ", "), "nothing")
}

// printedFlags are the arguments of the commands that print one invoice.
type printedFlags struct {
	serverFlag `embed:""`
	App        string `arg:"" help:"The app's name, or the id of a deleted app."`
	ID         string `arg:"" help:"The invoice's id: its month, such as 2026-11."`
}

// readInvoice reads the invoice in a format, which is the suffix of its path.
func (f *printedFlags) readInvoice(ctx context.Context, format string) ([]byte, error) {
	api, err := f.newAdminClient()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	resp, err := api.sendRequest(ctx, http.MethodGet, appPath(f.App, "invoices")+"/"+url.PathEscape(f.ID+"."+format), "*/*", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes))
	if err != nil {
		return nil, fmt.Errorf("read invoice %s: %w", f.ID, err)
	}
	return text, nil
}

// invoiceShowCmd is `stoa billing invoice show`.
type invoiceShowCmd struct {
	printedFlags `embed:""`
}

// Run prints the invoice as text.
func (cmd *invoiceShowCmd) Run(ctx context.Context, c *console) error {
	text, err := cmd.readInvoice(ctx, "txt")
	if err == nil {
		c.printText(string(text))
	}
	return err
}

// invoicePrintCmd is `stoa billing invoice print`.
type invoicePrintCmd struct {
	printedFlags `embed:""`
	Format       string `enum:",html,csv,json,txt" default:"" help:"html, csv, json or txt (the one that the name of FILE ends with, else html)."`
	Output       string `short:"o" placeholder:"FILE" help:"Write it to this file instead of standard output."`
}

// Run writes the invoice in the format.
func (cmd *invoicePrintCmd) Run(ctx context.Context, c *console) error {
	format := cmd.Format
	if ending := strings.TrimPrefix(filepath.Ext(cmd.Output), "."); format == "" && slices.Contains([]string{"csv", "json", "txt"}, ending) {
		format = ending
	}
	text, err := cmd.readInvoice(ctx, cmp.Or(format, "html"))
	if err != nil {
		return err
	}
	if cmd.Output != "" {
		return os.WriteFile(cmd.Output, text, 0o600)
	}
	c.printText(string(text))
	return nil
}

// invoiceFinalizeCmd is `stoa billing invoice finalize`.
type invoiceFinalizeCmd struct {
	billingFlags  `embed:""`
	confirmFlag   `embed:""`
	App           string `arg:"" optional:"" help:"The app's name."`
	ID            string `arg:"" optional:"" help:"The invoice's id: its month, such as 2026-11."`
	Month         string `placeholder:"MONTH" help:"Without an app: the drafts of this month of all apps."`
	Force         bool   `help:"Also if the month is running: the rest of its usage is on the next invoice."`
	AllowUnpriced bool   `help:"Also if calls on it have no price: they are charged nothing."`
}

// Run makes a draft final, or those of a month of all apps. A draft that cannot be made final does not stop the others.
func (cmd *invoiceFinalizeCmd) Run(ctx context.Context, c *console) error {
	if (cmd.App == "") != (cmd.ID == "") || (cmd.App == "") == (cmd.Month == "") {
		return &exitError{code: exitUsage, cause: errors.New("name an app and the id of its invoice, or --month for the drafts of all apps")}
	}
	if err := cmd.confirmFinal(ctx, c); err != nil {
		return err
	}
	if cmd.App != "" {
		return cmd.finalizeInvoice(ctx, c, cmd.App, cmd.ID)
	}
	api, err := cmd.newAdminClient()
	if err != nil {
		return err
	}
	drafts, _, err := readList(ctx, api, "/admin/invoices", "invoices", url.Values{"status": {"draft"}, "month": {cmd.Month}})
	if err != nil {
		return err
	}
	failed := 0
	for _, raw := range drafts {
		var draft struct{ App, ID string }
		if err := json.Unmarshal(raw, &draft); err != nil {
			return fmt.Errorf("read the list of drafts: %w", err)
		}
		if err := cmd.finalizeInvoice(ctx, c, draft.App, draft.ID); err != nil {
			failed++
			c.printStatus("%s of %s is still a draft: %v", draft.ID, draft.App, err)
		}
	}
	c.printStatus("%d of %d drafts are final", len(drafts)-failed, len(drafts))
	if failed > 0 {
		return &exitError{code: exitFailed}
	}
	return nil
}

// confirmFinal asks before the drafts of all apps become final or a running month is closed.
func (cmd *invoiceFinalizeCmd) confirmFinal(ctx context.Context, c *console) error {
	switch {
	case cmd.Month != "" && cmd.Force:
		return cmd.confirmYes(ctx, c, "make the drafts of "+cmd.Month+" of all apps final, also if the month is running")
	case cmd.Month != "":
		return cmd.confirmYes(ctx, c, "make the drafts of "+cmd.Month+" of all apps final")
	case cmd.Force:
		return cmd.confirmYes(ctx, c, "close the running month "+cmd.ID+" of "+cmd.App)
	}
	return nil
}

// finalizeInvoice makes one draft final.
func (cmd *invoiceFinalizeCmd) finalizeInvoice(ctx context.Context, c *console, app, id string) error {
	f := invoiceFlags{cmd.billingFlags, app, id}
	return f.changeInvoice(ctx, c, "finalize", map[string]bool{"force": cmd.Force, "allow_unpriced": cmd.AllowUnpriced})
}

// invoiceReverseCmd is `stoa billing invoice reverse`.
type invoiceReverseCmd struct {
	invoiceFlags `embed:""`
	confirmFlag  `embed:""`
}

// Run reverses an invoice.
func (cmd *invoiceReverseCmd) Run(ctx context.Context, c *console) error {
	if err := cmd.confirmYes(ctx, c, "reverse the invoice "+cmd.ID+" of "+cmd.App); err != nil {
		return err
	}
	return cmd.changeInvoice(ctx, c, "reverse", nil)
}

// invoiceReissueCmd is `stoa billing invoice reissue`.
type invoiceReissueCmd struct {
	invoiceFlags `embed:""`
	confirmFlag  `embed:""`
	Plan         *string `placeholder:"NAME" help:"Charge by the present terms of this plan, '' for no plan (the lines and taxes of the reversed invoice)."`
	Buyer        string  `placeholder:"FILE" help:"A file with a JSON object, the buyer on this invoice (that of the app; of a deleted app that of the reversed invoice)."`
}

// Run invoices a reversed month again.
func (cmd *invoiceReissueCmd) Run(ctx context.Context, c *console) error {
	body := map[string]any{}
	if cmd.Plan != nil {
		body["plan"] = *cmd.Plan
	}
	if cmd.Buyer != "" {
		buyer, err := c.readObject(cmd.Buyer)
		if err != nil {
			return err
		}
		body["buyer"] = buyer
	}
	if err := cmd.confirmYes(ctx, c, "invoice "+cmd.ID+" of "+cmd.App+" again"); err != nil {
		return err
	}
	return cmd.changeInvoice(ctx, c, "reissue", body)
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
