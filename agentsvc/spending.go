package agentsvc

import "context"

// Spending is whom model calls are made for.
type Spending struct {
	Task  TaskID
	Epoch int64 // of the task
	Agent string
	Owner Owner
	// Tell takes what a call has used, from any goroutine: its agent may be stopped before it can tell.
	Tell func(Usage)
}

type spendingKey struct{}

// WithSpending returns a context by which model calls know whom they are made for.
func WithSpending(ctx context.Context, s *Spending) context.Context {
	return context.WithValue(ctx, spendingKey{}, s)
}

// SpendingOf returns what [WithSpending] put into ctx, nil if it did not.
func SpendingOf(ctx context.Context) *Spending {
	s, _ := ctx.Value(spendingKey{}).(*Spending)
	return s
}
