package server

import (
	"context"
	"os"
	"time"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/config"
	"stoa/agentsvc/config/document"
	"stoa/agentsvc/config/redact"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/document/extract"
	"stoa/agentsvc/document/indexing"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/sandbox"
	"stoa/agentsvc/store/vault"
	"stoa/agentsvc/task"
	"stoa/authz"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
	"stoa/tenancy/signal"
)

// openDependencies returns what apps share, except what executes their runs and delivers their notifications
// (newExecution): enough to build an app and to check its configuration. Two clients for outgoing calls exist: the grant
// private_network selects PrivateEgress for an app. Memory bounds the answers and conversations of all runs together,
// and reports its use to tuner.
func openDependencies(ctx context.Context, o Options, s Storage, bus *signal.Bus, t telemetry, tuner *gcTuner, c *closers) (runtime.Dependencies, error) {
	// The sandbox starts this executable again as its helper (see main).
	helper, err := os.Executable()
	if err != nil {
		return runtime.Dependencies{}, err
	}
	guard, err := newFolderGuard(o, s.DB)
	if err != nil {
		return runtime.Dependencies{}, err
	}
	rates, err := openRateCounts(o, s.DB, t, c)
	if err != nil {
		return runtime.Dependencies{}, err
	}
	public, private := egress.New(egress.Options{}), egress.New(egress.Options{PrivateNetwork: true})
	c.add(func() error { public.Close(); private.Close(); return nil })
	accounts, err := openBilling(ctx, o, s, bus, c)
	if err != nil {
		return runtime.Dependencies{}, err
	}
	box := sandbox.NewHost(helper, sandbox.Options{User: o.Settings.Sandbox.User, ProgramFolders: o.Settings.Sandbox.Programs, OwnFiles: guard.OwnFiles(), Log: o.Log})
	reader, err := extract.NewReader(helper, box)
	if err != nil {
		return runtime.Dependencies{}, err
	}
	q, b := o.Settings.Queue, o.Settings.Bounds
	return runtime.Dependencies{
		DB: s.DB, InMemory: s.inMemory, Keys: s.keyring, Hub: task.NewHub(bus), ExternalDatabases: &runtime.ExternalDatabases{},
		RunLimits: runtime.RunLimits{
			Retry:      queue.Retry{MaxRetries: q.MaxRetries, InitialDelay: q.RetryInitialDelay, MaxDelay: q.RetryMaxDelay},
			MaxRunTime: q.MaxRunTime, Memory: capacity.NewPool(int64(b.AnswerMemoryMiB)<<20, tuner.newBytesTracker()), MaxAnswerBytes: b.MaxAnswerMiB << 20,
			VectorMemory: capacity.NewPool(int64(b.VectorMemoryMiB)<<20, tuner.newBytesTracker()),
		},
		Host: runtime.Host{
			PublicEgress: public, PrivateEgress: private, FolderGuard: guard, Sandbox: box, DocumentReader: reader,
		},
		OnDocumentsChanged: func(tenant db.ID) { bus.Publish(indexing.TopicPass, string(tenant)) },
		RateCounts:         rates, Billing: accounts,
		OnFinding: t.recordFinding, Instrumentation: t.newInstrumentation(), Log: o.Log,
	}, nil
}

// newTenancyOptions returns the callbacks with which the tenancy service uses the configuration, billing, storage and
// authentication packages. Package tenancy must not import them (see plan_test.go), so that they are given to it as
// functions. stale is the age of a heartbeat at which a worker counts as dead. memory is that of the configurations that are
// read. apps points to the service that is made with the options.
func newTenancyOptions(shared runtime.Dependencies, stale time.Duration, verifier *authz.Verifier, memory *configMemory, apps **tenancy.Service) tenancy.Options {
	load := newDeletingLoader(apps, memory)
	return tenancy.Options{
		CheckConfig: newConfigChecker(shared, memory), Guard: shared.FolderGuard,
		DecodeConfig: func(src []byte) (map[string]any, error) {
			defer memory.beginReading(src)()
			return document.Decode(src)
		},
		MaskConfig: func(src []byte) (text, asJSON []byte, err error) {
			defer memory.beginReading(src)()
			return redact.MaskText(src)
		},
		RestoreMasked: func(given, old []byte) []byte {
			defer memory.beginReading(given, old)()
			return redact.RestoreText(given, old)
		},
		CountDocuments: func(ctx context.Context, app db.ID) (map[string]int, error) {
			return corpus.New(shared.DB, app, corpus.Limits{}).Documents.CountByStore(ctx)
		},
		FlattenConfig: config.LeafValues, Log: shared.Log, CheckPlan: newPlanCheck(shared.Billing),
		// An app cannot claim a pair that the process itself accepts: it would otherwise decide about tokens of the
		// whole platform.
		IsReservedIssuer: verifier.IsReserved, CheckHost: func(ctx context.Context, host string, private bool) error {
			return checkIssuerHost(ctx, shared, host, private)
		},
		EraseApp: func(ctx context.Context, by audit.Actor, a tenancy.App, moved bool) error {
			if moved {
				return eraseMovedApp(ctx, shared, stale, a)
			}
			return eraseApp(ctx, by, shared, stale, a, load)
		},
		RewrapSealed: func(ctx context.Context, keys *keyring.Keyring) error {
			return vault.RewrapKeys(ctx, shared.DB, keys)
		},
	}
}
