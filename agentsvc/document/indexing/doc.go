package indexing

import "errors"

// errStopped is the cause with which a pass ends because the process drains or the app is not active any more.
var errStopped = errors.New("the pass was stopped")
