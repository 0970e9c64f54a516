package store

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Vault keeps what one tenant's users have entrusted to its tools, a credential for each tool. It seals every value with
// its tenant, owner, tool, header and server, so that it opens nowhere else.
type Vault struct {
	h      *db.Handle
	tenant string
	keys   *tenancy.Keyring
	audit  audit
}

// NewVault returns the vault of a tenant.
func NewVault(d *db.DB, tenant db.ID, keys *tenancy.Keyring) *Vault {
	return &Vault{d.Tenant(tenant), string(tenant), keys, audit{tenant: tenant}}
}

// Sealed is a credential as it is kept.
type Sealed struct {
	agentsvc.Credential
	Owner   agentsvc.Owner
	Created time.Time
	value   string
	master  string
}

// field is where a credential's value belongs.
func field(owner agentsvc.Owner, c agentsvc.Credential) string {
	return fmt.Sprintf("credential %q %q %q %q %q", owner.Issuer, owner.Subject, c.Tool, c.Header, c.Server)
}

// Seal seals the value of an owner's credential. It keeps nothing: that is the part of [Store.Decide].
func (v *Vault) Seal(owner agentsvc.Owner, c agentsvc.Credential, value string) (Sealed, error) {
	sealed, err := v.keys.Seal(v.tenant, field(owner, c), []byte(value))
	if err != nil {
		return Sealed{}, fmt.Errorf("seal a credential for %s: %w", c.Tool, err)
	}
	return Sealed{Credential: c, Owner: owner, value: base64.StdEncoding.EncodeToString(sealed), master: v.keys.Current()}, nil
}

// Open returns the value of an owner's credential. It returns [agentsvc.ErrNotFound] if there is none for that header and
// server, or only one sealed under a master key that is gone: who is asked for it again can supply it.
func (v *Vault) Open(ctx context.Context, owner agentsvc.Owner, c agentsvc.Credential) (value string, kept Sealed, err error) {
	kept = Sealed{Owner: owner}
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&kept.Tool, &kept.Header, &kept.Server, &kept.value) },
		`SELECT tool, header, server, value FROM credential WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3 AND tool = $4`,
		v.tenant, owner.Subject, owner.Issuer, c.Tool)
	if err := v.h.Do(ctx, &b); err != nil {
		return "", kept, fmt.Errorf("read the credential for %s: %w", c.Tool, err)
	}
	raw, err := base64.StdEncoding.DecodeString(kept.value)
	if kept.Credential != c || err != nil {
		return "", kept, agentsvc.ErrNotFound
	}
	plain, err := v.keys.Open(v.tenant, field(owner, c), raw)
	if err != nil {
		return "", kept, agentsvc.ErrNotFound
	}
	return string(plain), kept, nil
}

// Drop forgets a credential that [Vault.Open] returned, unless another has taken its place.
func (v *Vault) Drop(ctx context.Context, kept Sealed) error {
	_, err := v.forget(ctx, tenancy.Entry{Actor: tenancy.System, Action: "credential.drop", Detail: map[string]any{
		"user": kept.Owner.Subject, "issuer": kept.Owner.Issuer, "tool": kept.Tool, "server": kept.Server,
	}}, match{"owner_sub", kept.Owner.Subject}, match{"owner_iss", kept.Owner.Issuer}, match{"tool", kept.Tool}, match{"value", kept.value})
	if err != nil {
		return fmt.Errorf("drop the credential for %s: %w", kept.Tool, err)
	}
	return nil
}

// List returns an owner's credentials by tool.
func (v *Vault) List(ctx context.Context, owner agentsvc.Owner) (list []Sealed, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error {
		kept := Sealed{Owner: owner}
		var at int64
		err := r.Scan(&kept.Tool, &kept.Header, &kept.Server, &at)
		kept.Created = time.UnixMicro(at).UTC()
		list = append(list, kept)
		return err
	}, `SELECT tool, header, server, created_at FROM credential WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3 ORDER BY tool`,
		v.tenant, owner.Subject, owner.Issuer)
	if err := v.h.Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("list credentials: %w", err)
	}
	return list, nil
}

