package corpus

import (
	"context"
	"fmt"

	"stoa/tenancy/db"
)

// ChangedApp is an app that has changed since its document stores were adapted to its configuration.
type ChangedApp struct {
	ID         db.ID
	Generation int64 // of the app, not of an index
}

// FindChangedApps returns up to n changed apps in the order of their ids after one.
func (p *Passes) FindChangedApps(ctx context.Context, after db.ID, n int) (changed []ChangedApp, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error {
		var a ChangedApp
		err := r.Scan((*string)(&a.ID), &a.Generation)
		changed = append(changed, a)
		return err
	}, `SELECT a.tenant, a.generation FROM app a LEFT JOIN index_app i ON i.tenant = a.tenant
		WHERE a.tenant > $1 AND a.status <> 'deleting' AND (i.generation IS NULL OR i.generation < a.generation) ORDER BY a.tenant LIMIT $2`, string(after), int64(n))
	if err := p.h.Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("look for apps whose document stores may have changed: %w", err)
	}
	return changed, nil
}

// SaveConfigured records that the document stores are those of the configuration at a generation of the app.
func (x *Index) SaveConfigured(ctx context.Context, generation int64) error {
	var b db.Batch
	b.Exec(nil, `INSERT INTO index_app (tenant, generation) VALUES ($1, $2)
		ON CONFLICT (tenant) DO UPDATE SET generation = excluded.generation WHERE index_app.generation < excluded.generation`, x.tenant, generation)
	if err := x.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("record the configuration of document stores: %w", err)
	}
	return nil
}

// EndPasses is for an app that is being deleted: a process that has a pass over one of its stores can write nothing more, and
// no further pass is claimed.
func (x *Index) EndPasses(ctx context.Context) error {
	var b db.Batch
	b.Exec(nil, `DELETE FROM index_pass WHERE tenant = $1`, x.tenant)
	if err := x.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("end the indexing of an app: %w", err)
	}
	return nil
}

// ListCollections returns the collections in external vector stores that have vectors of the tenant.
func (x *Index) ListCollections(ctx context.Context) (all []string, err error) {
	err = x.read(ctx, "list collections of vectors", func(r db.Row) error {
		var name string
		err := r.Scan(&name)
		all = append(all, name)
		return err
	}, `SELECT collection FROM document_live WHERE tenant = $1 AND collection <> '' UNION SELECT collection FROM hidden_revision WHERE tenant = $1 AND collection <> ''
		UNION SELECT collection FROM removed_chunk WHERE tenant = $1 ORDER BY 1`, x.tenant)
	return all, err
}
