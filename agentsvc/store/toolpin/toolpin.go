// Package toolpin keeps the definitions of tools that a tenant's MCP servers may have: the accepted one of each tool,
// and how it has changed since.
package toolpin

import (
	"context"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// Definition is a tool as its MCP server describes it: Body is the JSON definition, Hash its hash.
type Definition struct {
	Tool string
	Hash string
	Body string
}

// Pin is the accepted definition of a server's tool: the first one seen, or one that an operator accepted later.
// A server that changes a definition afterwards could change what a model does with the tool, so the change (Drift)
// needs acceptance (docs/tools.md).
type Pin struct {
	Server    string
	Accepted  Definition
	PinnedAt  time.Time
	Drift     *Definition // the current definition, if it differs from the accepted one; else nil
	DriftedAt time.Time
}

// Store reads and writes one tenant's pins. It is safe for concurrent use.
type Store struct {
	h      *db.Handle
	tenant string
}

// New returns the pins of a tenant in d.
func New(d *db.DB, tenant db.ID) *Store { return &Store{d.Tenant(tenant), string(tenant)} }

// List returns the tenant's pins ordered by server and tool.
func (s *Store) List(ctx context.Context) ([]Pin, error) {
	var pins []Pin
	var b db.Batch
	b.Query(func(r db.Row) error {
		p, err := scanPin(r)
		pins = append(pins, p)
		return err
	}, `SELECT server, tool, hash, body, pinned_at, drift_hash, drift_body, drifted_at FROM tool_pin WHERE tenant = $1 ORDER BY server, tool`, s.tenant)
	if err := s.h.Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("list pins: %w", err)
	}
	return pins, nil
}

// scanPin reads the columns of a pin. An empty drift hash means that there is no drift.
func scanPin(r db.Row) (Pin, error) {
	var p Pin
	var drift Definition
	var pinned, drifted int64
	err := r.Scan(&p.Server, &p.Accepted.Tool, &p.Accepted.Hash, &p.Accepted.Body, &pinned, &drift.Hash, &drift.Body, &drifted)
	p.PinnedAt = time.UnixMicro(pinned).UTC()
	if drift.Hash != "" {
		drift.Tool = p.Accepted.Tool
		p.Drift, p.DriftedAt = &drift, time.UnixMicro(drifted).UTC()
	}
	return p, err
}

// Update compares the tools of a server with their pins: it pins tools that have none, stores or clears the drift
// of the others, and returns the names of the tools that differ from their accepted definition.
func (s *Store) Update(ctx context.Context, server string, now []Definition) ([]string, error) {
	pins := map[string]Pin{}
	if err := s.h.RunTx(ctx, func(tx *db.Tx) error {
		return tx.Query(ctx, func(r db.Row) error {
			p, err := scanPin(r)
			pins[p.Accepted.Tool] = p
			return err
		}, `SELECT server, tool, hash, body, pinned_at, drift_hash, drift_body, drifted_at FROM tool_pin WHERE tenant = $1 AND server = $2`,
			s.tenant, server)
	}); err != nil {
		return nil, fmt.Errorf("read pins of %s: %w", server, err)
	}
	b := db.Batch{StorageKind: db.StoresMore}
	var drifted []string
	writes := false
	for _, d := range now {
		p, ok := pins[d.Tool]
		// Every statement repeats the condition that was read, so that a concurrent acceptance is not undone.
		switch {
		case !ok:
			b.Exec(nil, `INSERT INTO tool_pin (tenant, server, tool, hash, body, pinned_at, drift_hash, drift_body, drifted_at)
				VALUES ($1, $2, $3, $4, $5, stoa_now(), '', '', 0) ON CONFLICT (tenant, server, tool) DO NOTHING`, s.tenant, server, d.Tool, d.Hash, d.Body)
		case p.Accepted.Hash == d.Hash && p.Drift != nil:
			b.Exec(nil, `UPDATE tool_pin SET drift_hash = '', drift_body = '', drifted_at = 0
				WHERE tenant = $1 AND server = $2 AND tool = $3 AND hash = $4`, s.tenant, server, d.Tool, d.Hash)
		case p.Accepted.Hash != d.Hash && (p.Drift == nil || p.Drift.Hash != d.Hash):
			b.Exec(nil, `UPDATE tool_pin SET drift_hash = $4, drift_body = $5, drifted_at = stoa_now()
				WHERE tenant = $1 AND server = $2 AND tool = $3 AND hash <> $4`, s.tenant, server, d.Tool, d.Hash, d.Body)
		default:
			if p.Drift != nil {
				drifted = append(drifted, d.Tool)
			}
			continue
		}
		writes = true
		if ok && p.Accepted.Hash != d.Hash {
			drifted = append(drifted, d.Tool)
		}
	}
	// The usual case, in which nothing changed, needs no write.
	if !writes {
		return drifted, nil
	}
	if err := s.h.Write(ctx, &b); err != nil {
		return nil, fmt.Errorf("write pins of %s: %w", server, err)
	}
	return drifted, nil
}

// Accept makes the drifted definition of a tool the accepted one; by, an operator, is named in the audit entry. It
// returns [agentsvc.ErrNotFound] for a tool without a pin, and an error with [agentsvc.CodeInvalid] if the drifted
// definition does not have this hash: the operator would accept another definition than the one reviewed. Accepting it
// again changes nothing.
func (s *Store) Accept(ctx context.Context, by audit.Actor, server, tool, hash string) (Pin, error) {
	var pin Pin
	err := s.h.RunTx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE tool_pin SET hash = drift_hash, body = drift_body, pinned_at = stoa_now(), drift_hash = '', drift_body = '', drifted_at = 0
			WHERE tenant = $1 AND server = $2 AND tool = $3 AND drift_hash = $4 AND drift_hash <> ''`, s.tenant, server, tool, hash)
		if err != nil {
			return err
		}
		found := false
		err = tx.Query(ctx, func(r db.Row) (err error) {
			found = true
			pin, err = scanPin(r)
			return err
		}, `SELECT server, tool, hash, body, pinned_at, drift_hash, drift_body, drifted_at FROM tool_pin WHERE tenant = $1 AND server = $2 AND tool = $3`,
			s.tenant, server, tool)
		switch {
		case err != nil:
			return err
		case !found:
			return agentsvc.ErrNotFound
		case n == 0 && pin.Accepted.Hash != hash:
			return agentsvc.NewInvalidError("hash", "is not that of the definition which waits to be accepted")
		case n == 0: // it was accepted before
			return nil
		}
		return audit.Insert(ctx, tx, audit.Entry{
			Actor: by, Action: "app.tools.accept", AppID: db.ID(s.tenant), Detail: map[string]any{"server": server, "tool": tool, "hash": hash},
		})
	})
	if err != nil {
		return Pin{}, fmt.Errorf("accept tool %s of %s: %w", tool, server, err)
	}
	return pin, nil
}
