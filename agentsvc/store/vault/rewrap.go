package vault

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

// sealedTables are the tables with values that are sealed under data keys, which a master key wraps.
var sealedTables = []string{"credential", "receiver"}

// RewrapKeys rewraps the data keys of all tenants' credentials and receivers from former master keys to the
// current one, so that the former ones can be removed. Only keys are rewrapped; the values stay. A value that does
// not open is left as it is: its owner will be asked for the credential again.
func RewrapKeys(ctx context.Context, d *db.DB, keys *keyring.Keyring) error {
	var failed error
	for _, former := range keys.FormerKeyIDs() {
		for _, table := range sealedTables {
			failed = errors.Join(failed, rewrapTable(ctx, d.Platform(), keys, table, former))
		}
	}
	return failed
}

// sealedRow is a sealed value and its tenant.
type sealedRow struct{ tenant, value string }

// maxErrors bounds how many rows the error of rewrapTable names.
const maxErrors = 10

// rewrapTable rewraps the values of one table under one former master key and joins the errors of the rows, in the same
// order each time.
func rewrapTable(ctx context.Context, h *db.Handle, keys *keyring.Keyring, table, former string) error {
	var rows []sealedRow
	var b db.Batch
	b.Query(func(r db.Row) error {
		var x sealedRow
		err := r.Scan(&x.tenant, &x.value)
		rows = append(rows, x)
		return err
	}, `SELECT tenant, value FROM `+table+` WHERE master_key = $1 ORDER BY tenant, value`, former)
	if err := h.Do(ctx, &b); err != nil {
		return fmt.Errorf("look for a %s under a former master key: %w", table, err)
	}
	var failed []error
	for _, x := range rows {
		if err := rewrapRow(ctx, h, keys, table, former, x); err != nil {
			failed = append(failed, fmt.Errorf("rewrap a %s of app %s: %w", table, x.tenant, err))
		}
	}
	if more := len(failed) - maxErrors; more > 0 {
		failed = append(failed[:maxErrors], fmt.Errorf("the same for %d more", more))
	}
	return errors.Join(failed...)
}

// rewrapRow rewraps one value. The UPDATE requires the old value, so a value that was replaced meanwhile is kept.
func rewrapRow(ctx context.Context, h *db.Handle, keys *keyring.Keyring, table, former string, x sealedRow) error {
	raw, err := base64.StdEncoding.DecodeString(x.value)
	if err == nil {
		raw, err = keys.RewrapValue(x.tenant, raw)
	}
	if err != nil {
		return err
	}
	var b db.Batch
	b.Exec(nil, `UPDATE `+table+` SET value = $4, master_key = $5 WHERE tenant = $1 AND value = $2 AND master_key = $3`,
		x.tenant, x.value, former, base64.StdEncoding.EncodeToString(raw), keys.CurrentKeyID())
	return h.Do(ctx, &b)
}
