package agentsvc

import "context"

// UsageRecorder identifies the run that model calls are made for, and records what they use.
type UsageRecorder struct {
	Task  TaskID
	Epoch int64 // of the task's lease
	Agent string
	Owner Owner
	// Record adds the usage of one call, from any goroutine. Calls report here directly because their agent may be
	// stopped before it can yield a usage event.
	Record func(Usage)
}

// usageRecorderKey is the context key of WithUsageRecorder.
type usageRecorderKey struct{}

// WithUsageRecorder returns a context whose model calls are made for the run of s.
func WithUsageRecorder(ctx context.Context, s *UsageRecorder) context.Context {
	return context.WithValue(ctx, usageRecorderKey{}, s)
}

// UsageRecorderFromContext returns what [WithUsageRecorder] put into ctx, nil if there is none.
func UsageRecorderFromContext(ctx context.Context) *UsageRecorder {
	s, _ := ctx.Value(usageRecorderKey{}).(*UsageRecorder)
	return s
}
