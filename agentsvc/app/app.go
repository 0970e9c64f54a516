// Package app builds the runtime of one tenant's app: [Build] turns one revision of its configuration into an [App]
// whose agents can be called. The same function serves the process's start, a reload, a tenant's first request and a
// dry run.
//
// It is the only package that knows every kind of model, tool and agent. Each kind is an entry of a table:
// modelBuilders in llms.go, toolBuilders and sourceBuilders in tools.go, agentBuilders in agents.go, windowBuilders and
// embedderBuilders in memory.go. A new kind is a new entry.
//
// Build composes an agent's parts as decorators. A model is wrapped, from the inside out, by retries and a circuit
// breaker (llms.go), metering and budgets (budget.go), tracing (trace.go), fallbacks (llms.go) and the agent's
// guardrail (guardrails.go). Tools and agents are wrapped by settings, guardrails and tracing in the same way.
// Everything that a decorator needs is a field of builder while the app is built.
//
// A model call reserves its budget in meteredModel.Stream (reserveBudget) and settles it when the stream ends
// (settleUsage). Limits of a turn are reserved by [App.ReserveUsage] before the task is accepted and settled by
// [RateLimits] when the turn ends.
//
// A configuration of a tenant is untrusted: files, programs and addresses are resolved by the app's grants (path.go,
// externaldb.go, tools.go). Problems are collected, not returned one by one, so that a dry run reports all of them
// (problems.go).
package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/config"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/guardrail"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/memory"
	"stoa/agentsvc/notify"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/runner"
	"stoa/agentsvc/sandbox"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/agentsvc/tool"
	"stoa/authz"
	"stoa/billing"
	"stoa/billing/budget"
	"stoa/billing/usage"
	"stoa/ratelimit"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/grant"
)

// Dependencies are what all apps of a process share. DB, Hub, Workers, PublicEgress, PrivateEgress and Log are
// required.
type Dependencies struct {
	// DB is the durable database.
	DB *db.DB
	// Keys seal the credentials that users supply and the addresses of notifications. Without them no tool can request
	// a credential.
	Keys *tenancy.Keyring
	// Hub carries the events of tasks to their subscriptions. Workers executes the runs of tasks in DB.
	Hub     *task.Hub
	Workers task.Executor
	Retry   queue.Retry
	// MaxRunTime bounds one execution of a turn; [runner.DefaultMaxDuration] if zero.
	MaxRunTime time.Duration
	// Memory is the pool from which runs reserve the memory of what they keep in it; nil means no bound.
	Memory *capacity.Pool
	// MaxAnswerBytes bounds one response of a model, in bytes; [llm.DefaultMaxBytes] if zero.
	MaxAnswerBytes int
	// InMemory is the database for apps that store tasks or sessions in memory; nil means that no app may.
	InMemory *InMemoryDB
	// ExternalDatabases are the databases that apps configure, shared by the revisions of an app; nil means that each
	// revision opens its own.
	ExternalDatabases *ExternalDatabases
	// PublicEgress reaches public addresses only, PrivateEgress private networks as well. The app's grants decide which
	// one it gets.
	PublicEgress, PrivateEgress *egress.Client
	// FolderGuard knows which folders no tenant may use; nil means the system's only.
	FolderGuard *grant.Guard
	// Sandbox executes the programs of this host that agents run; nil means that no agent can run any.
	Sandbox *sandbox.Host
	// RateCounts are the backends that count calls against limits; nil means that every app counts its own.
	RateCounts *ratelimit.Backends
	// OnFinding is called for each finding of a guardrail, with the name of the app; it may be nil.
	OnFinding func(ctx context.Context, app string, f guardrail.Finding)
	// Instrumentation receives what agents do, for traces and metrics.
	Instrumentation Instrumentation
	Log             *slog.Logger
	// Billing counts what apps use and enforces their budgets; nil means that nothing is counted.
	Billing *billing.Service
	// Notifications are the settings of outgoing notifications; nil means that none are sent.
	Notifications *NotifyOptions
}

