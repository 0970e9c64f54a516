package store_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

func keyring(t *testing.T, masters ...byte) *tenancy.Keyring {
	t.Helper()
	raw := make([][]byte, len(masters))
	for i, m := range masters {
		raw[i] = bytes.Repeat([]byte{m}, 32)
	}
	k, err := tenancy.NewKeyring(raw...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var (
	bank = agentsvc.Credential{Tool: "bank", Header: "Authorization", Server: "https://bank.example.com"}
	post = agentsvc.Credential{Tool: "post", Header: "X-Key", Server: "https://post.example.com"}
)

// needing accepts a task whose calls c1 and c2 need credentials.
func needing(t *testing.T, s *store.Store) store.Stored {
	t.Helper()
	run := accept(t, s, aRun("w1"))
	asks := func(id agentsvc.CallID, c agentsvc.Credential) agentsvc.Event {
		return agentsvc.Event{Approval: &agentsvc.Approval{
			Call: agentsvc.ToolCall{ID: id, Name: c.Tool}, Kind: agentsvc.SupplyCredential, Prompt: "Your key?", Credential: c,
		}}
	}
	rec := store.Record{
		Events: events(run.Task, 3, message("think"), asks("c1", bank), asks("c2", post), status(agentsvc.AuthRequired, says("Your keys?"))),
		End:    store.InputRequired,
	}
	if err := s.Record(t.Context(), &run, rec); err != nil {
		t.Fatal(err)
	}
	return waits(t, s, run.Task)
}

// supply writes that one of seen's credentials was supplied.
func supply(t *testing.T, s *store.Store, v *store.Vault, seen store.Stored, owner agentsvc.Owner, c agentsvc.Credential, value string) error {
	t.Helper()
	sealed, err := v.Seal(owner, c, value)
	if err != nil {
		t.Fatal(err)
	}
	return s.Decide(t.Context(), seen, store.Ruling{
		Events: events(seen.ID, seen.Seq+1, status(agentsvc.AuthRequired, says("More."))), Supply: []store.Sealed{sealed},
	})
}

func opened(t *testing.T, v *store.Vault, owner agentsvc.Owner, c agentsvc.Credential) string {
	t.Helper()
	value, _, err := v.Open(t.Context(), owner, c)
	if err != nil && !errors.Is(err, agentsvc.ErrNotFound) {
		t.Fatal(err)
	}
	return value
}

func TestVault(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB, s *store.Store) {
		seen := needing(t, s)
		if diff := cmp.Diff(bank, seen.Approvals[0].Credential); diff != "" {
			t.Error(diff)
		}
		v := store.NewVault(d, "acme", keyring(t, 1))
		ana, eve := agentsvc.Owner{Issuer: "stoa", Subject: "ana"}, agentsvc.Owner{Issuer: "stoa", Subject: "eve"}
		if err := supply(t, s, v, seen, ana, bank, "first"); err != nil {
			t.Fatal(err)
		}
		if err := supply(t, s, v, seen, ana, bank, "late"); !errors.Is(err, agentsvc.ErrLost) {
			t.Errorf("supplied to a task that moved on: %v", err)
		}
		if got := opened(t, v, ana, bank); got != "first" {
			t.Errorf("opened %q", got)
		}
		_, old, _ := v.Open(t.Context(), ana, bank)
		if err := supply(t, s, v, waits(t, s, seen.ID), ana, bank, "second"); err != nil {
			t.Fatal(err)
		}
		if err := v.Drop(t.Context(), old); err != nil || opened(t, v, ana, bank) != "second" {
			t.Errorf("dropping what was replaced: %v, then %q", err, opened(t, v, ana, bank))
		}
		elsewhere := bank
		elsewhere.Server = "https://evil.example.com"
		other := bank
		other.Header = "X-Key"
		for name, got := range map[string]string{
			"another server": opened(t, v, ana, elsewhere), "another header": opened(t, v, ana, other), "another user": opened(t, v, eve, bank),
			"another issuer": opened(t, v, agentsvc.Owner{Issuer: "else", Subject: "ana"}, bank), "another tool": opened(t, v, ana, post),
			"another tenant": opened(t, store.NewVault(d, "globex", keyring(t, 1)), ana, bank), "another master key": opened(t, store.NewVault(d, "acme", keyring(t, 2)), ana, bank),
		} {
			if got != "" {
				t.Errorf("%s opens it: %q", name, got)
			}
		}
		if err := supply(t, s, v, waits(t, s, seen.ID), ana, post, "key"); err != nil {
			t.Fatal(err)
		}
		list, err := v.List(t.Context(), ana)
		if err != nil || len(list) != 2 || list[0].Credential != bank || list[1].Credential != post || list[0].Created.IsZero() {
			t.Errorf("listed %+v, %v", list, err)
		}
		if list, err := v.List(t.Context(), eve); err != nil || len(list) != 0 {
			t.Errorf("eve has %+v, %v", list, err)
		}
		if err := v.Forget(t.Context(), eve, "bank"); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("eve forgets: %v", err)
		}
		if err := v.Forget(t.Context(), ana, "bank"); err != nil || opened(t, v, ana, bank) != "" {
			t.Errorf("forgotten: %v", err)
		}
		issuer := "else"
		if err := v.ForgetUser(t.Context(), ana, "ana", &issuer); err != nil || opened(t, v, ana, post) != "key" {
			t.Errorf("another issuer's ana: %v", err)
		}
		if err := v.ForgetUser(t.Context(), ana, "ana", nil); err != nil || opened(t, v, ana, post) != "" {
			t.Errorf("all of ana: %v", err)
		}
	})
}

// TestSwap: a row that is moved to another user, by whoever can write to the database, does not open.
func TestSwap(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB, s *store.Store) {
		v := store.NewVault(d, "acme", keyring(t, 1))
		ana, eve := agentsvc.Owner{Issuer: "stoa", Subject: "ana"}, agentsvc.Owner{Issuer: "stoa", Subject: "eve"}
		if err := supply(t, s, v, needing(t, s), ana, bank, "secret"); err != nil {
			t.Fatal(err)
		}
		var b db.Batch
		b.Exec(nil, `UPDATE credential SET owner_sub = 'eve' WHERE tenant = 'acme'`)
		if err := d.Tenant("acme").Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if got := opened(t, v, eve, bank); got != "" {
			t.Errorf("eve opens %q", got)
		}
	})
}

// TestRenewSealed: after it the former master key can go.
func TestRenewSealed(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, ana := store.New(d, "acme"), agentsvc.Owner{Issuer: "stoa", Subject: "ana"}
		if err := supply(t, s, store.NewVault(d, "acme", keyring(t, 1)), needing(t, s), ana, bank, "secret"); err != nil {
			t.Fatal(err)
		}
		if err := store.RenewSealed(t.Context(), d, keyring(t, 1)); err != nil {
			t.Fatal(err)
		}
		next := store.NewVault(d, "acme", keyring(t, 2))
		if opened(t, next, ana, bank) != "" {
			t.Fatal("it opens without its master key")
		}
		if err := store.RenewSealed(t.Context(), d, keyring(t, 2, 1)); err != nil {
			t.Fatal(err)
		}
		if got := opened(t, next, ana, bank); got != "secret" {
			t.Errorf("after the change of the master key: %q", got)
		}
	})
}
