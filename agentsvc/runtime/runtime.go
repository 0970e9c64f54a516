// Package runtime builds the runtime of one tenant's app: [Build] turns one revision of its configuration into a
// [Runtime] whose agents can be called. The same function serves the process's start, a reload, a tenant's first
// request and a dry run.
//
// It is the only package that knows every kind of model, tool and agent. Each kind is an entry of a table:
// modelBuilders in llms.go, toolBuilders and sourceBuilders in tools.go, agentBuilders in agents.go, windowBuilders and
// embedderBuilders in memory.go. A new kind is a new entry.
//
// Build composes an agent's parts as decorators. A model is wrapped, from the inside out, by a circuit breaker and
// retries (llms.go), metering and budgets (meteredmodel.go), tracing (trace.go), fallbacks (llms.go) and the agent's
// guardrail (guardrails.go). Tools and agents are wrapped by settings, guardrails and tracing in the same way. Each kind of
// decorator has a type that Build makes once: metering, tracing, guardrailSet. Build passes these and what was built
// before to modelBuilder, toolBuilder, agentBuilder and memoryBuilder.
//
// A model call reserves its budget in meteredModel.Stream (reserveBudget) and settles it when the stream ends
// (endReservation). Limits of a turn are reserved by [Runtime.AdmitCall] before the task is accepted and settled by
// [RateLimits] with the turn's first [runner.UsageUpdate].
//
// A configuration of a tenant is untrusted: files, programs and addresses are resolved by the app's grants (build.go,
// externaldb.go, tools.go). Problems are collected, not returned one by one, so that a dry run reports all of them
// (problems.go).
package runtime

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/config"
	"stoa/agentsvc/document/extract"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/guardrail"
	"stoa/agentsvc/memory"
	"stoa/agentsvc/notify"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/runner"
	"stoa/agentsvc/sandbox"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/toolpin"
	"stoa/agentsvc/store/vault"
	"stoa/agentsvc/task"
	"stoa/authz"
	"stoa/billing"
	"stoa/billing/budget"
	"stoa/ratelimit"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/grant"
	"stoa/tenancy/keyring"
)

// Dependencies are what all apps of a process share. DB, Hub, Workers, PublicEgress, PrivateEgress and Log are
// required.
type Dependencies struct {
	// DB is the durable database.
	DB *db.DB
	// InMemory is the database for apps that store tasks or sessions in memory; nil means that no app may.
	InMemory *InMemoryDB
	// ExternalDatabases are the databases that apps configure, shared by the revisions of an app; nil means that each
	// revision opens its own.
	ExternalDatabases *ExternalDatabases
	// Keys seal the credentials that users supply and the addresses of notifications. Without them no tool can request
	// a credential.
	Keys *keyring.Keyring
	// Hub carries the events of tasks to their subscriptions. Workers executes the runs of tasks in DB, InMemoryWorkers of
	// those in InMemory.
	Hub             *task.Hub
	Workers         task.Executor
	InMemoryWorkers task.Executor
	Host
	RunLimits
	// RateCounts are the backends that count calls against limits; nil means that every app counts its own.
	RateCounts *ratelimit.Backends
	// OnFinding is called for each finding of a guardrail, with the name of the app; it may be nil.
	OnFinding func(ctx context.Context, app string, f guardrail.Finding)
	// OnDocumentsChanged is called after a change of documents that waits for the indexer; it may be nil.
	OnDocumentsChanged func(tenant db.ID)
	// Instrumentation receives what agents do, for traces and metrics.
	Instrumentation Instrumentation
	Log             *slog.Logger
	// Billing counts what apps use and enforces their budgets; nil means that nothing is counted.
	Billing *billing.Service
	// Notifications are the settings of outgoing notifications; nil means that none are sent.
	Notifications *NotifyOptions
}

// Host is what apps can reach outside of their own data, as far as their grants permit.
type Host struct {
	// PublicEgress reaches public addresses only, PrivateEgress private networks as well. The app's grants decide which
	// one it gets.
	PublicEgress, PrivateEgress *egress.Client
	// FolderGuard knows which folders no tenant may use; nil means the system's only.
	FolderGuard *grant.Guard
	// Sandbox executes the programs of this host that agents run; nil means that no agent can run any.
	Sandbox *sandbox.Host
	// DocumentReader reads the files of document stores; nil means that this process indexes none.
	DocumentReader *extract.Reader
}

// RunLimits bound the runs of all apps.
type RunLimits struct {
	Retry queue.Retry
	// MaxRunTime bounds one execution of a turn; [runner.DefaultMaxDuration] if zero.
	MaxRunTime time.Duration
	// Memory is the pool from which runs reserve the memory of what they keep in it; nil means no bound.
	Memory *capacity.Pool
	// VectorMemory is the pool from which the vectors in memory are reserved: those of chromem, and of a document while it is
	// indexed; nil means no bound.
	VectorMemory *capacity.Pool
	// MaxAnswerBytes bounds one response of a model, in bytes; [llm.DefaultMaxBytes] if zero.
	MaxAnswerBytes int
}