// Tenant is the app whose configuration is built, with what its record says about it.
type Tenant struct {
	ID   db.ID
	Name string
	// Revision is the number of the configuration, which tasks and runs record.
	Revision int64
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

// App is the runtime of one revision of an app: its agents, ready to be called. It is immutable; another revision is
// another App. All fields are set by [Build], then read-only.
type App struct {
	// store and tasks are those of the database that the configuration selects for new tasks.
	store *store.Store
	tasks *task.Service
	// runners execute runs of tasks in the durable database (false) and in memory (true). Both are needed: an earlier
	// revision may have selected the other one, and its runs still come here.
	runners map[bool]*runner.Runner
	// vault is nil if [Dependencies.Keys] is.
	vault    *store.Vault
	memories *memory.Recall
	// notifier is nil if no notifications are sent.
	notifier *notify.Notifier
	// pushEnabled says whether callers may register receivers of their own.
	pushEnabled bool

	// budgetGate is nil if [Dependencies.Billing] is; then there are no budgets.
	budgetGate *budget.Gate
	policies   *authz.PolicyCache
	cards      []agentsvc.Card
	// cardIndex has the index in cards by the agent's name.
	cardIndex map[string]int
	// rateLimits is nil if the app has no limits.
	rateLimits *RateLimits
	triggers   triggerSet
	// defaultAgentName is the agent of the default card, "" if there is none.
	defaultAgentName         string
	providerOrg, providerURL string
	// closers release what the app holds outside of its memory; Close calls all of them.
	closers []func() error
}

// Build builds the runtime of a configuration. It makes no requests and opens no database; those are opened at their
// first use. Problems of cfg are a [document.Error] with paths and without lines, which may be shown to the author of the
// configuration. If Build fails it has closed everything it opened.
func Build(cfg *config.Config, t Tenant, h Dependencies) (*App, error) {
	log := h.Log.With("app", t.Name)
	// The order of the steps below matters. Tools need the vault and the store. Agents need models, guardrails and
	// tools.
	b := builder{cfg: cfg, tenant: t, log: log, maxAnswerBytes: h.MaxAnswerBytes, egressClient: h.PublicEgress, folderGuard: h.FolderGuard, sandbox: h.Sandbox, externalDatabases: cmp.Or(h.ExternalDatabases, &ExternalDatabases{}), instrumentation: h.Instrumentation}
	if t.PrivateNetwork {
		b.egressClient = h.PrivateEgress
	}
	if h.OnFinding != nil {
		b.onFinding = func(ctx context.Context, f guardrail.Finding) { h.OnFinding(ctx, t.Name, f) }
	}
	if h.Billing != nil {
		b.meter, b.budgetGate = h.Billing.Usage.NewMeter(t.ID, t.Plan), h.Billing.Budgets.NewGate(t.ID, t.Plan)
	}
	inMemory, newStore := b.registerInMemory(h), b.newStoreFactory(h)
	b.store = newStore(h.DB)
	if h.Keys != nil {
		// A task's credentials are stored in the database of the task; their audit entries are always durable.
		b.vault = store.NewVault(h.taskDB(inMemory), t.ID, h.Keys)
		if inMemory {
			b.vault = b.vault.WithAuditIn(h.DB)
		}
	}
	memories, used := b.newMemory(memory.New(h.DB, t.ID))
	if used {
		b.recall = memories
	}
	limits := b.newRateLimits(h)
	b.buildModels()
	b.buildGuardrails()
	b.checkDatabaseFiles()
	b.buildTools()
	agents := b.buildAgents()
	started, standing := b.newTriggers(), b.newStandingNotifications()
	if err := b.problemList.asError(); err != nil {
		return nil, errors.Join(err, closeAll(b.closers))
	}
	// All problems are known. From here on nothing can fail.
	a := &App{
		runners: map[bool]*runner.Runner{}, policies: authz.NewPolicyCache(t.ID), vault: b.vault, memories: memories, budgetGate: b.budgetGate,
		notifier: b.newNotifier(h, standing), pushEnabled: h.Notifications != nil && h.Notifications.PushEnabled, rateLimits: limits, triggers: started, cardIndex: map[string]int{}, closers: b.closers,
	}
	// One service and runner for each database from which runs of this app may come.
	for _, q := range h.taskQueues() {
		stored := newStore(q.db)
		if q.inMemory {
			stored = stored.WithAuditIn(h.DB)
		}
		tasks := task.New(stored, t.ID, t.Revision, h.Hub, q.workers, log, task.Options{
			Check: newArgumentCheck(b.toolSets), OnBusy: onBusyByAgent(cfg), Vault: b.vault, MaxQueueDepth: t.Limits.QueueDepth, MaxConcurrent: t.Limits.MaxConcurrentTasks,
			Observer: b.newObserver(), ObserveSeparately: q.inMemory, BudgetAvailability: b.findBudgetChange, Hash: t.Hash, ReleaseReservation: limits.releaseFunc(), Notifications: h.notificationIDs(standing),
		})
		a.runners[q.inMemory] = runner.New(tasks, agents, h.Retry, log, b.runnerOptions(h))
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
			guards[name] = b.guardrailFor(a)
		}
		for _, r := range a.runners {
			r.ObserveSessions(func(ctx context.Context, run store.Run, content []agentsvc.Entry) {
				if content, err := guards[run.Agent].filterHistory(ctx, content); err == nil {
					memories.RememberTurn(ctx, run, content)
				}
			})
		}
	}
	for _, name := range cfg.AgentNames() {
		a.cardIndex[name] = len(a.cards)
		c := newCard(name, cfg.Agents[name])
		c.StandaloneReplies = b.hasMessageReply(cfg.Agents[name].LLM)
		a.cards = append(a.cards, c)
	}
	a.defaultAgentName = defaultAgent(cfg, a.cards)
	if p := cfg.Server.Provider; p != nil {
		a.providerOrg, a.providerURL = p.Org, p.URL
	}
	return a, nil
}

