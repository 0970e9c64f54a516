package doctor

import (
	"context"
	"fmt"
	"strings"

	"stoa/authz"
	"stoa/cmd/stoa/server"
	"stoa/tenancy/db"
)

// checkMasterKey reports whether the master keys of the settings are those that the database was written with: by the ids of the keys
// in its rows, and by decrypting the signing keys, which every server has stored at its first start.
func (o openedDatabase) checkMasterKey(ctx context.Context) Check {
	const name = "master_key"
	if o.schema.Current == 0 {
		return skip(name, "there are no tables yet")
	}
	const action = "set STOA_MASTER_KEY to the key of this database, of the time of the backup after a restore; while a key is being changed, to both with a comma between"
	_, keys, source, err := o.Settings.Database.FindSecrets()
	if err != nil {
		return skip(name, "the master key cannot be read")
	}
	if keys == nil && o.db.Engine() != db.SQLite {
		return skip(name, "no master key is set")
	}
	if keys == nil {
		return o.checkUnsealed(ctx)
	}
	usage, err := server.CountKeyUsage(ctx, o.db, keys)
	if err != nil {
		return fail(name, "the encrypted rows cannot be counted: "+o.hidePasswords(err), "repair what login and migrations report")
	}
	var current, former, unknown int64
	for _, u := range usage {
		current, former, unknown = current+u.Current, former+u.Former, unknown+u.Unknown
	}
	if unknown > 0 {
		missing, err := server.ListMissingKeys(ctx, o.db, keys)
		if err != nil {
			return fail(name, "the encrypted rows cannot be read: "+o.hidePasswords(err), "repair what login and migrations report")
		}
		return fail(name, fmt.Sprintf("%d rows are encrypted with the master key %s, which %s does not have", unknown, strings.Join(missing, " and "), source), action)
	}
	if err := authz.CheckSigningKeys(ctx, o.db, keys); err != nil {
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
func (o openedDatabase) checkUnsealed(ctx context.Context) Check {
	const name = "master_key"
	n := 0
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, "SELECT COUNT(*) FROM signing_key")
	if err := o.db.Platform().Do(ctx, &b); err != nil {
		return fail(name, "the signing keys cannot be counted: "+err.Error(), "repair what migrations reports")
	}
	if n > 0 {
		return fail(name, "the database has encrypted rows, and there is no master key", "restore "+server.SecretsFile(o.Settings.Database.URL)+", or set STOA_MASTER_KEY to the key that encrypted it")
	}
	return pass(name, "nothing is encrypted yet; the first start generates a key")
}
