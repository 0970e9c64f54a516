package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// planSetCmd is `stoa billing plan set`.
type planSetCmd struct {
	billingFlags `embed:""`
	confirmFlag  `embed:""`
	Name         string `arg:"" help:"The plan's name."`
	File         string `arg:"" help:"A file with a JSON object, - for standard input."`
}

// Run prints what the file changes of the plan, asks if it removes what invoices are made by, and changes the plan.
func (cmd *planSetCmd) Run(ctx context.Context, c *console) error {
	body, err := c.readObject(cmd.File)
	if err != nil {
		return err
	}
	path := "/admin/plans/" + url.PathEscape(cmd.Name)
	api, err := cmd.newAdminClient()
	if err != nil {
		return err
	}
	var current json.RawMessage
	if err := api.doJSON(ctx, http.MethodGet, path, nil, &current); err != nil {
		return err
	}
	was, err := flattenPlan(current)
	if err != nil {
		return fmt.Errorf("read plan %s: %w", cmd.Name, err)
	}
	becomes, err := flattenPlan(body)
	if err != nil {
		return &exitError{code: exitUsage, cause: fmt.Errorf("read %s: %w", cmd.File, err)}
	}
	removed := c.printPlanChanges(was, becomes)
	if len(removed) > 0 {
		action := "change the plan " + cmd.Name + ", which removes " + strings.Join(removed, ", ")
		if err := cmd.confirmYes(ctx, c, action); err != nil {
			return err
		}
	}
	return cmd.sendBody(ctx, c, http.MethodPut, path, body, "name", "changed")
}

// printPlanChanges prints each field that differs, and returns which of those that invoices are made by are removed.
func (c *console) printPlanChanges(was, becomes map[string]string) (removed []string) {
	all := maps.Clone(was)
	maps.Copy(all, becomes)
	for _, field := range slices.Sorted(maps.Keys(all)) {
		before, had := was[field]
		after, has := becomes[field]
		switch {
		case before == after:
		case !has:
			c.printStatus("%s: %s, is removed", field, before)
			if field == "base_fee" || field == "currency" || field == "taxes" {
				removed = append(removed, field)
			}
		case !had:
			c.printStatus("%s: is %s", field, after)
		default:
			c.printStatus("%s: %s, is %s", field, before, after)
		}
	}
	return removed
}

// flattenPlan returns the fields of a plan as the API has it in a form in which two plans can be compared: nested members
// have dotted names, money is in whole units, and a field with its default is absent.
func flattenPlan(raw json.RawMessage) (map[string]string, error) {
	var fields map[string]any
	if err := decodeNumbers(raw, &fields); err != nil {
		return nil, err
	}
	for _, name := range []string{"name", "created_at", "updated_at", "warnings"} {
		delete(fields, name)
	}
	flat := map[string]string{}
	flattenFields(flat, "", fields)
	return flat, nil
}

// flattenFields adds the members of an object to flat. Amounts with a member in nano-units and one in whole units are equal
// by the API's rule.
func flattenFields(flat map[string]string, at string, fields map[string]any) {
	for name, v := range fields {
		switch v := v.(type) {
		case map[string]any:
			flattenFields(flat, at+name+".", v)
			continue
		case []any:
			if len(v) == 0 {
				continue
			}
		}
		whole, decimal := strings.CutSuffix(name, "_decimal")
		text := normalizeNumbers(v)
		if n, ok := new(big.Rat).SetString(text); ok && (name == "base_fee" || name == "amount" || decimal) {
			if !decimal {
				n.Quo(n, big.NewRat(1_000_000_000, 1))
			}
			text = formatWhole(n)
		}
		if text == "" || text == "0" || text == "0.00" || text == "null" {
			continue
		}
		flat[at+whole] = text
	}
}

// formatWhole returns a number with at least two decimals.
func formatWhole(n *big.Rat) string {
	text := strings.TrimRight(n.FloatString(9), "0")
	for len(text)-strings.IndexByte(text, '.') < 3 {
		text += "0"
	}
	return text
}

// normalizeNumbers returns decoded JSON as text in which equal numbers are equal, however they were written: a percentage may
// be a number or a text.
func normalizeNumbers(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return formatNumber(v.String())
	}
	text, err := json.Marshal(normalizeNested(v))
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// normalizeNested replaces the numbers within a list or an object.
func normalizeNested(v any) any {
	switch v := v.(type) {
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = normalizeNested(v[i])
		}
		return list
	case map[string]any:
		fields := make(map[string]any, len(v))
		for name := range v {
			fields[name] = normalizeNested(v[name])
		}
		return fields
	case json.Number:
		return formatNumber(v.String())
	case string:
		return formatNumber(v)
	}
	return v
}

// formatNumber returns the shortest decimal form of a number, and any other text as it is.
func formatNumber(text string) string {
	n, ok := new(big.Rat).SetString(text)
	if !ok || strings.Contains(text, "/") {
		return text
	}
	return strings.TrimSuffix(strings.TrimRight(n.FloatString(9), "0"), ".")
}
