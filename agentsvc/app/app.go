// Package app is one tenant's live house: [Build] turns a configuration into an [App] whose agents can be called. It
// serves the start, a reload and a tenant's first call alike, and it is the only room that knows every kind of model,
// tool and agent: llms.go, tools.go and agents.go hold the tables.
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
	"stoa/ratelimit"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/grant"
)

// Dependencies is what all apps of a process share.
type Dependencies struct {
	DB *db.DB
	// Keys seal the credentials that users supply. Without them no tool can ask for one.
	Keys    *tenancy.Keyring
	Hub     *task.Hub
	Workers task.Executor
	Retry   queue.Retry
	// MaxRunTime bounds one execution of a turn; [runner.DefaultMaxDuration] if zero.
	MaxRunTime time.Duration
	// Memory is where runs take what they have in memory from; nil = without bound.
	Memory *capacity.Pool
	// MaxAnswerBytes bounds one answer of a model, in bytes; [llm.DefaultMaxBytes] if zero.
	MaxAnswerBytes int
	// InMemory is where apps keep what they want kept in memory; nil = none may.
	InMemory *InMemoryDB
	// ExternalDatabases are those that apps bring; nil = every app opens its own.
	ExternalDatabases *ExternalDatabases
	// PublicEgress reaches public addresses only, Inside private networks as well.
	PublicEgress, PrivateEgress *egress.Client
	// FolderGuard knows which folders no tenant reaches; nil = the system's alone.
	FolderGuard *grant.Guard
	// Sandbox holds the programs of this host that agents run. Without one they run none.
	Sandbox *sandbox.Host
	// RateCounts are where calls are counted that limits hold for; nil = every app counts its own.
	RateCounts *ratelimit.Backends
	// OnFinding is told of each finding of the guardrails of the app of this name; it may be nil.
	OnFinding       func(ctx context.Context, app string, f guardrail.Finding)
	Instrumentation Instrumentation
	Log             *slog.Logger
	// Billing counts what apps use and bounds it; nil = nothing is counted.
	Billing *billing.Service
	// Notifications has addresses outside told of tasks; nil = none ever are.
	Notifications *NotifyOptions
}

// Tenant says whose configuration is built.
type Tenant struct {
	ID             db.ID
	Name           string
	Revision       int64
	DefaultApp     bool // it is the operator's own, whose programs run as they are
	Grants         grant.List
	PrivateNetwork bool // private addresses may be called
	Limits         tenancy.Limits
	Plan           string // that it is on, "" = none
	Notifications  NotificationSettings
	Hash           func(text []byte) string // for the audit trail; see [task.Options]
	DryRun         bool                     // it is only tried: models that the plan does not have are mistakes, else their calls fail
}

// App is a tenant's agents, ready to be called. It never changes: another configuration is another App.
type App struct {
	store       *store.Store
	tasks       *task.Service
	runners     map[bool]*runner.Runner // of tasks in the database, and of those in memory
	vault       *store.Vault
	memories    *memory.Recall
	notifier    *notify.Notifier // nil = nobody is told
	pushEnabled bool             // callers may have addresses of theirs told

	budgetGate               *billing.BudgetGate // nil = any
	policies                 *authz.PolicyCache
	cards                    []agentsvc.Card
	cardIndex                map[string]int
	rateLimits               *RateLimits
	triggers                 triggerSet
	defaultAgentName         string // agent of the default card, "" = none
	providerOrg, providerURL string
	closers                  []func() error
}

