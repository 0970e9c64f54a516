// Package vault keeps the credentials that users have supplied for tools, sealed under the tenants' data keys.
package vault

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

// Vault keeps the credentials that one tenant's users have supplied for tools, one per user and tool. Each value is
// sealed with tenant, owner, tool, header and server as associated data, so a row that is copied elsewhere does not
// open.
type Vault struct {
	h      *db.Handle
	tenant string
	keys   *keyring.Keyring
	audit  audit.Target
}

// New returns the vault of a tenant.
func New(d *db.DB, tenant db.ID, keys *keyring.Keyring) *Vault {
	return &Vault{d.Tenant(tenant), string(tenant), keys, audit.NewTarget(tenant)}
}

// WithAuditIn returns a vault of the same credentials whose audit entries are written to d.
func (v *Vault) WithAuditIn(d *db.DB) *Vault {
	other := *v
	other.audit = v.audit.In(d)
	return &other
}

// SealedCredential is a credential as it is stored.
type SealedCredential struct {
	agentsvc.Credential
	Owner       agentsvc.Owner
	Created     time.Time
	sealedValue string // ciphertext, base64
	masterKey   string // id of the master key that wraps the value's key
}

// sealContext returns the associated data of a credential. The parts are quoted, so that no two credentials share it.
func sealContext(owner agentsvc.Owner, c agentsvc.Credential) string {
	return fmt.Sprintf("credential %q %q %q %q %q", owner.Issuer, owner.Subject, c.Tool, c.Header, c.Server)
}

// SealCredential seals the value of an owner's credential. It stores nothing; a decision does (QueueInsert).
func (v *Vault) SealCredential(owner agentsvc.Owner, c agentsvc.Credential, value string) (SealedCredential, error) {
	sealed, err := v.keys.SealValue(v.tenant, sealContext(owner, c), []byte(value))
	if err != nil {
		return SealedCredential{}, fmt.Errorf("seal a credential for %s: %w", c.Tool, err)
	}
	return SealedCredential{Credential: c, Owner: owner, sealedValue: base64.StdEncoding.EncodeToString(sealed), masterKey: v.keys.CurrentKeyID()}, nil
}

// OpenCredential returns the value of an owner's credential and its stored form. It returns [agentsvc.ErrNotFound] if
// there is none for this header and server, or if it cannot be opened, for example because its master key was removed:
// the owner is then asked again.
func (v *Vault) OpenCredential(ctx context.Context, owner agentsvc.Owner, c agentsvc.Credential) (value string, stored SealedCredential, err error) {
	stored = SealedCredential{Owner: owner}
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&stored.Tool, &stored.Header, &stored.Server, &stored.sealedValue) },
		`SELECT tool, header, server, value FROM credential WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3 AND tool = $4`,
		v.tenant, owner.Subject, owner.Issuer, c.Tool)
	if err := v.h.Do(ctx, &b); err != nil {
		return "", stored, fmt.Errorf("read the credential for %s: %w", c.Tool, err)
	}
	raw, err := base64.StdEncoding.DecodeString(stored.sealedValue)
	if stored.Credential != c || err != nil {
		return "", stored, agentsvc.ErrNotFound
	}
	plain, err := v.keys.OpenValue(v.tenant, sealContext(owner, c), raw)
	if err != nil {
		return "", stored, agentsvc.ErrNotFound
	}
	return string(plain), stored, nil
}

// DropCredential deletes a credential that [Vault.OpenCredential] returned, for example because the server refused
// it. A newer one is kept: the sealed value is part of the condition.
func (v *Vault) DropCredential(ctx context.Context, stored SealedCredential) error {
	_, err := v.deleteMatching(ctx, audit.Entry{Actor: audit.System, Action: "credential.drop", Detail: map[string]any{
		"user": stored.Owner.Subject, "issuer": stored.Owner.Issuer, "tool": stored.Tool, "server": stored.Server,
	}}, columnMatch{"owner_sub", stored.Owner.Subject}, columnMatch{"owner_iss", stored.Owner.Issuer}, columnMatch{"tool", stored.Tool}, columnMatch{"value", stored.sealedValue})
	if err != nil {
		return fmt.Errorf("delete the credential for %s: %w", stored.Tool, err)
	}
	return nil
}

// ListCredentials returns an owner's credentials ordered by tool, without values.
func (v *Vault) ListCredentials(ctx context.Context, owner agentsvc.Owner) (list []SealedCredential, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error {
		stored := SealedCredential{Owner: owner}
		var at int64
		err := r.Scan(&stored.Tool, &stored.Header, &stored.Server, &at)
		stored.Created = time.UnixMicro(at).UTC()
		list = append(list, stored)
		return err
	}, `SELECT tool, header, server, created_at FROM credential WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3 ORDER BY tool`,
		v.tenant, owner.Subject, owner.Issuer)
	if err := v.h.Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("list credentials: %w", err)
	}
	return list, nil
}