// Tenant is the app whose configuration is built, with what its record says about it.
type Tenant struct {
	ID   db.ID
	Name string
	// Revision is the number of the configuration, which tasks and runs record.
	Revision int64
	// ConfiguredAt takes the place of Revision for what outlives the process, in microseconds since 1970; 0 = Revision. It is
	// set for the default app, whose revisions begin anew with each process.
	ConfiguredAt int64
	// DefaultApp is set for the operator's own app. Its paths are not confined to granted folders, and its MCP server
	// programs run outside of the sandbox.
	DefaultApp bool
	// Grants are the powers over this host that the operator has given the app.
	Grants grant.List
	// PrivateNetwork allows requests to private addresses.
	PrivateNetwork bool
	Limits         tenancy.Limits
	// Plan is the name of the app's billing plan, "" for none.
	Plan          string
	Notifications NotificationSettings
	// Hash returns the keyed hash that stands for a text in the audit trail; see [task.Options].
	Hash func(text []byte) string
	// DryRun means that the app is only tried, not served: a model outside of the plan is then a problem of the
	// configuration. In a served app calls of that model fail instead.
	DryRun bool
}

// Runtime is the running form of one revision of an app: its agents, ready to be called. It is immutable; another
// revision is another Runtime. All fields are set by [Build], then read-only.
type Runtime struct {
	// store and tasks are those of the database that the configuration selects for new tasks.
	store *store.Store
	tasks *task.Service
	// runners execute runs of tasks in the durable database (false) and in memory (true). Both are needed: an earlier
	// revision may have selected the other one, and its runs still come here.
	runners map[bool]*runner.Runner
	// vault is nil if [Dependencies.Keys] is.
	vault    *vault.Vault
	memories *memory.Recall
	// documents are the document stores of this revision.
	documents *Documents
	// notifier is nil if no notifications are sent.
	notifier *notify.Notifier
	// pushEnabled says whether callers may register receivers of their own.
	pushEnabled bool

	// budgetGate is nil if [Dependencies.Billing] is; then there are no budgets.
	budgetGate *budget.Gate
	policies   *authz.PolicyCache
	cards      cardSet
	// rateLimits is nil if the app has no limits.
	rateLimits               *RateLimits
	triggers                 triggerSet
	providerOrg, providerURL string
	// closers release what the app holds outside of its memory; Close calls all of them.
	closers []func() error
}

// Build builds the runtime of a configuration. It makes no requests and opens no database; those are opened at their
// first use. Problems of cfg are a [document.Error] with paths and without lines, which may be shown to the author of the
// configuration. If Build fails it has closed everything it opened.
func Build(cfg *config.Config, t Tenant, h Dependencies) (*Runtime, error) {
	b := &build{cfg: cfg, tenant: t, log: h.Log.With("app", t.Name)}
	host := newHostAccess(b, h.Host, h.RunLimits)
	meters, traces := newMetering(b, h.Billing, h.Instrumentation), tracing{t, h.Instrumentation}
	databases := &databaseBuilder{host, cmp.Or(h.ExternalDatabases, &ExternalDatabases{})}
	// The order of the steps below matters. Tools need the vault and the store. Agents need models, guardrails and
	// tools.
	inMemory, newStore := b.registerInMemory(h), databases.newStoreFactory(h)
	durable := newStore(h.DB)
	var credentials *vault.Vault
	if h.Keys != nil {
		// A task's credentials are stored in the database of the task; their audit entries are always durable.
		credentials = vault.New(h.taskDB(inMemory), t.ID, h.Keys)
		if inMemory {
			credentials = credentials.WithAuditIn(h.DB)
		}
	}
	memories, used := (&memoryBuilder{host, meters}).newMemory(memory.New(h.DB, t.ID))
	documents := b.newDocuments(h)
	limits := databases.newRateLimits(h)
	models := &modelBuilder{hostAccess: host, meters: meters, traces: traces}
	models.buildModels()
	(&searchBuilder{host, meters, models.models}).buildSearchers(documents)
	guardrails := newGuardrailSet(b, h.OnFinding)
	databases.checkDatabaseFiles()
	tools := &toolBuilder{hostAccess: host, traces: traces, pins: toolpin.New(h.DB, t.ID), vault: credentials}
	tools.buildTools()
	(&indexBuilder{databases, tools, h.DocumentReader}).buildIndexed(documents)
	agentsOf := &agentBuilder{hostAccess: host, traces: traces, maxAnswerBytes: h.MaxAnswerBytes, sessions: durable.Sessions, models: models.models, guardrails: guardrails, tools: tools, documents: documents}
	if used {
		agentsOf.recall = memories
	}
	agents := agentsOf.buildAgents()
	triggers, standing := b.newTriggers(), b.newStandingNotifications()
	if err := b.problemList.asError(); err != nil {
		return nil, errors.Join(err, closeAll(b.closers))
	}
	// All problems are known. From here on nothing can fail.
	a := &Runtime{
		runners: map[bool]*runner.Runner{}, policies: authz.NewPolicyCache(t.ID), vault: credentials, memories: memories, documents: documents, budgetGate: meters.budgetGate,
		notifier: b.newNotifier(h, standing), pushEnabled: h.Notifications != nil && h.Notifications.PushEnabled, rateLimits: limits, triggers: triggers,
		cards: newCardSet(cfg, models), closers: b.closers,
	}
	runnerOptions := b.runnerOptions(h)
	// One service and runner for each database from which runs of this app may come.
	for _, q := range h.taskQueues() {
		stored := newStore(q.db)
		if q.inMemory {
			stored = stored.WithAuditIn(h.DB)
		}
		tasks := task.New(stored, t.ID, t.Revision, h.Hub, q.workers, b.log, task.Options{
			Check: newArgumentCheck(tools.toolSets), OnBusy: onBusyByAgent(cfg), Vault: credentials, MaxQueueDepth: t.Limits.QueueDepth, MaxConcurrent: t.Limits.MaxConcurrentTasks,
			UsageMeter: meters.newUsageMeter(), WriteUsageSeparately: q.inMemory, BudgetAvailability: meters.findBudgetChange, Hash: t.Hash, ReleaseTokens: limits.releaseFunc(), Notifications: h.notificationIDs(standing),
		})
		a.runners[q.inMemory] = runner.New(tasks, agents, h.Retry, b.log, runnerOptions)
		if limits != nil {
			a.runners[q.inMemory].ObserveUsage(limits.recordRunUsage)
		}
		if q.inMemory == inMemory {
			a.store, a.tasks = stored, tasks
		}
	}
	// Memories are written from the finished turn, after the agent's guardrail has filtered what may be read.
	if used {
		guards := make(map[string]*agentGuardrail, len(cfg.Agents))
		for name, a := range cfg.Agents {
			guards[name] = guardrails.guardrailFor(a)
		}
		for _, r := range a.runners {
			r.ObserveSessions(func(ctx context.Context, run store.Run, content []agentsvc.Entry) {
				if content, err := guards[run.Agent].filterHistory(ctx, content); err == nil {
					memories.RememberTurn(ctx, run, content)
				}
			})
		}
	}
	if p := cfg.Server.Provider; p != nil {
		a.providerOrg, a.providerURL = p.Org, p.URL
	}
	return a, nil
}

