package surface

import (
	"context"
	"errors"
	"net"

	"stoa/tenancy/db"
)

// isUnavailable reports whether err tells of a dependency that does not answer at present, which is nobody's fault who
// called.
func isUnavailable(err error) bool {
	var network net.Error
	return db.IsUnavailable(err) || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
