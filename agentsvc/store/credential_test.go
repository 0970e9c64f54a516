package store_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/vault"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/keyring"
)

func newKeyring(t *testing.T, masters ...byte) *keyring.Keyring {
	t.Helper()
	raw := make([][]byte, len(masters))
	for i, m := range masters {
		raw[i] = bytes.Repeat([]byte{m}, 32)
	}
	k, err := keyring.New(raw...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var (
	bankCredential = agentsvc.Credential{Tool: "bank", Header: "Authorization", Server: "https://bank.example.com"}
	postCredential = agentsvc.Credential{Tool: "post", Header: "X-Key", Server: "https://post.example.com"}
)

// createTaskNeedingCredentials accepts a task whose calls c1 and c2 need credentials.
func createTaskNeedingCredentials(t *testing.T, s *store.Store) store.StoredTask {
	t.Helper()
	run := createTask(t, s, newRun("w1"))
	approvalFor := func(id agentsvc.CallID, c agentsvc.Credential) agentsvc.Event {
		return agentsvc.Event{Approval: &agentsvc.Approval{
			Call: agentsvc.ToolCall{ID: id, Name: c.Tool}, Kind: agentsvc.SupplyCredential, Prompt: "Your key?", Credential: c,
		}}
	}
	rec := store.Record{
		Events:   sequenceEvents(run.Task, 3, messageEvent("think"), approvalFor("c1", bankCredential), approvalFor("c2", postCredential), statusEvent(agentsvc.AuthRequired, agentMessage("Your keys?"))),
		EndState: store.InputRequired,
	}
	if err := s.Runs.WriteRecord(t.Context(), &run, rec); err != nil {
		t.Fatal(err)
	}
	return loadWithApprovals(t, s, run.Task)
}

// supplyCredential writes that one of seen's credentials was supplied.
func supplyCredential(t *testing.T, s *store.Store, v *vault.Vault, seen store.StoredTask, owner agentsvc.Owner, c agentsvc.Credential, value string) error {
	t.Helper()
	sealed, err := v.SealCredential(owner, c, value)
	if err != nil {
		t.Fatal(err)
	}
	return s.Approvals.RecordDecisions(t.Context(), seen, store.DecisionRecord{
		Events: sequenceEvents(seen.ID, seen.Seq+1, statusEvent(agentsvc.AuthRequired, agentMessage("More."))), Credentials: []vault.SealedCredential{sealed},
	})
}

func openCredential(t *testing.T, v *vault.Vault, owner agentsvc.Owner, c agentsvc.Credential) string {
	t.Helper()
	value, _, err := v.OpenCredential(t.Context(), owner, c)
	if err != nil && !errors.Is(err, agentsvc.ErrNotFound) {
		t.Fatal(err)
	}
	return value
}

func TestVault(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		seen := createTaskNeedingCredentials(t, s)
		if diff := cmp.Diff(bankCredential, seen.Approvals[0].Credential); diff != "" {
			t.Error(diff)
		}
		v := vault.New(d, "acme", newKeyring(t, 1))
		ana, eve := agentsvc.Owner{Issuer: "stoa", Subject: "ana"}, agentsvc.Owner{Issuer: "stoa", Subject: "eve"}
		if err := supplyCredential(t, s, v, seen, ana, bankCredential, "first"); err != nil {
			t.Fatal(err)
		}
		if err := supplyCredential(t, s, v, seen, ana, bankCredential, "late"); !errors.Is(err, agentsvc.ErrTaskChanged) {
			t.Errorf("supplied to a task that moved on: %v", err)
		}
		if got := openCredential(t, v, ana, bankCredential); got != "first" {
			t.Errorf("opened %q", got)
		}
		_, old, _ := v.OpenCredential(t.Context(), ana, bankCredential)
		if err := supplyCredential(t, s, v, loadWithApprovals(t, s, seen.ID), ana, bankCredential, "second"); err != nil {
			t.Fatal(err)
		}
		if err := v.DropCredential(t.Context(), old); err != nil || openCredential(t, v, ana, bankCredential) != "second" {
			t.Errorf("dropping what was replaced: %v, then %q", err, openCredential(t, v, ana, bankCredential))
		}
		elsewhere := bankCredential
		elsewhere.Server = "https://evil.example.com"
		other := bankCredential
		other.Header = "X-Key"
		for name, got := range map[string]string{
			"another server": openCredential(t, v, ana, elsewhere), "another header": openCredential(t, v, ana, other), "another user": openCredential(t, v, eve, bankCredential),
			"another issuer": openCredential(t, v, agentsvc.Owner{Issuer: "else", Subject: "ana"}, bankCredential), "another tool": openCredential(t, v, ana, postCredential),
			"another tenant": openCredential(t, vault.New(d, "globex", newKeyring(t, 1)), ana, bankCredential), "another master key": openCredential(t, vault.New(d, "acme", newKeyring(t, 2)), ana, bankCredential),
		} {
			if got != "" {
				t.Errorf("%s opens it: %q", name, got)
			}
		}
		if err := supplyCredential(t, s, v, loadWithApprovals(t, s, seen.ID), ana, postCredential, "key"); err != nil {
			t.Fatal(err)
		}
		list, err := v.ListCredentials(t.Context(), ana)
		if err != nil || len(list) != 2 || list[0].Credential != bankCredential || list[1].Credential != postCredential || list[0].Created.IsZero() {
			t.Errorf("listed %+v, %v", list, err)
		}
		if list, err := v.ListCredentials(t.Context(), eve); err != nil || len(list) != 0 {
			t.Errorf("eve has %+v, %v", list, err)
		}
		if err := v.ForgetCredential(t.Context(), eve, audit.Origin{}, "bank"); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("eve forgets: %v", err)
		}
		if err := v.ForgetCredential(t.Context(), ana, audit.Origin{}, "bank"); err != nil || openCredential(t, v, ana, bankCredential) != "" {
			t.Errorf("forgotten: %v", err)
		}
		issuer := "else"
		if err := v.ForgetUserCredentials(t.Context(), audit.Actor{Name: ana.Subject, Issuer: ana.Issuer}, "ana", &issuer); err != nil || openCredential(t, v, ana, postCredential) != "key" {
			t.Errorf("another issuer's ana: %v", err)
		}
		if err := v.ForgetUserCredentials(t.Context(), audit.Actor{Name: ana.Subject, Issuer: ana.Issuer}, "ana", nil); err != nil || openCredential(t, v, ana, postCredential) != "" {
			t.Errorf("all of ana: %v", err)
		}
	})
}

