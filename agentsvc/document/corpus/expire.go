package corpus

import (
	"context"
	"fmt"
	"time"

	"stoa/tenancy/db"
)

// ExpireLeases ends the leases of all passes, so that they can be claimed at once. It is for the start of a process that is
// alone on its database: what held them was killed.
func (p *Passes) ExpireLeases(ctx context.Context) error {
	var b db.Batch
	b.Exec(nil, `UPDATE index_pass SET holder = '', due_at = stoa_now() WHERE holder <> ''`)
	if err := p.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("end the leases of indexing: %w", err)
	}
	return nil
}

// RequestListings makes the next pass of each store with a source begin with a listing, and makes it due now unless a
// process holds it. Stores that had a pass within age are left out. It is for the start of a process.
func (p *Passes) RequestListings(ctx context.Context, age time.Duration) error {
	var b db.Batch
	b.Exec(nil, `UPDATE index_pass SET cursor = '', due_at = CASE WHEN holder = '' AND due_at > stoa_now() THEN stoa_now() ELSE due_at END
		WHERE served_at < stoa_now() - $1 AND EXISTS (SELECT 1 FROM document_store s
			WHERE s.tenant = index_pass.tenant AND s.store = index_pass.store AND s.source <> 'upload')`, age.Microseconds())
	if err := p.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("request listings of all sources: %w", err)
	}
	return nil
}
