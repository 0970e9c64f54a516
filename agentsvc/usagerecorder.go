package agentsvc

import "context"

// UsageRecorder is whom model calls are made for.
type UsageRecorder struct {
	Task  TaskID
	Epoch int64 // of the task
	Agent string
	Owner Owner
	// Record takes what a call has used, from any goroutine: its agent may be stopped before it can tell.
	Record func(Usage)
}

type usageRecorderKey struct{}

// WithUsageRecorder returns a context by which model calls know whom they are made for.
func WithUsageRecorder(ctx context.Context, s *UsageRecorder) context.Context {
	return context.WithValue(ctx, usageRecorderKey{}, s)
}

// UsageRecorderFromContext returns what [WithUsageRecorder] put into ctx, nil if it did not.
func UsageRecorderFromContext(ctx context.Context) *UsageRecorder {
	s, _ := ctx.Value(usageRecorderKey{}).(*UsageRecorder)
	return s
}
