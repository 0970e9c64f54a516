package invoice

import (
	"context"

	"stoa/tenancy"
	"stoa/tenancy/audit"
)

// GrantCredit exports grantCredit: tests create credits that have expired, which AddCredit refuses.
func GrantCredit(s *Service, ctx context.Context, app tenancy.App, c Credit) error { //nolint:revive // it stands for a method
	_, err := s.grantCredit(ctx, audit.System, app, c)
	return err
}
