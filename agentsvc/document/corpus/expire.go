package corpus

import (
	"context"
	"fmt"

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
