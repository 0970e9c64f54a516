package price

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/billing/change"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// Plan is a named set of terms that an app can be put on. Weight, MaxConcurrentTasks, QueueDepth and Retention are
// defaults: the app's own setting has priority, and a zero field sets nothing.
type Plan struct {
	Name string
	// Currency is that of all money of the plan and of the charges of its apps; "" means that of the price version
	// created first.
	Currency string
	// Timezone is the zone by which its invoices' months begin, a name of the IANA time zone database; "" means UTC.
	Timezone string
	// BaseFee is charged for each month that ends after BaseFeeSince, which UpdatePlan sets when a plan without a base
	// fee gets one. Only invoices use both, and Taxes.
	BaseFee      amount.Money
	BaseFeeSince time.Time
	// Taxes are added to the net amount of invoices, each by itself.
	Taxes []Tax
	// Included are the quantities by meter that the plan's base fee covers. Overage is the price of what exceeds
	// them; it replaces the charge of the price book for that meter. Only invoices use both; the charge in a usage row
	// does not.
	Included map[string]int64
	Overage  map[string]Overage

	Weight             int64
	MaxConcurrentTasks int64
	QueueDepth         int64
	// AllowedModels are patterns of provider/model; an empty list allows every model.
	AllowedModels []string
	Retention     Retention
	Documents     DocumentLimits

	CreatedAt, UpdatedAt time.Time
}

// Overage is a price: Amount, in nano-units, for Per units of the meter.
type Overage struct {
	Per    int64
	Amount amount.Money
}

// Tax is a tax on invoices.
type Tax struct {
	Name string      `json:"name"`
	Rate amount.Rate `json:"percent"`
}

// Retention is how long finished tasks, their events and idle sessions are kept. Zero means forever.
type Retention struct {
	Tasks, Events, Sessions time.Duration
}

// DocumentLimits bound what an app stores for retrieval. A zero field sets nothing: the default of package corpus applies.
type DocumentLimits struct {
	Count         int64 `json:"count,omitempty"`          // documents of the app
	Bytes         int64 `json:"bytes,omitempty"`          // of all uploads of the app
	DocumentBytes int64 `json:"document_bytes,omitempty"` // of one upload
	Chunks        int64 `json:"chunks,omitempty"`         // of each document store
}

// The largest values of DocumentLimits. No reader of files takes more than 20 MiB; a search compares all chunks of a store.
const (
	maxDocuments        = 10_000_000
	maxDocumentsBytes   = 1 << 44
	maxDocumentBytes    = 20 << 20
	maxChunksOfOneStore = 1_000_000
)

// validate returns an error with [agentsvc.CodeInvalid] for the first limit that is out of bounds.
func (l DocumentLimits) validate() error {
	for _, f := range []struct {
		name    string
		n, most int64
	}{{"count", l.Count, maxDocuments}, {"bytes", l.Bytes, maxDocumentsBytes}, {"document_bytes", l.DocumentBytes, maxDocumentBytes}, {"chunks", l.Chunks, maxChunksOfOneStore}} {
		if f.n < 0 || f.n > f.most {
			return agentsvc.NewInvalidError("documents."+f.name, "must be 0, which stands for the default, to %d", f.most)
		}
	}
	return nil
}

// AllowsModel reports whether apps on the plan may use a model. The zero Plan, of an app that is on none, allows all.
func (p Plan) AllowsModel(provider, model string) bool {
	return len(p.AllowedModels) == 0 || slices.ContainsFunc(p.AllowedModels, func(pat string) bool { return matchesPattern(pat, provider+"/"+model) })
}

// storedPlan is the JSON in column plan.terms. Fields may be added; a renamed field would lose its value in rows that
// exist.
type storedPlan struct {
	Currency      string                   `json:"currency,omitempty"`
	Included      map[string]int64         `json:"included,omitempty"`
	Overage       map[string]storedOverage `json:"overage,omitempty"`
	AllowedModels []string                 `json:"allowed_models,omitempty"`
	Tasks         time.Duration            `json:"tasks,omitempty"`
	Events        time.Duration            `json:"events,omitempty"`
	Sessions      time.Duration            `json:"sessions,omitempty"`
	Timezone      string                   `json:"timezone,omitempty"`
	BaseFee       amount.Money             `json:"base_fee,omitempty"`
	BaseFeeSince  time.Time                `json:"base_fee_since,omitzero"`
	Taxes         []Tax                    `json:"taxes,omitempty"`
	Documents     DocumentLimits           `json:"documents,omitzero"`
}