// ForgetCredential deletes an owner's credential for a tool at the owner's request, which came from from, or returns
// [agentsvc.ErrNotFound] if there is none.
func (v *Vault) ForgetCredential(ctx context.Context, owner agentsvc.Owner, from audit.Origin, tool string) error {
	n, err := v.deleteMatching(ctx, audit.Entry{Actor: audit.NewUserActor(owner, from), Action: "credential.forget", Detail: map[string]any{"tool": tool}},
		columnMatch{"owner_sub", owner.Subject}, columnMatch{"owner_iss", owner.Issuer}, columnMatch{"tool", tool})
	if err != nil {
		return fmt.Errorf("delete a credential: %w", err)
	}
	if n == 0 {
		return agentsvc.ErrNotFound
	}
	return nil
}

// ForgetUserCredentials deletes all credentials of the users with a subject, of any issuer if issuer is nil; by is
// for the audit entry.
func (v *Vault) ForgetUserCredentials(ctx context.Context, by audit.Actor, subject string, issuer *string) error {
	e := audit.Entry{Actor: by, Action: "credential.forget", Detail: map[string]any{"user": subject}}
	matches := []columnMatch{{"owner_sub", subject}}
	if issuer != nil {
		e.Detail["issuer"] = *issuer
		matches = append(matches, columnMatch{"owner_iss", *issuer})
	}
	if _, err := v.deleteMatching(ctx, e, matches...); err != nil {
		return fmt.Errorf("delete a user's credentials: %w", err)
	}
	return nil
}

// errNothingDeleted rolls back the audit entry in another database when there was nothing to delete.
var errNothingDeleted = errors.New("nothing to delete")

// columnMatch is a column, named by this package and never by a caller, and the value that rows must have in it.
type columnMatch struct{ column, value string }

// deleteMatching deletes the credentials that match and returns their number. The audit entry is written only if
// there are any.
func (v *Vault) deleteMatching(ctx context.Context, e audit.Entry, matches ...columnMatch) (n int64, err error) {
	matches = append([]columnMatch{{"tenant", v.tenant}}, matches...)
	var args []any
	for _, m := range matches {
		args = append(args, m.value)
	}
	// The entry's condition uses the same arguments from $10 on, the DELETE from $1 on.
	chosen := func(first int) string {
		conditions := make([]string, len(matches))
		for i, m := range matches {
			conditions[i] = fmt.Sprintf("%s = $%d", m.column, first+i)
		}
		return strings.Join(conditions, " AND ")
	}
	var b db.Batch
	err = v.audit.Write(ctx, &b, []audit.Entry{e}, `EXISTS (SELECT 1 FROM credential WHERE `+chosen(10)+`)`, args, func() error {
		b.Exec(&n, `DELETE FROM credential WHERE `+chosen(1), args...)
		if err := v.h.Do(ctx, &b); err != nil || n > 0 {
			return err
		}
		return errNothingDeleted
	})
	if errors.Is(err, errNothingDeleted) {
		err = nil
	}
	return n, err
}

// QueueInsert adds to b that c is stored, if the tenant's task has the given epoch and sequence: a credential is
// supplied by a decision on the task. It replaces an earlier one of the same owner and tool.
func QueueInsert(b *db.Batch, tenant string, c SealedCredential, task agentsvc.TaskID, epoch, seq int64) {
	b.Exec(nil, `INSERT INTO credential (tenant, owner_iss, owner_sub, tool, header, server, value, master_key, created_at)
		SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS TEXT), CAST($7 AS TEXT),
			CAST($8 AS TEXT), stoa_now()
		WHERE EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $9 AND epoch = $10 AND seq = $11)
		ON CONFLICT (tenant, owner_sub, owner_iss, tool) DO UPDATE SET header = excluded.header, server = excluded.server,
			value = excluded.value, master_key = excluded.master_key, created_at = excluded.created_at`,
		tenant, c.Owner.Issuer, c.Owner.Subject, c.Tool, c.Header, c.Server, c.sealedValue, c.masterKey, string(task), epoch, seq)
}

// CheckCredential returns an error with [agentsvc.CodeInvalid] about at if a credential's value cannot be sent as a
// header; it does not quote the value.
func CheckCredential(at, value string) error {
	switch {
	case value == "":
		return agentsvc.NewInvalidError(at, "is missing: the credential, as a text")
	case len(value) > maxCredential:
		return agentsvc.NewInvalidError(at, "is longer than %d bytes", maxCredential)
	case strings.TrimSpace(value) != value:
		return agentsvc.NewInvalidError(at, "begins or ends with a space")
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return agentsvc.NewInvalidError(at, "holds a control character")
	}
	return nil
}

// maxCredential bounds a credential's value, in bytes.
const maxCredential = 8 << 10
