package billing

import (
	"context"
)

// ReadChanges calls [change.Feed.ReadChanges], so that tests need not wait for its interval.
func ReadChanges(s *Service, ctx context.Context) error { return s.feed.ReadChanges(ctx) } //nolint:revive // it stands for a method