// storedOverage is the JSON of an [Overage].
type storedOverage struct {
	Per    int64        `json:"per"`
	Amount amount.Money `json:"amount"`
}

// storedBody returns the part of p that is stored in column terms; the rest has columns of its own.
func (p Plan) storedBody() storedPlan {
	r := p.Retention
	var overage map[string]storedOverage
	if p.Overage != nil {
		overage = make(map[string]storedOverage, len(p.Overage))
		for meter, o := range p.Overage {
			overage[meter] = storedOverage(o)
		}
	}
	return storedPlan{p.Currency, p.Included, overage, p.AllowedModels, r.Tasks, r.Events, r.Sessions, p.Timezone, p.BaseFee, p.BaseFeeSince, p.Taxes, p.Documents}
}

const planColumns = `name, terms, weight, max_concurrent_tasks, queue_depth, created_at, updated_at`

// scanRow reads a row of planColumns into p.
func (p *Plan) scanRow(row db.Row) error {
	var terms string
	var body storedPlan
	var created, updated int64
	if err := row.Scan(&p.Name, &terms, &p.Weight, &p.MaxConcurrentTasks, &p.QueueDepth, &created, &updated); err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(terms), &body); err != nil {
		return err
	}
	p.Currency, p.Timezone, p.Included, p.AllowedModels = body.Currency, body.Timezone, body.Included, body.AllowedModels
	p.BaseFee, p.BaseFeeSince, p.Taxes = body.BaseFee, body.BaseFeeSince, body.Taxes
	if body.Overage != nil {
		p.Overage = make(map[string]Overage, len(body.Overage))
		for meter, o := range body.Overage {
			p.Overage[meter] = Overage(o)
		}
	}
	p.Documents = body.Documents
	p.Retention = Retention{body.Tasks, body.Events, body.Sessions}
	p.CreatedAt, p.UpdatedAt = time.UnixMicro(created).UTC(), time.UnixMicro(updated).UTC()
	return nil
}

// auditDetail returns p as the audit trail records it.
func (p Plan) auditDetail() any {
	overage := make(map[string]string, len(p.Overage))
	for meter, o := range p.Overage {
		overage[meter] = o.Amount.Decimal(p.Currency)
	}
	return struct {
		storedPlan
		BaseFeeDecimal     string            `json:"base_fee_decimal"`
		OverageDecimal     map[string]string `json:"overage_decimal,omitempty"`
		Weight             int64             `json:"weight"`
		MaxConcurrentTasks int64             `json:"max_concurrent_tasks"`
		QueueDepth         int64             `json:"queue_depth"`
	}{p.storedBody(), p.BaseFee.Decimal(p.Currency), overage, p.Weight, p.MaxConcurrentTasks, p.QueueDepth}
}

const (
	// maxPatterns bounds the entries of [Plan.AllowedModels].
	maxPatterns = 1000
	// maxTaxes bounds the entries of [Plan.Taxes], and maxTaxNameBytes the name of each.
	maxTaxes        = 5
	maxTaxNameBytes = 64
)