// Tasks returns the service that accepts, cancels and resumes the app's tasks.
func (a *App) Tasks() *task.Service { return a.tasks }

// ExecuteRun executes one of the app's runs to its end, in the database that the run comes from.
func (a *App) ExecuteRun(ctx context.Context, run store.Run) error {
	return a.runners[run.InMemory].Run(ctx, run)
}

// SweepExpired deletes the tasks, events and sessions whose retention has ended, the sessions wherever the app stores
// them.
func (a *App) SweepExpired(ctx context.Context, r store.Retention) (store.SweepCounts, error) {
	return a.store.SweepExpired(ctx, r)
}

// Memories returns what the app's agents remember of its users. It works even if the configuration no longer uses
// memory.
func (a *App) Memories() *memory.Recall { return a.memories }

// Vault returns the store of the credentials that users have supplied for tools; nil if there are no keys.
func (a *App) Vault() *store.Vault { return a.vault }

// Policy returns the access policy for the app's record.
func (a *App) Policy(record *tenancy.App) (*authz.Policy, error) { return a.policies.PolicyFor(record) }

// Cards returns the descriptions of the agents, in the order of the configuration. The slice is shared: callers must
// not change it.
func (a *App) Cards() []agentsvc.Card { return a.cards }

// Card returns the description of an agent, and whether there is such an agent.
func (a *App) Card(name string) (agentsvc.Card, bool) {
	i, ok := a.cardIndex[name]
	if !ok {
		return agentsvc.Card{}, false
	}
	return a.cards[i], true
}

// DefaultCard returns the description of the default agent, and whether there is one. See defaultAgent.
func (a *App) DefaultCard() (agentsvc.Card, bool) { return a.Card(a.defaultAgentName) }

// Provider returns the organization that offers the app and its URL, as the agent cards show them.
func (a *App) Provider() (org, url string) { return a.providerOrg, a.providerURL }

// Close releases database connections and ends programs that tools have started. Runs must have ended.
func (a *App) Close() error { return closeAll(a.closers) }

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

// builder has the state of one call of Build. It is used by one goroutine.
type builder struct {
	cfg          *config.Config
	tenant       Tenant
	log          *slog.Logger
	egressClient *egress.Client
	folderGuard  *grant.Guard
	sandbox      *sandbox.Host
	// onFinding is [Dependencies.OnFinding] with the app's name; nil if there is none.
	onFinding       func(context.Context, guardrail.Finding)
	instrumentation Instrumentation
	// maxAnswerBytes is [Dependencies.MaxAnswerBytes].
	maxAnswerBytes int
	store          *store.Store
	// vault is nil if there are no keys; recall is nil if agents have no memory.
	vault  *store.Vault
	recall *memory.Recall
	// models are complete: with retries, metering, tracing and fallbacks. A model with a problem has no entry.
	models map[string]llm.Provider
	// guardrails are those that are enabled.
	guardrails map[string]*guardrail.Guardrail
	// agents has a nil entry for an agent that could not be built.
	agents map[string]agent.Agent
	tools  map[string]tool.Tool
	// sources are tools that provide further tools, such as MCP servers, by their configured name.
	sources map[string]tool.Source
	// toolSets are the sets of all agents, which newArgumentCheck searches.
	toolSets []*tool.Set
	// closers become those of the App.
	closers []func() error
	problemList

	externalDatabases *ExternalDatabases
	// meter and budgetGate are nil if nothing is counted: both or none.
	meter      *usage.Meter
	budgetGate *budget.Gate
}