// Forget erases an owner's credential for a tool, as the owner wishes. It returns [agentsvc.ErrNotFound] if there is none.
func (v *Vault) Forget(ctx context.Context, owner agentsvc.Owner, tool string) error {
	n, err := v.forget(ctx, tenancy.Entry{Actor: owner.Subject, Issuer: owner.Issuer, Action: "credential.forget", Detail: map[string]any{"tool": tool}},
		match{"owner_sub", owner.Subject}, match{"owner_iss", owner.Issuer}, match{"tool", tool})
	if err != nil {
		return fmt.Errorf("forget a credential: %w", err)
	}
	if n == 0 {
		return agentsvc.ErrNotFound
	}
	return nil
}

// ForgetUser erases, as by wishes, all credentials of users with the subject, of the issuer unless it is nil.
func (v *Vault) ForgetUser(ctx context.Context, by agentsvc.Owner, subject string, issuer *string) error {
	e := tenancy.Entry{Actor: by.Subject, Issuer: by.Issuer, Action: "credential.forget", Detail: map[string]any{"user": subject}}
	matches := []match{{"owner_sub", subject}}
	if issuer != nil {
		e.Detail["issuer"] = *issuer
		matches = append(matches, match{"owner_iss", *issuer})
	}
	if _, err := v.forget(ctx, e, matches...); err != nil {
		return fmt.Errorf("forget a user's credentials: %w", err)
	}
	return nil
}

// errNothing says that there was nothing to forget, and so nothing to note.
var errNothing = errors.New("nothing was there")

// match is a column of ours and the value that rows must have in it.
type match struct{ column, value string }

// forget erases the credentials that match, and returns how many they were. What was erased, and only that, stands on the
// audit trail.
func (v *Vault) forget(ctx context.Context, e tenancy.Entry, matches ...match) (n int64, err error) {
	matches = append([]match{{"tenant", v.tenant}}, matches...)
	var args []any
	for _, m := range matches {
		args = append(args, m.value)
	}
	chosen := func(first int) string {
		conditions := make([]string, len(matches))
		for i, m := range matches {
			conditions[i] = fmt.Sprintf("%s = $%d", m.column, first+i)
		}
		return strings.Join(conditions, " AND ")
	}
	var b db.Batch
	err = v.audit.noted(ctx, &b, []tenancy.Entry{e}, `EXISTS (SELECT 1 FROM credential WHERE `+chosen(10)+`)`, args, func() error {
		b.Exec(&n, `DELETE FROM credential WHERE `+chosen(1), args...)
		if err := v.h.Do(ctx, &b); err != nil || n > 0 {
			return err
		}
		return errNothing
	})
	if errors.Is(err, errNothing) {
		err = nil
	}
	return n, err
}

// insertCredential adds to b that a credential was supplied to a task, if the guard holds. It takes the place of an
// earlier one.
func (s *Store) insertCredential(b *db.Batch, id agentsvc.TaskID, c Sealed, g *guard) {
	b.Exec(nil, `INSERT INTO credential (tenant, owner_iss, owner_sub, tool, header, server, value, master_key, created_at)
		SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS TEXT), CAST($7 AS TEXT),
			CAST($8 AS TEXT), stoa_now()
		WHERE EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $9 AND epoch = $10 AND seq = $11)
		ON CONFLICT (tenant, owner_sub, owner_iss, tool) DO UPDATE SET header = excluded.header, server = excluded.server,
			value = excluded.value, master_key = excluded.master_key, created_at = excluded.created_at`,
		s.tenant, c.Owner.Issuer, c.Owner.Subject, c.Tool, c.Header, c.Server, c.value, c.master, string(id), g.epoch, g.seq)
}

// CheckCredential says what is wrong with a credential's value, as an [agentsvc.InvalidError] that does not quote it.
func CheckCredential(at, value string) error {
	switch {
	case value == "":
		return agentsvc.Invalid(at, "is missing: the credential, as a text")
	case len(value) > maxCredential:
		return agentsvc.Invalid(at, "is longer than %d bytes", maxCredential)
	case strings.TrimSpace(value) != value:
		return agentsvc.Invalid(at, "begins or ends with a space")
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return agentsvc.Invalid(at, "holds a control character")
	}
	return nil
}

// maxCredential bounds a credential's value, in bytes.
const maxCredential = 8 << 10
