package tenancy

import (
	"context"
	"encoding/json"
	"fmt"

	"stoa/agentsvc"
	"stoa/tenancy/db"
	"stoa/tenancy/grant"
)

// checkGrantOverlap refuses grants with which programs of one app could write where another app has its SQLite files.
// SQLite reads auxiliary files next to a database, and opens them with the rights of this server, so such a program
// could reach the other app's data. The folders of one and the same app are for its own configuration to separate. The
// LIKE conditions only preselect rows; the decoded grants decide.
func (s *Service) checkGrantOverlap(ctx context.Context, tenant db.ID, grants grant.List) error {
	if !grants.Has(grant.SQLite) && !grants.Has(grant.Command) {
		return nil
	}
	var found error
	var b db.Batch
	b.Query(func(r db.Row) error {
		var name, raw string
		var other grant.List
		if err := r.Scan(&name, &raw); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(raw), &other); err != nil {
			return fmt.Errorf("grants of app %s: %w", name, err)
		}
		if folder, files, overlap := grants.FindProgramOverlap(other); overlap {
			found = agentsvc.NewInvalidError("grants", "command: the folder %s is, holds or lies in %s, where the app %s has SQLite files: name a folder apart from it", folder, files, name)
		} else if folder, files, overlap := other.FindProgramOverlap(grants); overlap {
			found = agentsvc.NewInvalidError("grants", "sqlite: its files lie in %s by filesystem, and the app %s runs programs in %s: name folders that do not overlap", files, name, folder)
		}
		return nil
	}, `SELECT name, grants FROM app WHERE tenant <> $1 AND status <> 'deleting' AND (grants LIKE '%"sqlite"%' OR grants LIKE '%"command"%') ORDER BY name`, string(tenant))
	if err := s.store.db.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("read the grants of other apps: %w", err)
	}
	return found
}
