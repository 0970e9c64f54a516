package main

import (
	"context"
	"strings"

	"stoa/cmd/stoa/server"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

// secretsCmd is `stoa secrets`, about the secrets of the server itself.
type secretsCmd struct {
	Status secretsStatusCmd `cmd:"" help:"Show how many rows each master key encrypts, and whether a former one may be removed."`
}

// secretsStatusCmd is `stoa secrets status`. It opens the database directly and needs no server.
type secretsStatusCmd struct {
	databaseFlag `embed:""`
	JSON         bool `name:"json" help:"Print JSON."`
}

// Run counts the rows under each master key of STOA_MASTER_KEY. It returns an error if a row needs a key that is not
// there. On PostgreSQL it may run while servers do.
func (cmd *secretsStatusCmd) Run(ctx context.Context, c *console) error {
	url, err := cmd.findDatabase()
	if err != nil {
		return err
	}
	d, err := db.Open(ctx, url, db.Options{MaxConns: 1})
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	keys, err := server.OpenKeyring(ctx, d, url)
	if err != nil {
		return err
	}
	all, err := server.CountKeyUsage(ctx, d, keys)
	if err != nil {
		return err
	}
	var former, unknown int64
	for _, u := range all {
		former += u.Former
		unknown += u.Unknown
		if !cmd.JSON {
			c.printLine("%-12s %d under the current master key, %d under a former one, %d under an unknown one", u.Table, u.Current, u.Former, u.Unknown)
		}
	}
	switch {
	case cmd.JSON:
		err = c.printJSON(all)
	case former > 0:
		c.printLine("keep the former master key: servers that have both are encrypting %d rows again", former)
	case len(keys.FormerKeyIDs()) > 0:
		err = cmd.printFormerKeys(ctx, c, d, keys)
	}
	if unknown > 0 && !cmd.JSON {
		c.printLine("%d rows need a master key that %s does not have", unknown, server.MasterKeyName)
	}
	if err == nil && unknown > 0 {
		return &exitError{code: exitFailed}
	}
	return err
}

// printFormerKeys prints what may be done with the master keys behind the first one, under which no row is.
func (cmd *secretsStatusCmd) printFormerKeys(ctx context.Context, c *console, d *db.DB, keys *keyring.Keyring) error {
	state, err := server.ReadFormerKeys(ctx, d, keys, audit.New(d, keys, nil))
	if err != nil {
		return err
	}
	if len(state.Accepted) > 0 {
		c.printLine("the master key %s has not been the first one yet and encrypts nothing: once every server has it, put it first", strings.Join(state.Accepted, " and "))
	}
	if len(state.Replaced) > 0 {
		c.printLine("the former master key %s may be removed once every server has the new one first", strings.Join(state.Replaced, " and "))
	}
	return nil
}
