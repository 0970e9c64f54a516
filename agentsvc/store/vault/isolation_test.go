package vault_test

import (
	"bytes"
	"errors"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/store/vault"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/keyring"
)

// TestIsolation: a tenant neither reads nor deletes another tenant's credentials, and supplies none by another
// tenant's task.
func TestIsolation(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		keys, err := keyring.New(bytes.Repeat([]byte{1}, 32))
		if err != nil {
			t.Fatal(err)
		}
		alice, bob := vault.New(d, "alice", keys), vault.New(d, "bob", keys)
		ana := agentsvc.Owner{Issuer: "stoa", Subject: "ana"}
		bank := agentsvc.Credential{Tool: "bank", Header: "Authorization", Server: "https://bank.example.com"}
		var b db.Batch
		dbtest.InsertTask(&b, "alice", "t1")
		if err := d.Tenant("alice").Do(ctx, &b); err != nil {
			t.Fatal(err)
		}
		supply := func(v *vault.Vault, tenant db.ID, value string) vault.SealedCredential {
			t.Helper()
			sealed, err := v.SealCredential(ana, bank, value)
			if err != nil {
				t.Fatal(err)
			}
			var b db.Batch
			vault.QueueInsert(&b, string(tenant), sealed, "t1", 1, 1)
			if err := d.Tenant(tenant).Do(ctx, &b); err != nil {
				t.Fatal(err)
			}
			return sealed
		}
		supply(alice, "alice", "secret")
		sealed := supply(bob, "bob", "mine")
		if value, _, err := bob.OpenCredential(ctx, ana, bank); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("Bob opens %q (%v)", value, err)
		}
		if list, err := bob.ListCredentials(ctx, ana); err != nil || len(list) != 0 {
			t.Errorf("Bob lists %+v (%v)", list, err)
		}
		if err := bob.ForgetCredential(ctx, ana, audit.Origin{}, "bank"); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("Bob forgets: %v", err)
		}
		if err := errors.Join(bob.ForgetUserCredentials(ctx, audit.Actor{Name: ana.Subject, Issuer: ana.Issuer}, "ana", nil), bob.DropCredential(ctx, sealed)); err != nil {
			t.Error(err)
		}
		if value, _, err := alice.OpenCredential(ctx, ana, bank); err != nil || value != "secret" {
			t.Errorf("Alice opens %q (%v)", value, err)
		}
	})
}
