package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// billingCmd is `stoa billing`. Its commands need the admin secret, except check.
type billingCmd struct {
	Usage   billingUsageCmd   `cmd:"" help:"Show what an app has used, or all apps."`
	Price   billingPriceCmd   `cmd:"" help:"Manage the price books."`
	Plan    billingPlanCmd    `cmd:"" help:"Manage the plans."`
	Budget  billingBudgetCmd  `cmd:"" help:"Manage the budgets of an app, or of the platform."`
	Credit  billingCreditCmd  `cmd:"" help:"Manage the credits of an app."`
	Invoice billingInvoiceCmd `cmd:"" help:"List, show, print, finalize and reverse invoices."`
	Ledger  billingLedgerCmd  `cmd:"" help:"Show the ledger of an app, the newest entries first."`
	Seller  billingSellerCmd  `cmd:"" help:"Show or set the seller on all invoices."`
	Buyer   billingBuyerCmd   `cmd:"" help:"Show or set the buyer on the invoices of an app."`
	Export  billingExportCmd  `cmd:"" help:"Show the progress of the exports of usage."`
	Check   billingCheckCmd   `cmd:"" help:"Compute the balances of all budgets from the usage, and show those that were wrong."`
}

// billingFlags are the flags of the commands that ask the server.
type billingFlags struct {
	serverFlag `embed:""`
	JSON       bool `name:"json" help:"Print the API's answer as JSON."`
}

// column is a column of a table: its header and the member of a row's JSON that it shows. A dotted member is one of a
// member; of a list the first element is taken.
type column struct{ header, member string }

// callBilling sends a request and prints the answer with show, or as JSON.
func (f *billingFlags) callBilling(ctx context.Context, c *console, method, path string, body any, show func(map[string]any) error) error {
	api, err := f.newAdminClient()
	if err != nil {
		return err
	}
	var answer json.RawMessage
	if err := api.doJSON(ctx, method, path, body, &answer); err != nil {
		return err
	}
	if f.JSON && len(answer) > 0 {
		return c.printJSON(answer)
	}
	var fields map[string]any
	if len(answer) > 0 {
		if err := decodeNumbers(answer, &fields); err != nil {
			return fmt.Errorf("read the answer of %s: %w", path, err)
		}
	}
	return show(fields)
}

// listBilling prints the rows of all pages of a list as a table, or as JSON.
func (f *billingFlags) listBilling(ctx context.Context, c *console, path, key string, query url.Values, columns []column) error {
	return f.showList(ctx, c, path, key, query, func(rows []any) error { return c.printColumns(columns, rows) })
}

// showList reads all pages of a list and prints its rows with show, or as JSON. The rows that show gets have decimals in place
// of nano-units.
func (f *billingFlags) showList(ctx context.Context, c *console, path, key string, query url.Values, show func(rows []any) error) error {
	api, err := f.newAdminClient()
	if err != nil {
		return err
	}
	all, answer, err := readList(ctx, api, path, key, query)
	if err != nil {
		return err
	}
	if f.JSON {
		return c.printJSON(answer)
	}
	rows := make([]any, len(all))
	for i, raw := range all {
		if err := decodeNumbers(raw, &rows[i]); err != nil {
			return fmt.Errorf("read the list of %s: %w", key, err)
		}
		preferDecimals(rows[i])
	}
	return show(rows)
}

// preferDecimals replaces the members of a row that are in nano-units by their decimals.
func preferDecimals(row any) {
	fields, _ := row.(map[string]any)
	for name, v := range fields {
		if member, ok := strings.CutSuffix(name, "_decimal"); ok {
			fields[member] = v
		}
	}
}

// decodeNumbers decodes JSON and keeps the digits of numbers, which a float64 would round.
func decodeNumbers(raw []byte, into any) error {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	return d.Decode(into)
}

// printColumns prints a table of rows of decoded JSON.
func (c *console) printColumns(columns []column, rows []any) error {
	headers, cells := make([]string, len(columns)), make([][]string, len(rows))
	for i, col := range columns {
		headers[i] = col.header
	}
	for i, row := range rows {
		for _, col := range columns {
			cells[i] = append(cells[i], formatMember(row, col.member))
		}
	}
	return c.printTable(headers, cells)
}

// formatMember returns a member of decoded JSON as text, "-" if there is none. Of a list it joins the elements.
func formatMember(v any, member string) string {
	name, rest, _ := strings.Cut(member, ".")
	switch v := v.(type) {
	case map[string]any:
		if name != "" {
			return formatMember(v[name], rest)
		}
	case []any:
		var texts []string
		for _, x := range v {
			texts = append(texts, formatMember(x, member))
		}
		return strings.Join(texts, ", ")
	}
	if v == nil || v == "" {
		return "-"
	}
	return fmt.Sprint(v)
}

