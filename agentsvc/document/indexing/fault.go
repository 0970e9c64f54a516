package indexing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// errFault reports that code which reads what an app brings has panicked. The data of one app must not end the process of
// all of them.
var errFault = errors.New("internal fault")

// faultReason is what an uploader reads about errFault.
const faultReason = "internal fault: the server's log has a line about it"

// containFault calls f and returns a panic of it as errFault, which it logs.
func containFault(ctx context.Context, log *slog.Logger, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.ErrorContext(ctx, "the indexing of documents panicked", "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			err = errFault
		}
	}()
	return f()
}
