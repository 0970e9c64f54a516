package store

import (
	"context"
	"encoding/json"
	"fmt"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// maxRoles bounds the roles that a run keeps, maxRolesBytes their length together. Roles beyond are left out: their caller
// then reads fewer documents, never more.
const (
	maxRoles      = 256
	maxRolesBytes = 8 << 10
)

// encodeRoles returns roles as column run.roles has them.
func encodeRoles(roles []string) string {
	size := 0
	for i, role := range roles {
		if size += len(role); i == maxRoles || size > maxRolesBytes {
			roles = roles[:i]
			break
		}
	}
	if len(roles) == 0 {
		return ""
	}
	encoded, _ := json.Marshal(roles) // strings can always be encoded
	return string(encoded)
}

// decodeRoles is the inverse of encodeRoles. What is no list of roles has none.
func decodeRoles(column string) (roles []string) {
	if column == "" || json.Unmarshal([]byte(column), &roles) != nil {
		return nil
	}
	return roles
}

// LoadRoles returns the roles of the caller in the last turn of a task, for a turn that continues or repeats it without its
// caller.
func (s *Runs) LoadRoles(ctx context.Context, id agentsvc.TaskID) ([]string, error) {
	column := ""
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&column) }, `SELECT roles FROM run WHERE tenant = $1 AND task = $2 ORDER BY turn DESC LIMIT 1`, s.tenant, string(id))
	if err := s.h.Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read the roles of the caller of task %s: %w", id, err)
	}
	return decodeRoles(column), nil
}