// appPath returns the path of an app's resource in the admin API, or that of the platform's if app is "".
func appPath(app, resource string) string {
	if app == "" {
		return "/admin/" + resource
	}
	return "/admin/apps/" + url.PathEscape(app) + "/" + resource
}

// readObject reads a file, "-" for standard input, that has a JSON object.
func (c *console) readObject(file string) (json.RawMessage, error) {
	text, err := c.readInput(file)
	if err != nil {
		return nil, err
	}
	if file == "-" {
		file = "standard input"
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		return nil, &exitError{code: exitUsage, cause: fmt.Errorf("%s must be a JSON object: %w", file, err)}
	}
	return json.RawMessage(text), nil
}

// billingUsageCmd is `stoa billing usage`.
type billingUsageCmd struct {
	tableFlags `embed:""`
	App        string `arg:"" optional:"" help:"The app's name. Without it all apps are shown."`
	From       string `placeholder:"DAY" help:"From this day or time in UTC on (the month's first)."`
	To         string `placeholder:"DAY" help:"Until before this day or time in UTC (now)."`
	GroupBy    string `placeholder:"GROUPS" help:"Any of agent, model, user, key and day, with commas."`
}

// Run prints the sums of usage, a row for each app, group and currency.
func (cmd *billingUsageCmd) Run(ctx context.Context, c *console) error {
	if err := cmd.checkForm(); err != nil {
		return err
	}
	query := url.Values{"from": {cmd.From}, "to": {cmd.To}, "group_by": {cmd.GroupBy}}
	return cmd.showList(ctx, c, appPath(cmd.App, "usage"), "rows", query, func(rows []any) error {
		if cmd.CSV {
			return c.printCSV(cmd.csvColumns(), rows)
		}
		return c.printColumns(append(cmd.groupColumns(), column{"CURRENCY", "currency"}, column{"CHARGE", "charge_decimal"}, column{"COST", "cost_decimal"},
			column{"INPUT", "input_tokens"}, column{"OUTPUT", "output_tokens"}, column{"CALLS", "model_calls"}, column{"TOOLS", "tool_calls"}, column{"RUNS", "runs"},
			column{"UNPRICED", "unpriced"}), rows)
	})
}

// groupColumns returns the columns of the app and the groups.
func (cmd *billingUsageCmd) groupColumns() (columns []column) {
	if cmd.App == "" {
		columns = append(columns, column{"APP", "app"})
	}
	if cmd.GroupBy != "" {
		for group := range strings.SplitSeq(cmd.GroupBy, ",") {
			columns = append(columns, column{strings.ToUpper(group), group})
		}
	}
	return columns
}

// billingExportCmd is `stoa billing export`.
type billingExportCmd struct {
	billingFlags `embed:""`
}

// Run prints the exports of usage.
func (cmd *billingExportCmd) Run(ctx context.Context, c *console) error {
	return cmd.listBilling(ctx, c, "/admin/exports", "exports", url.Values{}, []column{
		{"NAME", "name"}, {"BATCH", "batch"}, {"PENDING", "pending"}, {"ROWS", "rows"}, {"REFUSED", "refused"}, {"UPDATED", "updated_at"}, {"LAST ERROR", "last_error"},
	})
}

// billingLedgerCmd is `stoa billing ledger`.
type billingLedgerCmd struct {
	billingFlags `embed:""`
	App          string `arg:"" help:"The app's name, or the id of a deleted app."`
}

// Run prints the balances of the accounts and the newest entries.
func (cmd *billingLedgerCmd) Run(ctx context.Context, c *console) error {
	return cmd.callBilling(ctx, c, http.MethodGet, appPath(cmd.App, "ledger")+"?page_size=1000", nil, func(answer map[string]any) error {
		balances, _ := answer["balances_decimal"].(map[string]any)
		accounts := []column{{"CURRENCY", "currency"}}
		for _, name := range []string{"receivable", "revenue", "tax", "carried", "credits", "promotion", "cost", "payable"} {
			accounts = append(accounts, column{strings.ToUpper(name), name})
		}
		var rows []any
		for currency, balance := range balances {
			row, _ := balance.(map[string]any)
			row["currency"] = currency
			rows = append(rows, row)
		}
		if err := c.printColumns(accounts, rows); err != nil {
			return err
		}
		c.printText("\n")
		entries, _ := answer["entries"].([]any)
		columns := []column{{"ENTRY", "id"}, {"KIND", "kind"}, {"INVOICE", "invoice"}, {"CREDIT", "credit"}, {"AT", "at"}}
		for _, account := range accounts[1:] {
			columns = append(columns, column{account.header, "postings_decimal." + account.member})
		}
		return c.printColumns(append(columns, column{"CURRENCY", "currency"}), entries)
	})
}