// validate returns an error with [agentsvc.CodeInvalid] for the first invalid field, or the error of
// [tenancy.Limits.CheckBounds].
func (p Plan) validate() error {
	if !IsValidName(p.Name) {
		return agentsvc.NewInvalidError("name", "must be 1 to %d letters, digits, and . _ - between them", MaxNameBytes)
	}
	if p.Currency != "" && !amount.IsCurrency(p.Currency) {
		return agentsvc.NewInvalidError("currency", "must be the code of a currency (ISO 4217), such as USD")
	}
	if _, err := time.LoadLocation(p.Timezone); err != nil || p.Timezone == "Local" {
		return agentsvc.NewInvalidError("timezone", "%.40q is no time zone, such as Europe/Berlin", p.Timezone)
	}
	if err := p.validateInvoiced(); err != nil {
		return err
	}
	for _, meter := range slices.Sorted(maps.Keys(p.Included)) {
		if !slices.Contains(amount.Meters, meter) {
			return agentsvc.NewInvalidError("included."+meter, "is no meter; there are %s", strings.Join(amount.Meters, ", "))
		}
		if p.Included[meter] < 0 {
			return agentsvc.NewInvalidError("included."+meter, "must be 0 or more")
		}
	}
	for _, meter := range slices.Sorted(maps.Keys(p.Overage)) {
		o := p.Overage[meter]
		if err := (Item{Kind: Charge, Meter: meter, Per: o.Per, Amount: o.Amount}).validate("overage." + meter + "."); err != nil {
			return err
		}
	}
	limits := tenancy.Limits{Weight: p.Weight, MaxConcurrentTasks: p.MaxConcurrentTasks, QueueDepth: p.QueueDepth}
	if err := limits.CheckBounds(""); err != nil {
		return err
	}
	if err := p.Documents.validate(); err != nil {
		return err
	}
	if len(p.AllowedModels) > maxPatterns {
		return agentsvc.NewInvalidError("allowed_models", "there are %d, %d are allowed", len(p.AllowedModels), maxPatterns)
	}
	for i, pat := range p.AllowedModels {
		if pat == "" || len(pat) > MaxPatternBytes || !strings.ContainsAny(pat, "/*") {
			return agentsvc.NewInvalidError(fmt.Sprintf("allowed_models[%d]", i), "must be a pattern of provider/model, such as openai/gpt-4o or anthropic/*")
		}
	}
	for name, d := range map[string]time.Duration{"tasks": p.Retention.Tasks, "events": p.Retention.Events, "sessions": p.Retention.Sessions} {
		if d != 0 && d < time.Minute {
			return agentsvc.NewInvalidError("retention."+name, "must be at least 1m")
		}
	}
	if p.Retention.Tasks > 0 && p.Retention.Events >= p.Retention.Tasks {
		return agentsvc.NewInvalidError("retention.events", "must be shorter than tasks: the events of a task go with it")
	}
	return nil
}

// validateInvoiced is the part of validate for the base fee and the taxes.
func (p Plan) validateInvoiced() error {
	switch {
	case p.BaseFee < 0 || p.BaseFee > amount.MaxPrice:
		return agentsvc.NewInvalidError("base_fee", "must be nano-units of the currency, from 0 to %d", amount.MaxPrice)
	case p.BaseFee > 0 && p.Currency == "":
		return agentsvc.NewInvalidError("currency", "is missing: a plan with a base_fee names its currency")
	case len(p.Taxes) > maxTaxes:
		return agentsvc.NewInvalidError("taxes", "there are %d, %d are allowed", len(p.Taxes), maxTaxes)
	}
	for i, tax := range p.Taxes {
		if tax.Name == "" || len(tax.Name) > maxTaxNameBytes || !utf8.ValidString(tax.Name) || strings.ContainsFunc(tax.Name, unicode.IsControl) {
			return agentsvc.NewInvalidError(fmt.Sprintf("taxes[%d].name", i), "must be 1 to %d bytes of text, such as VAT", maxTaxNameBytes)
		}
		if slices.ContainsFunc(p.Taxes[:i], func(x Tax) bool { return x.Name == tax.Name }) {
			return agentsvc.NewInvalidError(fmt.Sprintf("taxes[%d].name", i), "%s is the name of an earlier tax; an invoice shows each tax by its name", tax.Name)
		}
	}
	return nil
}

// AddPlan creates a plan. If the name is taken it returns [agentsvc.CodeExists].
func (s *Service) AddPlan(ctx context.Context, actor audit.Actor, p Plan) (Plan, error) {
	return s.savePlan(ctx, actor, "plan.create", p, `INSERT INTO plan (name, terms, weight, max_concurrent_tasks, queue_depth, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, stoa_now(), stoa_now())`)
}

