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

// House is what all apps of a process share.
type House struct {
	DB *db.DB
	// Keys seal the credentials that users supply. Without them no tool can ask for one.
	Keys    *tenancy.Keyring
	Hub     *task.Hub
	Workers task.Handoff
	Retry   queue.Retry
	// LongestRun bounds one execution of a turn; [runner.LongestRun] if zero.
	LongestRun time.Duration
	// Memory is where runs take what they have in memory from; nil = without bound.
	Memory *capacity.Pool
	// MaxAnswer bounds one answer of a model, in bytes; [llm.DefaultMaxBytes] if zero.
	MaxAnswer int
	// Volatile is where apps keep what they want kept in memory; nil = none may.
	Volatile *Volatile
	// Databases are those that apps bring; nil = every app opens its own.
	Databases *Databases
	// Outside reaches public addresses only, Inside private networks as well.
	Outside, Inside *egress.Client
	// Guard knows which folders no tenant reaches; nil = the system's alone.
	Guard *grant.Guard
	// Sandbox holds the programs of this host that agents run. Without one they run none.
	Sandbox *sandbox.Host
	// Counts are where calls are counted that limits hold for; nil = every app counts its own.
	Counts *ratelimit.Counts
	// Judged is told of each finding of the guardrails of the app of this name; it may be nil.
	Judged func(ctx context.Context, app string, f guardrail.Finding)
	Watch  Watch
	Log    *slog.Logger
	// Billing counts what apps use and bounds it; nil = nothing is counted.
	Billing *billing.Service
	// Notify has addresses outside told of tasks; nil = none ever are.
	Notify *Notify
}

// Tenant says whose configuration is built.
type Tenant struct {
	ID       db.ID
	Name     string
	Revision int64
	Own      bool // it is the operator's own, whose programs run as they are
	Grants   grant.List
	Inside   bool // private addresses may be called
	Limits   tenancy.Limits
	Plan     string // that it is on, "" = none
	Telling  Telling
	Hash     func(text []byte) string // for the audit trail; see [task.Options]
	Trial    bool                     // it is only tried: models that the plan does not have are mistakes, else their calls fail
}

// App is a tenant's agents, ready to be called. It never changes: another configuration is another App.
type App struct {
	kept     *store.Store
	tasks    *task.Service
	runners  map[bool]*runner.Runner // of tasks in the database, and of those in memory
	vault    *store.Vault
	memories *memory.Recall
	desk     *notify.Desk // nil = nobody is told
	pushes   bool         // callers may have addresses of theirs told

	allowance *billing.Allowance // nil = any
	gate      *authz.Gate
	cards     []agentsvc.Card
	index     map[string]int
	limits    *Limits
	triggers  triggers
	fallback  string // agent of the default card, "" = none
	org, url  string
	closers   []func() error
}

