package audit

import (
	"context"
	"sync"
	"time"

	"stoa/tenancy/db"
)

// FailedCredential is what the failed authentications that one entry counts have in common.
type FailedCredential struct {
	// AppID is the app whose credential it was. It is "" if the credential did not prove any: a caller must not be able to
	// write entries about an app that it only names.
	AppID db.ID
	// Credential is the kind of credential, Reason why it was refused. Both have few values.
	Credential string
	Reason     string
	// Client is the address or the network of the client.
	Client string
}

const (
	// failureInterval is the time between two writes of the counted failures, and so the time that an entry covers.
	failureInterval = time.Minute
	// maxFailureEntries bounds the entries of one interval, and the memory for them. An attack from more addresses is
	// counted in one more entry without an address.
	maxFailureEntries = 50
)

// FailedCredentials counts failed authentications and writes them to the trail, one entry for each client, app, kind and
// reason in an interval. What it has not written when a process is killed is lost. It is safe for concurrent use.
type FailedCredentials struct {
	trail *Trail

	// mu guards counts. The zero FailedCredential stands for those beyond maxFailureEntries.
	mu     sync.Mutex
	counts map[FailedCredential]failureCount
}

// failureCount is the number of failures and the times of the first and the last one.
type failureCount struct {
	count       int64
	first, last time.Time
}

// NewFailedCredentials returns a count of failed authentications that is written to t.
func NewFailedCredentials(t *Trail) *FailedCredentials {
	return &FailedCredentials{trail: t, counts: map[FailedCredential]failureCount{}}
}

// Count counts a failed authentication.
func (f *FailedCredentials) Count(c FailedCredential) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addCount(c, failureCount{1, now, now})
}

// addCount adds n to the count of c. The caller holds f.mu.
func (f *FailedCredentials) addCount(c FailedCredential, n failureCount) {
	before, ok := f.counts[c]
	if !ok && len(f.counts) >= maxFailureEntries {
		c = FailedCredential{}
		before, ok = f.counts[c]
	}
	if ok {
		n.count += before.count
		if before.first.Before(n.first) {
			n.first = before.first
		}
		if before.last.After(n.last) {
			n.last = before.last
		}
	}
	f.counts[c] = n
}

// Run writes the counted failures once in failureInterval until ctx ends, and once more then. It returns the error of
// ctx.
func (f *FailedCredentials) Run(ctx context.Context) error {
	tick := time.NewTicker(failureInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			f.writeOrKeep(last)
			return ctx.Err()
		}
		f.writeOrKeep(ctx)
	}
}

// writeOrKeep is Write that logs an error.
func (f *FailedCredentials) writeOrKeep(ctx context.Context) {
	if err := f.Write(ctx); err != nil {
		f.trail.chains.log.WarnContext(ctx, "failed authentications could not be written to the audit trail, they are kept for the next attempt", "error", err)
	}
}

// Write writes what was counted since the last call. If that fails, the counts are kept.
func (f *FailedCredentials) Write(ctx context.Context) error {
	f.mu.Lock()
	counted := f.counts
	f.counts = map[FailedCredential]failureCount{}
	f.mu.Unlock()
	if len(counted) == 0 {
		return nil
	}
	err := f.trail.db.RunTx(ctx, func(tx *db.Tx) error {
		for c, n := range counted {
			if err := Insert(ctx, tx, newFailureEntry(c, n)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		for c, n := range counted {
			f.addCount(c, n)
		}
	}
	return err
}

// newFailureEntry returns the entry about n failures. Its actor is the platform, since the client has proven no identity.
func newFailureEntry(c FailedCredential, n failureCount) Entry {
	detail := map[string]any{"count": n.count, "first_at": n.first.UTC().Format(time.RFC3339), "last_at": n.last.UTC().Format(time.RFC3339)}
	if c == (FailedCredential{}) {
		detail["other_clients"] = true
	} else {
		detail["credential"], detail["reason"] = c.Credential, c.Reason
	}
	return Entry{Actor: Actor{Name: System.Name, Origin: Origin{Client: c.Client}}, Action: "authentication.fail", AppID: c.AppID, Detail: detail}
}