// TestSwap: a row that is copied to another user, by someone with write access to the database, does not open.
func TestSwap(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		v := vault.New(d, "acme", newKeyring(t, 1))
		ana, eve := agentsvc.Owner{Issuer: "stoa", Subject: "ana"}, agentsvc.Owner{Issuer: "stoa", Subject: "eve"}
		if err := supplyCredential(t, s, v, createTaskNeedingCredentials(t, s), ana, bankCredential, "secret"); err != nil {
			t.Fatal(err)
		}
		var b db.Batch
		b.Exec(nil, `UPDATE credential SET owner_sub = 'eve' WHERE tenant = 'acme'`)
		if err := d.Tenant("acme").Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if got := openCredential(t, v, eve, bankCredential); got != "" {
			t.Errorf("eve opens %q", got)
		}
	})
}

// TestRenewSealed: after RewrapSealedKeys the former master key is not needed any more.
func TestRenewSealed(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, ana := store.New(d, "acme"), agentsvc.Owner{Issuer: "stoa", Subject: "ana"}
		if err := supplyCredential(t, s, vault.New(d, "acme", newKeyring(t, 1)), createTaskNeedingCredentials(t, s), ana, bankCredential, "secret"); err != nil {
			t.Fatal(err)
		}
		if err := vault.RewrapKeys(t.Context(), d, newKeyring(t, 1)); err != nil {
			t.Fatal(err)
		}
		next := vault.New(d, "acme", newKeyring(t, 2))
		if openCredential(t, next, ana, bankCredential) != "" {
			t.Fatal("it opens without its master key")
		}
		if err := vault.RewrapKeys(t.Context(), d, newKeyring(t, 2, 1)); err != nil {
			t.Fatal(err)
		}
		if got := openCredential(t, next, ana, bankCredential); got != "secret" {
			t.Errorf("after the change of the master key: %q", got)
		}
	})
}