// Build makes an app of cfg. It calls nobody: what it returns costs memory alone. What is wrong with cfg is a
// [config.Error], whose problems have paths and no lines; they may be shown to whoever wrote the configuration.
func Build(cfg *config.Config, t Tenant, h House) (*App, error) {
	log := h.Log.With("app", t.Name)
	b := builder{cfg: cfg, tenant: t, log: log, maxAnswer: h.MaxAnswer, out: h.Outside, folders: h.Guard, sandbox: h.Sandbox, databases: cmp.Or(h.Databases, &Databases{}), watch: h.Watch}
	if t.Inside {
		b.out = h.Inside
	}
	if h.Judged != nil {
		b.judged = func(ctx context.Context, f guardrail.Finding) { h.Judged(ctx, t.Name, f) }
	}
	if h.Billing != nil {
		b.meter, b.allowance = h.Billing.Meter(t.ID, t.Plan), h.Billing.Allowance(t.ID, t.Plan)
	}
	volatile, stores := b.volatile(h), b.sessions(h)
	b.store = stores(h.DB)
	if h.Keys != nil {
		b.vault = store.NewVault(h.tasksIn(volatile), t.ID, h.Keys) // what a task was entrusted with is kept as the task is
		if volatile {
			b.vault = b.vault.AuditIn(h.DB)
		}
	}
	memories, used := b.memory(memory.New(h.DB, t.ID))
	if used {
		b.recall = memories
	}
	limits := b.limits(h)
	b.llms()
	b.allGuardrails()
	b.allDatabases()
	b.allTools()
	agents := b.allAgents()
	started, standing := b.triggers(), b.standing()
	if err := b.mistakes.err(); err != nil {
		return nil, errors.Join(err, closeAll(b.closers))
	}
	a := &App{
		runners: map[bool]*runner.Runner{}, gate: authz.NewGate(t.ID), vault: b.vault, memories: memories, allowance: b.allowance,
		desk: b.desk(h, standing), pushes: h.Notify != nil && h.Notify.Push, limits: limits, triggers: started, index: map[string]int{}, closers: b.closers,
	}
	for _, q := range h.queues() {
		kept := stores(q.db)
		if q.volatile {
			kept = kept.AuditIn(h.DB)
		}
		tasks := task.New(kept, t.ID, t.Revision, h.Hub, q.workers, log, task.Options{
			Check: check(b.sets), OnBusy: onBusy(cfg), Vault: b.vault, Depth: t.Limits.QueueDepth, Concurrent: t.Limits.MaxConcurrentTasks,
			Observer: b.observer(), Apart: q.volatile, Room: b.room, Hash: t.Hash, Unhold: limits.unhold(), Notifications: h.notifications(standing),
		})
		a.runners[q.volatile] = runner.New(tasks, agents, h.Retry, log, b.running(h))
		if limits != nil {
			a.runners[q.volatile].Count(limits.spent)
		}
		if q.volatile == volatile {
			a.kept, a.tasks = kept, tasks
		}
	}
	if used {
		guards := make(map[string]*guard, len(cfg.Agents))
		for name, a := range cfg.Agents {
			guards[name] = b.guard(a)
		}
		for _, r := range a.runners {
			r.Tell(func(ctx context.Context, run store.Run, said []agentsvc.Entry) {
				if said, err := guards[run.Agent].past(ctx, said); err == nil {
					memories.Remember(ctx, run, said)
				}
			})
		}
	}
	for _, name := range cfg.AgentNames() {
		a.index[name] = len(a.cards)
		c := card(name, cfg.Agents[name])
		c.Replies = b.replies(cfg.Agents[name].LLM)
		a.cards = append(a.cards, c)
	}
	a.fallback = defaultAgent(cfg, a.cards)
	if p := cfg.Server.Provider; p != nil {
		a.org, a.url = p.Org, p.URL
	}
	return a, nil
}

// Tasks is the pass of the app.
func (a *App) Tasks() *task.Service { return a.tasks }

// Run runs one of the app's runs to its end.
func (a *App) Run(ctx context.Context, run store.Run) error {
	return a.runners[run.Volatile].Run(ctx, run)
}

// Sweep deletes what r keeps no longer, the conversations from where the app has them.
func (a *App) Sweep(ctx context.Context, r store.Retention) (store.Swept, error) {
	return a.kept.Sweep(ctx, r)
}

// Memories is what the app's agents remember of its users.
func (a *App) Memories() *memory.Recall { return a.memories }

// Vault holds what the app's users have entrusted to its tools; nil where nothing could be sealed.
func (a *App) Vault() *store.Vault { return a.vault }

// Policy decides who may do what in the app as its record is.
func (a *App) Policy(record *tenancy.App) (*authz.Policy, error) { return a.gate.Policy(record) }

// Cards describes the agents in file order. The slice is shared: it is not to be changed.
func (a *App) Cards() []agentsvc.Card { return a.cards }

// Card describes an agent.
func (a *App) Card(name string) (agentsvc.Card, bool) {
	i, ok := a.index[name]
	if !ok {
		return agentsvc.Card{}, false
	}
	return a.cards[i], true
}

// DefaultCard describes the agent that stands for the app, if one does.
func (a *App) DefaultCard() (agentsvc.Card, bool) { return a.Card(a.fallback) }

// Provider names who offers the app, as its cards show it.
func (a *App) Provider() (org, url string) { return a.org, a.url }

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
	cfg     *config.Config
	tenant  Tenant
	log     *slog.Logger
	out     *egress.Client
	folders *grant.Guard
	sandbox *sandbox.Host
	judged  func(context.Context, guardrail.Finding) // nil = nobody wants to know
	watch   Watch
	// maxAnswer is [House.MaxAnswer].
	maxAnswer int
	store     *store.Store
	vault     *store.Vault   // nil = nothing can be sealed
	recall    *memory.Recall // nil = agents remember nothing
	models    map[string]llm.Provider
	rails     map[string]*guardrail.Guardrail // those that are turned on
	built     map[string]agent.Agent
	tools     map[string]tool.Tool
	sources   map[string]tool.Source // by the name of the tool that stands for all of theirs
	sets      []*tool.Set            // all that were made
	closers   []func() error
	mistakes

	databases *Databases
	meter     *billing.Meter     // nil = nothing is counted
	allowance *billing.Allowance // as above
}