// Tasks returns the service that accepts, cancels and resumes the app's tasks.
func (rt *Runtime) Tasks() *task.Service { return rt.tasks }

// ExecuteRun executes one of the app's runs to its end under lease, in the database that the run comes from.
func (rt *Runtime) ExecuteRun(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
	return rt.runners[run.InMemory].Run(ctx, run, lease)
}

// SweepExpired deletes the tasks, events and sessions whose retention has ended, the sessions wherever the app stores
// them.
func (rt *Runtime) SweepExpired(ctx context.Context, r store.Retention) (store.SweepCounts, error) {
	return rt.store.Sweeper.SweepExpired(ctx, r)
}

// CheckBudget returns an error with the detail [*agentsvc.ExhaustedBudget] if a request to agent by owner would find a
// budget used up; see [budget.Gate].
func (rt *Runtime) CheckBudget(ctx context.Context, agent string, owner agentsvc.Owner) error {
	if rt.budgetGate == nil {
		return nil
	}
	return rt.budgetGate.CheckBudget(ctx, agent, owner)
}

// Memories returns what the app's agents remember of its users. It works even if the configuration no longer uses
// memory.
func (rt *Runtime) Memories() *memory.Recall { return rt.memories }

// Vault returns the store of the credentials that users have supplied for tools; nil if there are no keys.
func (rt *Runtime) Vault() *vault.Vault { return rt.vault }

// Policy returns the access policy for the app's record.
func (rt *Runtime) Policy(record *tenancy.App) (*authz.Policy, error) {
	return rt.policies.PolicyFor(record)
}

// Cards returns the descriptions of the agents, in the order of the configuration. The slice is shared: callers must
// not change it.
func (rt *Runtime) Cards() []agentsvc.Card { return rt.cards.list }

// Card returns the description of an agent, and whether there is such an agent.
func (rt *Runtime) Card(name string) (agentsvc.Card, bool) { return rt.cards.findCard(name) }

// DefaultCard returns the description of the default agent, and whether there is one. See defaultAgent.
func (rt *Runtime) DefaultCard() (agentsvc.Card, bool) {
	return rt.cards.findCard(rt.cards.defaultAgent)
}

// Provider returns the organization that offers the app and its URL, as the agent cards show them.
func (rt *Runtime) Provider() (org, url string) { return rt.providerOrg, rt.providerURL }

// Close releases database connections and ends programs that tools have started. Runs must have ended.
func (rt *Runtime) Close() error { return closeAll(rt.closers) }

// closeAll calls the closers concurrently: each may wait for a server or a program. It returns their errors joined.
func closeAll(closers []func() error) error {
	errs := make([]error, len(closers))
	var all sync.WaitGroup
	for i, c := range closers {
		all.Go(func() { errs[i] = c() })
	}
	all.Wait()
	return errors.Join(errs...)
}
