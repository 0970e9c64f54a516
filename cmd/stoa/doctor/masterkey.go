package doctor

import (
	"context"
	"fmt"

	"stoa/authz"
	"stoa/cmd/stoa/server"
	"stoa/tenancy/db"
)

// checkMasterKey reports whether the master keys of the settings are those that d was written with: by the ids of the keys
// in its rows, and by decrypting the signing keys, which every server has stored at its first start.
func (i *inspector) checkMasterKey(ctx context.Context, d *db.DB) Check {
	const name = "master_key"
	const action = "set STOA_MASTER_KEY to the key of this database, of the time of the backup after a restore; while a key is being changed, to both with a comma between"
	_, keys, source, err := i.Settings.Database.FindSecrets()
	if err != nil {
		return skip(name, "the master key cannot be read")
	}
	if keys == nil && d.Engine() != db.SQLite {
		return skip(name, "no master key is set")
	}
	if keys == nil {
		return i.checkUnsealed(ctx, d)
	}
	usage, err := server.CountKeyUsage(ctx, d, keys)
	if err != nil {
		return fail(name, "the encrypted rows cannot be counted: "+i.hidePasswords(err), "repair what login and migrations report")
	}
	var current, former, unknown int64
	for _, u := range usage {
		current, former, unknown = current+u.Current, former+u.Former, unknown+u.Unknown
	}
	if unknown > 0 {
		return fail(name, fmt.Sprintf("%d rows are encrypted with a master key that %s does not have", unknown, source), action)
	}
	if err := authz.CheckSigningKeys(ctx, d, keys); err != nil {
		return fail(name, err.Error(), action)
	}
	switch {
	case current+former == 0:
		return pass(name, "nothing is encrypted yet")
	case former > 0:
		return pass(name, "decrypts the signing keys; %d rows are under a former key: keep it", former)
	}
	return pass(name, "decrypts the signing keys; the number of rows under it is %d", current)
}

// checkUnsealed reports a SQLite database without a master key: one that has encrypted rows has lost it.
func (i *inspector) checkUnsealed(ctx context.Context, d *db.DB) Check {
	const name = "master_key"
	n := 0
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, "SELECT COUNT(*) FROM signing_key")
	if err := d.Platform().Do(ctx, &b); err != nil {
		return fail(name, "the signing keys cannot be counted: "+err.Error(), "repair what migrations reports")
	}
	if n > 0 {
		return fail(name, "the database has encrypted rows, and there is no master key", "restore "+server.SecretsFile(i.Settings.Database.URL)+", or set STOA_MASTER_KEY to the key that encrypted it")
	}
	return pass(name, "nothing is encrypted yet; the first start generates a key")
}
