package agentsvc

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