// UpdatePlan replaces all terms of a plan, for every app that is on it. If there is no such plan it returns
// [agentsvc.CodeNotFound].
func (s *Service) UpdatePlan(ctx context.Context, actor audit.Actor, p Plan) (Plan, error) {
	return s.savePlan(ctx, actor, "plan.update", p, `UPDATE plan SET terms = $2, weight = $3, max_concurrent_tasks = $4, queue_depth = $5,
		updated_at = stoa_now() WHERE name = $1`)
}

// savePlan validates p, runs sql, which inserts or updates the row, and records the change in the audit trail and in
// billing_change, in one transaction. Every app on the plan gets a new runtime, since limits and models of a runtime
// come from the plan.
func (s *Service) savePlan(ctx context.Context, actor audit.Actor, action string, p Plan, sql string) (Plan, error) {
	if err := p.validate(); err != nil {
		return Plan{}, err
	}
	// on is set in the transaction and used after the commit: a signal before it could make a process read the old
	// plan.
	var on []db.ID
	detail := map[string]any{"plan": p.Name}
	err := s.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
		var was Plan
		err := tx.Query(ctx, func(row db.Row) error {
			err := was.scanRow(row)
			detail["before"] = was.auditDetail()
			return err
		}, `SELECT `+planColumns+` FROM plan WHERE name = $1`, p.Name)
		if err != nil {
			return err
		}
		if p.BaseFeeSince = was.BaseFeeSince; was.BaseFee == 0 {
			p.BaseFeeSince = time.Time{}
		}
		if p.BaseFee > 0 && p.BaseFeeSince.IsZero() {
			p.BaseFeeSince = time.Now().UTC()
		}
		terms, err := json.Marshal(p.storedBody())
		if err != nil {
			return err
		}
		detail["after"] = p.auditDetail()
		n, err := tx.Exec(ctx, sql, p.Name, string(terms), p.Weight, p.MaxConcurrentTasks, p.QueueDepth)
		if err != nil {
			return err
		}
		if n == 0 {
			return agentsvc.NewError(agentsvc.CodeNotFound, "there is no plan %s", p.Name)
		}
		if on, err = tenancy.RebuildAppsOnPlan(ctx, tx, p.Name); err != nil {
			return err
		}
		if err := audit.Insert(ctx, tx, audit.Entry{Actor: actor, Action: action, Detail: detail}); err != nil {
			return err
		}
		return change.Record(ctx, tx, change.Plan, "")
	})
	switch {
	case db.IsDuplicate(err):
		return Plan{}, agentsvc.NewError(agentsvc.CodeExists, "there is a plan %s", p.Name)
	case err != nil:
		return Plan{}, fmt.Errorf("put plan %s: %w", p.Name, err)
	}
	made := p
	s.feed.Publish(ctx, change.Plan, "", func(ctx context.Context) error {
		err := s.readPlans(ctx)
		if err == nil {
			made, _ = s.CachedPlan(p.Name)
		}
		return err
	})
	for _, id := range on {
		s.bus.Publish(tenancy.TopicApp, string(id))
	}
	return made, nil
}

// CachedPlan returns the plan of that name from this process's cache, and whether it exists. It does not query the
// database.
func (s *Service) CachedPlan(name string) (Plan, bool) {
	p, ok := (*s.plans.Load())[name]
	return p, ok
}

// FindPlan reads the plan of that name from the database. If there is none it returns [agentsvc.CodeNotFound].
func (s *Service) FindPlan(ctx context.Context, name string) (Plan, error) {
	if err := s.readPlans(ctx); err != nil {
		return Plan{}, err
	}
	p, ok := s.CachedPlan(name)
	if !ok {
		return Plan{}, agentsvc.NewError(agentsvc.CodeNotFound, "there is no such plan")
	}
	return p, nil
}

// ListPlans reads all plans from the database and returns them by name.
func (s *Service) ListPlans(ctx context.Context) ([]Plan, error) {
	if err := s.readPlans(ctx); err != nil {
		return nil, err
	}
	all := *s.plans.Load()
	list := make([]Plan, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[name])
	}
	return list, nil
}

// readPlans reads all plans into the cache.
func (s *Service) readPlans(ctx context.Context) error {
	s.reloadMu.Lock()
	defer s.reloadMu.Unlock()
	plans, err := readPlans(ctx, s.query)
	if err != nil {
		return err
	}
	s.plans.Store(&plans)
	return nil
}
