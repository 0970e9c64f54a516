package apierror

import (
	"context"
	"errors"
	"net"

	"stoa/tenancy/db"
)

// IsUnavailable reports whether err says that a dependency did not answer in time, which is neither the caller's fault
// nor a bug: the database, the network, a deadline.
func IsUnavailable(err error) bool {
	var network net.Error
	return db.IsUnavailable(err) || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