// Build makes an app of cfg. It calls nobody: what it returns costs memory alone. What is wrong with cfg is a
// [config.Error], whose problems have paths and no lines; they may be shown to whoever wrote the configuration.
func Build(cfg *config.Config, t Tenant, h Dependencies) (*App, error) {
	log := h.Log.With("app", t.Name)
	b := builder{cfg: cfg, tenant: t, log: log, maxAnswerBytes: h.MaxAnswerBytes, egressClient: h.PublicEgress, folderGuard: h.FolderGuard, sandbox: h.Sandbox, externalDatabases: cmp.Or(h.ExternalDatabases, &ExternalDatabases{}), instrumentation: h.Instrumentation}
	if t.PrivateNetwork {
		b.egressClient = h.PrivateEgress
	}
	if h.OnFinding != nil {
		b.onFinding = func(ctx context.Context, f guardrail.Finding) { h.OnFinding(ctx, t.Name, f) }
	}
	if h.Billing != nil {
		b.meter, b.budgetGate = h.Billing.NewMeter(t.ID, t.Plan), h.Billing.NewBudgetGate(t.ID, t.Plan)
	}
	inMemory, newStore := b.registerInMemory(h), b.newStoreFactory(h)
	b.store = newStore(h.DB)
	if h.Keys != nil {
		b.vault = store.NewVault(h.taskDB(inMemory), t.ID, h.Keys) // what a task was entrusted with is kept as the task is
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
	a := &App{
		runners: map[bool]*runner.Runner{}, policies: authz.NewPolicyCache(t.ID), vault: b.vault, memories: memories, budgetGate: b.budgetGate,
		notifier: b.newNotifier(h, standing), pushEnabled: h.Notifications != nil && h.Notifications.PushEnabled, rateLimits: limits, triggers: started, cardIndex: map[string]int{}, closers: b.closers,
	}
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

// Tasks is the pass of the app.
func (a *App) Tasks() *task.Service { return a.tasks }

// ExecuteRun runs one of the app's runs to its end.
func (a *App) ExecuteRun(ctx context.Context, run store.Run) error {
	return a.runners[run.InMemory].Run(ctx, run)
}

// SweepExpired deletes what r keeps no longer, the conversations from where the app has them.
func (a *App) SweepExpired(ctx context.Context, r store.Retention) (store.SweepCounts, error) {
	return a.store.SweepExpired(ctx, r)
}

// Memories is what the app's agents remember of its users.
func (a *App) Memories() *memory.Recall { return a.memories }

// Vault holds what the app's users have entrusted to its tools; nil where nothing could be sealed.
func (a *App) Vault() *store.Vault { return a.vault }

// Policy decides who may do what in the app as its record is.
func (a *App) Policy(record *tenancy.App) (*authz.Policy, error) { return a.policies.PolicyFor(record) }

// Cards describes the agents in file order. The slice is shared: it is not to be changed.
func (a *App) Cards() []agentsvc.Card { return a.cards }

// Card describes an agent.
func (a *App) Card(name string) (agentsvc.Card, bool) {
	i, ok := a.cardIndex[name]
	if !ok {
		return agentsvc.Card{}, false
	}
	return a.cards[i], true
}

// DefaultCard describes the agent that stands for the app, if one does.
func (a *App) DefaultCard() (agentsvc.Card, bool) { return a.Card(a.defaultAgentName) }

// Provider names who offers the app, as its cards show it.
func (a *App) Provider() (org, url string) { return a.providerOrg, a.providerURL }

// Close gives back what the app holds outside its memory: connections, and programs that it runs.
func (a *App) Close() error { return closeAll(a.closers) }

// closeAll closes side by side: each may have to wait for somebody else.
func closeAll(closers []func() error) error {
	errs := make([]error, len(closers))
	var all sync.WaitGroup
	for i, c := range closers {
		all.Go(func() { errs[i] = c() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// builder holds what is shared while one configuration is built.
type builder struct {
	cfg             *config.Config
	tenant          Tenant
	log             *slog.Logger
	egressClient    *egress.Client
	folderGuard     *grant.Guard
	sandbox         *sandbox.Host
	onFinding       func(context.Context, guardrail.Finding) // nil = nobody wants to know
	instrumentation Instrumentation
	// maxAnswerBytes is [Dependencies.MaxAnswerBytes].
	maxAnswerBytes int
	store          *store.Store
	vault          *store.Vault   // nil = nothing can be sealed
	recall         *memory.Recall // nil = agents remember nothing
	models         map[string]llm.Provider
	guardrails     map[string]*guardrail.Guardrail // those that are turned on
	agents         map[string]agent.Agent
	tools          map[string]tool.Tool
	sources        map[string]tool.Source // by the name of the tool that stands for all of theirs
	toolSets       []*tool.Set            // all that were made
	closers        []func() error
	problemList

	externalDatabases *ExternalDatabases
	meter             *billing.Meter      // nil = nothing is counted
	budgetGate        *billing.BudgetGate // as above
}
